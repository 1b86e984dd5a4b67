"""The second, slow look at JSON lines that Arrow refused: which line or column is at fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.errors import shorten


@dataclass(frozen=True)
class Mixture:
    """A column that holds values of two kinds: where the first is, and where the other.  Rows count from 0."""

    source: tuple[str, ...]
    rows: tuple[int, int]
    kinds: tuple[str, str]
    values: tuple[Any, Any]

    def __str__(self) -> str:
        places = [
            f"{kind} in row {row + 1} ({shorten(value)})"
            for row, kind, value in zip(self.rows, self.kinds, self.values, strict=True)
        ]
        return (
            f"column {'.'.join(self.source)!r} holds {places[0]} and {places[1]}; make them one kind, or give a schema "
            "that declares numbers and text together as BYTES, or leaves the column out"
        )


def filled(lines: bytes) -> np.ndarray:
    """Which lines (bool) hold more than white space."""
    split = lines.removesuffix(b"\n").split(b"\n")
    return np.fromiter((bool(line.strip()) for line in split), bool, len(split))


def fault(line: bytes) -> str | None:
    """Why the line is no JSON object; None: it is one; empty: there is nothing in it."""
    if not line.strip():
        return ""
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    except ValueError as error:
        return f"is not JSON: {error}"
    return None if isinstance(value, dict) else "is not a JSON object; each line must be one"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value; write null")


def mixture(lines: bytes, rows: np.ndarray) -> Mixture | None:
    """The first column that holds values of two kinds."""
    seen: dict[tuple[tuple[str, ...], int], tuple[int, str, Any]] = {}
    for row, content in _objects(lines, rows):
        for source, depth, kind, value in _values((), 0, content):
            first = seen.setdefault((source, depth), (row, kind, value))
            if first[1] != kind:
                return Mixture(source, (first[0], row), (first[1], kind), (first[2], value))
    return None


def nulls_in_lists(lines: bytes) -> dict[int, tuple[str, ...]]:
    """The lines, from 0, that hold a list with a null inside, and the path of the first such list."""
    found = ((i, _null_in_list((), json.loads(line))) for i, line in enumerate(lines.split(b"\n")) if line)
    return {i: source for i, source in found if source}


def _null_in_list(source: tuple[str, ...], value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list):
        if None in value:
            return source
        inner = ((source, item) for item in value)
    elif isinstance(value, dict):
        inner = (((*source, name), item) for name, item in value.items())
    else:
        return None
    return next((found for found in (_null_in_list(*pair) for pair in inner) if found), None)


def without(lines: bytes, column: str) -> bytes:
    """The lines without a top-level column."""
    kept = ({k: v for k, v in json.loads(line).items() if k != column} for line in lines.split(b"\n") if line)
    return b"".join(json.dumps(content).encode() + b"\n" for content in kept)


def huge_integer(lines: bytes, rows: np.ndarray, source: tuple[str, ...]) -> tuple[int, int] | None:
    """The row and the value of the first integer in the column that does not fit 64 bits."""
    for row, content in _objects(lines, rows):
        for found, _, kind, value in _values((), 0, content):
            if found == source and kind == "a number" and isinstance(value, int) and not -(2**63) <= value < 2**63:
                return row, value
    return None


def _objects(lines: bytes, rows: np.ndarray) -> Iterator[tuple[int, dict[str, Any]]]:
    split = [line for line in lines.split(b"\n") if line.strip()]
    for row, line in zip(rows.tolist(), split, strict=False):
        yield row, json.loads(line)


def _values(source: tuple[str, ...], depth: int, value: Any) -> Iterator[tuple[tuple[str, ...], int, str, Any]]:
    """Each value below this one: its path, how many lists it is in, its kind, and itself."""
    if value is None:
        return
    if isinstance(value, dict):
        if source:
            yield source, depth, "an object", value
        for name, inner in value.items():
            yield from _values((*source, name), depth, inner)
    elif isinstance(value, list):
        yield source, depth, "a list", value
        for inner in value:
            yield from _values(source, depth + 1, inner)
    else:
        kind = "true or false" if isinstance(value, bool) else "text" if isinstance(value, str) else "a number"
        yield source, depth, kind, value
