"""What pydantic found, in words that say what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from pipeline.document import Location

_EXAMPLES = {
    "name": "name: flights",
    "source": "source: {format: csv, files: data/*.csv}",
    "source.format": "format: csv",
    "source.files": "files: data/*.csv",
    "output": "output: {dir: out}",
    "output.dir": "dir: out",
}
_TYPES = {
    "string_type": "must be text; put it in quotes if it looks like a number or a date",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be keys with values, such as {train: 0.8, eval: 0.2}",
    "model_type": "must be keys with values",
    "model_attributes_type": "must be keys with values",
    "tuple_type": "must be text or a list of texts",
    "invalid_key": "keys are text; put it in quotes",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}


def describe(error: ErrorDetails, model: type[BaseModel]) -> tuple[Location, str]:
    """Where the error is, and what to say about it; ``model`` is the one at the top."""
    location: Location = tuple(part for part in error["loc"] if part != "[key]")
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return location, f"is missing; add it, for example `{_EXAMPLES['.'.join(map(str, location))]}`"
    if kind == "extra_forbidden":
        return location, _unknown(location, model)
    if kind == "literal_error":
        return location, f"must be one of {str(context['expected']).replace(' or ', ', ')}"
    if kind == "value_error":
        return location, str(context["error"])
    if kind == "greater_than_equal":
        return location, f"must be at least {context['ge']}"
    if kind == "less_than_equal":
        return location, f"must be at most {context['le']}"
    return location, _TYPES.get(kind, error["msg"])


def _unknown(location: Location, model: type[BaseModel]) -> str:
    keys = list(_keys(model, ()))
    here, key = location[:-1], str(location[-1])
    siblings = [str(known[-1]) for known in keys if known[:-1] == here]
    close = difflib.get_close_matches(key, siblings, n=1)
    elsewhere = [".".join(map(str, known)) for known in keys if known[-1] == key]
    if close:
        hint = f"did you mean {close[0]!r}?"
    elif elsewhere:
        hint = f"did you mean {elsewhere[0]}?"
    else:
        hint = f"{'.'.join(map(str, here)) or 'a config'} takes {', '.join(siblings)}"
    return f"unknown key; {hint}"


def _keys(model: type[BaseModel], above: Location) -> Iterator[Location]:
    """Each key that may be written, from the top."""
    for name, field in model.model_fields.items():
        location = (*above, field.alias or name)
        yield location
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, location)
