"""Every key of a config, from the models that check it: as a page for people, and as a JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.config import Config

TITLE = "recordmill config"


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the YAML file, by the names that are written there."""
    schema = Config.model_json_schema(by_alias=True, mode="validation")
    schema["properties"]["max_bad_rows"]["default"] = 0  # as it is written
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema | {"title": TITLE}


def markdown() -> str:
    """The page: a table for the top, and one for each section."""
    schema = json_schema()
    sections = {"": schema, **{name: schema["$defs"][name.capitalize()] for name in ("source", "output", "runner")}}
    lines = [
        "# Every key of a config",
        "",
        "Made by `recordmill reference`; `recordmill reference --json-schema` makes the schema for editors. A",
        "config that begins with `# yaml-language-server: $schema=config.schema.json`, and has that file beside it, is",
        "checked and completed while it is written.",
    ]
    for section, found in sections.items():
        lines += [
            "",
            f"## `{section}`" if section else "## The top",
            "",
            "| key | value | default | what it is |",
            "|---|---|---|---|",
        ]
        required = found.get("required", [])
        for key, value in found["properties"].items():
            default = _default(section, key, value, required)
            what = " ".join(_what(value, schema["$defs"]).split())
            lines.append(f"| `{key}` | {_kind(value)} | {default} | {what} |")
    return "\n".join(lines) + "\n"


def _what(value: dict[str, Any], sections: dict[str, Any]) -> str:
    """Of a section that says it itself, the first line."""
    if "description" in value or "$ref" not in value:
        return str(value.get("description", ""))
    return str(sections[value["$ref"].rpartition("/")[2]]["description"].splitlines()[0])


def _default(section: str, key: str, value: dict[str, Any], required: list[str]) -> str:
    if key in required:
        return "must be given"
    if (section, key) == ("runner", "workers"):
        return "all processors"
    default = value.get("default")
    if default is None or default == []:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _kind(value: dict[str, Any]) -> str:
    """In words."""
    return " or ".join(dict.fromkeys(_kinds(value)))


def _kinds(value: dict[str, Any]) -> Iterator[str]:
    if "$ref" in value:
        yield "keys"
    elif "enum" in value:
        yield ", ".join(f"`{choice}`" for choice in value["enum"])
    elif "anyOf" in value or "allOf" in value:
        for part in value.get("anyOf") or value["allOf"]:
            if part.get("type") != "null":
                yield from _kinds(part)
    else:
        kinds = value.get("type", "string")
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield _NAMES[kind]


_NAMES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "array": "list",
    "object": "keys with values",
}
