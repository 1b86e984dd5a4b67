"""A YAML file as plain values that know where they were written, with ``--set`` overrides on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from transforms.errors import ConfigError

Location = tuple[str | int, ...]  # keys and indices from the top: ("source", "files", 0)


@dataclass
class Document:
    """``data``: the file's values after the overrides.  ``places``: where each of them was written, in words."""

    path: str
    data: dict[str, Any]
    places: dict[Location, str] = field(default_factory=dict)

    def place(self, location: Location) -> str:
        """The file and line, or the override, of the value or of the nearest group that would hold it."""
        for end in range(len(location), 0, -1):
            if location[:end] in self.places:
                return self.places[location[:end]]
        return self.path

    def value(self, location: Location) -> Any:
        """The value there; None when there is none."""
        value: Any = self.data
        for key in location:
            if isinstance(value, dict):
                value = value.get(key)
            else:
                value = value[key] if isinstance(value, list) and isinstance(key, int) else None
        return value


def read_document(path: str, overrides: Sequence[str]) -> Document:
    """Raises ConfigError, with the line, when the file cannot be read, is not YAML, or names a key twice."""
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"{path}: cannot be read: {reason}; `recordmill init` writes a config to start from"
        ) from error
    data, places = _parse(text, path)
    if not isinstance(data, dict):
        what = "is empty" if data is None else "does not hold keys with values at its top"
        raise ConfigError(f"{path}: {what}; `recordmill init` writes a config to start from")
    document = Document(path, data, places)
    for override in overrides:
        _override(document, override)
    return document


def _parse(text: str, path: str) -> tuple[Any, dict[Location, str]]:
    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(text)
        places: dict[Location, str] = {}
        _note_places(node, (), places, path)
        return (None if node is None else yaml.constructor.construct_document(node)), places
    except MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {error.problem}") from error
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error


def _note_places(node: Node | None, location: Location, places: dict[Location, str], path: str) -> None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            places[(*location, key.value)] = f"{path}:{key.start_mark.line + 1}"
            _note_places(value, (*location, key.value), places, path)
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            places[(*location, index)] = f"{path}:{value.start_mark.line + 1}"
            _note_places(value, (*location, index), places, path)


def _override(document: Document, text: str) -> None:
    """Puts ``a.b=VALUE`` into the document; VALUE is YAML, so 6 is a number and [a, b] a list."""
    dotted, found, value = text.partition("=")
    keys = tuple(dotted.strip().split("."))
    if not found or not all(keys):
        raise ConfigError(f"--set {text}: takes KEY=VALUE, for example --set output.level=6")
    place = f"--set {text}"
    group: Any = document.data
    for depth, key in enumerate(keys[:-1], start=1):
        if group.get(key) is None:
            group[key] = {}
            document.places[keys[:depth]] = place
        group = group[key]
        if not isinstance(group, dict):
            raise ConfigError(f"{place}: {'.'.join(keys[:depth])} holds a value, not keys")
    group[keys[-1]], _ = _parse(value, place)
    for location in [known for known in document.places if known[: len(keys)] == keys]:
        del document.places[location]
    document.places[keys] = place
