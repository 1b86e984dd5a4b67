"""What a config's values may be, each with the words for what is wrong with it.

Paths are relative to the folder of the config.
"""

from __future__ import annotations

import codecs
import os
import re
from fractions import Fraction
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from pipeline.patterns import FilePattern, expand, parse_span
from transforms.partition import BadRowLimit
from transforms.storage import check_address, is_remote

RESERVED_SPLITS = ("transform_fn", "transformed_metadata", "bad_rows")  # folders that a version has besides its splits

_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}


class Model(BaseModel):
    """A section of a config: frozen, strict, and with no keys but its own."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


def parse_size(value: object) -> int:
    """Bytes from a number or from text such as ``128MiB`` (2**20 bytes), ``64MB`` (10**6) or ``1.5GiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value).strip())
    unit = match and {name.upper(): size for name, size in _UNITS.items()}.get(match[2].upper())
    if isinstance(value, bool) or not match or not unit:
        raise ValueError("must be a size such as 128MiB, 64MB or 1GiB")
    num_bytes = int(Fraction(match[1]) * unit)
    if num_bytes < 1:
        raise ValueError("must be at least one byte")
    return num_bytes


def parse_duration(value: str) -> float:
    """Seconds from text such as ``90s``, ``15m``, ``12h``, ``30d`` or ``2w``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", value.strip())
    if not match:
        raise ValueError("must be a time such as 90s, 15m, 12h, 30d or 2w")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[match[2]]


def _file_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value):
        raise ValueError("becomes part of file names: use letters, digits, '_', '-' and '.', a letter or digit first")
    return value


def _splits(value: dict[str, float]) -> dict[str, float]:
    for name, fraction in value.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in RESERVED_SPLITS:
            raise ValueError(
                f"{name!r} cannot name a split, since folders and files are named after it: use letters, digits, '_' "
                f"and '-', a letter or digit first, and none of {', '.join(RESERVED_SPLITS)}"
            )
        if not 0 < fraction <= 1:
            raise ValueError(f"{name!r} gets {fraction}; each split takes a fraction above 0, and 1 at most")
    total = sum((Fraction(repr(fraction)) for fraction in value.values()), Fraction(0))
    if abs(total - 1) > Fraction(1, 10**9):
        raise ValueError(f"the fractions add up to {float(total):.12g}; make them add up to 1, or leave splits out")
    return value


def _shards(value: object) -> int | dict[str, int]:
    numbers = list(value.values()) if isinstance(value, dict) else [value]
    names = list(value) if isinstance(value, dict) else []
    if not numbers or not all(type(n) is int and n >= 1 for n in numbers) or not all(type(n) is str for n in names):
        raise ValueError("must be a number of shards per split, or a number for each split: {train: 16, eval: 2}")
    return value  # type: ignore[return-value]


def _delimiter(value: str) -> str:
    if len(value) != 1 or not value.isascii() or value in '"\r\n\0':
        raise ValueError('must be one ASCII character other than a quote or a line end; a tab is written "\\t"')
    return value


def _mark(value: str) -> str:
    if len(value) > 1 or not value.isascii() or value in ("\r", "\n", "\0"):
        raise ValueError('must be one ASCII character other than a line end, or "" for none')
    return value


def _encoding(value: str) -> str:
    try:
        name = codecs.lookup(value).name
        b"".decode(name)  # some codecs are not of text
    except (LookupError, ValueError) as error:
        raise ValueError("is no encoding of text that Python knows, such as latin-1, cp1252 or utf-16") from error
    return "utf-8" if name in ("utf-8-sig", "ascii") else name


def _connection(value: str) -> str:
    kind, _, rest = value.partition(":")
    if kind == "sqlite" and rest:
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/"):
        raise ValueError("must be like postgresql://user@host/database or sqlite:data.db")
    if parts.password is not None or "password" in parts.query:
        raise ValueError("holds a password: leave it out, and set PGPASSWORD, or write it into ~/.pgpass")
    return value


def _address(value: str) -> str:
    if not is_remote(value):
        raise ValueError("must be an address such as s3://bucket/datasets/flights")
    check_address(value)
    return value.rstrip("/")


def _local_path(value: str) -> str:
    if is_remote(value):
        raise ValueError(
            "must be a folder of this machine, where the cache is too; with output.mirror: "
            f"{value} the versions are there as well"
        )
    return value


def _image_size(value: object) -> tuple[int, int]:
    match value:
        case [int(height), int(width)] if height > 0 and width > 0:
            return height, width
    raise ValueError("must be height and width in pixels: [224, 224]")


def _loads(value: object) -> dict[str, str]:
    names = tuple(name for pair in value.items() for name in pair) if isinstance(value, dict) else ()
    if not names or not all(type(name) is str and name for name in names):
        raise ValueError("must be columns of paths, each with the name of the new column: {image_uri: image}")
    _unique(names)
    return dict(value)  # type: ignore[call-overload, no-any-return]  # checked above


def _unique(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("is an empty list: name something, or leave the key out")
    twice = next((item for i, item in enumerate(value) if item in value[:i]), None)
    if twice is not None:
        raise ValueError(f"names {twice!r} twice")
    return value


def _bad_row_limit(value: object) -> BadRowLimit:
    text = str(value).strip()
    if not isinstance(value, bool):
        if re.fullmatch(r"\d+", text):
            return BadRowLimit(int(text))
        if percent := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text):
            value = float(percent[1]) / 100
        if isinstance(value, float) and 0 < value < 1:
            return BadRowLimit(fraction=value)
    raise ValueError("must be a number of rows, or a part of all rows such as 0.001 or 0.1%")


def _plain_limit(limit: BadRowLimit) -> int | float:
    return limit.number if limit.fraction is None else limit.fraction


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else _as_tuple(value)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _function(value: str, info: ValidationInfo) -> str:
    path, _, name = value.rpartition(":")
    if not path or not name.isidentifier():
        raise ValueError("must be a file and a function in it, such as cleaning.py:clean")
    _existing_file(path, info)
    return value


def _existing_file(value: str, info: ValidationInfo) -> str:
    path = os.path.join(_folder(info), value)
    if os.path.isdir(path):
        raise ValueError("is a folder; name a file")
    if not os.path.exists(path):
        raise ValueError(f"does not exist; looked for {path}")
    if not os.access(path, os.R_OK):
        raise ValueError("cannot be read; give yourself the right to read it")
    return value


def _pattern(value: object, info: ValidationInfo) -> FilePattern:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a path or a pattern such as data/*.csv, or a list of them")
    return expand(value, folder=_folder(info))


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _folder(info: ValidationInfo) -> str:
    return str(info.context["folder"])  # type: ignore[index]


_TEXT_OR_LIST = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema({"type": ["integer", "string"]})]
FileName = Annotated[str, AfterValidator(_file_name)]
ExistingFile = Annotated[str, AfterValidator(_existing_file)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(_one_or_many), AfterValidator(_unique), WithJsonSchema(_TEXT_OR_LIST)
]
SpanLabel = Annotated[str, BeforeValidator(parse_span), WithJsonSchema({"type": ["string", "integer"]})]
Pattern = Annotated[FilePattern, PlainValidator(_pattern), PlainSerializer(lambda pattern: pattern.text)]
Patterns = Annotated[
    tuple[Pattern, ...], BeforeValidator(_one_or_many), Field(min_length=1), WithJsonSchema(_TEXT_OR_LIST)
]
Texts = Annotated[tuple[str, ...], BeforeValidator(_one_or_many), WithJsonSchema(_TEXT_OR_LIST)]
Delimiter = Annotated[str, AfterValidator(_delimiter)]
Mark = Annotated[str, AfterValidator(_mark)]
Text = Annotated[str, Field(min_length=1)]
Connection = Annotated[str, AfterValidator(_connection)]
Address = Annotated[str, AfterValidator(_address)]
LocalPath = Annotated[str, Field(min_length=1), AfterValidator(_local_path)]
Encoding = Annotated[str, AfterValidator(_encoding)]
ImageSize = Annotated[
    tuple[int, int],
    BeforeValidator(_image_size),
    WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2}),
]
Loads = Annotated[dict[str, str], BeforeValidator(_loads)]
Fractions = Annotated[dict[str, float], Field(min_length=1), AfterValidator(_splits)]
_COUNT = {"type": "integer", "minimum": 1}
Shards = Annotated[
    int | dict[str, int],
    PlainValidator(_shards),
    WithJsonSchema({"anyOf": [_COUNT, {"type": "object", "additionalProperties": _COUNT}]}),
]
Function = Annotated[str, AfterValidator(_function)]
BadRows = Annotated[
    BadRowLimit,
    PlainValidator(_bad_row_limit),
    PlainSerializer(_plain_limit),
    WithJsonSchema({"type": ["integer", "number", "string"]}),
]
