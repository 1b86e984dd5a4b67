"""Hashes that names and cache keys are made of: of content, never of names or times alone."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

CHUNK_BYTES = 4 << 20


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, as 32 hexadecimal digits (128 bits).

    Takes plain values and dataclasses of them.  Fields of dataclasses and keys of mappings that are ``None`` are
    dropped, so that a new optional field keeps old hashes.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} has no canonical form")


def hash_bytes(chunks: Iterable[bytes | memoryview]) -> str:
    """XXH3-128 of the chunks as one stream, in hexadecimal: for data, where speed counts and no one attacks."""
    state = xxhash.xxh3_128()
    for chunk in chunks:
        state.update(chunk)
    return str(state.hexdigest())


def read_chunks(stream: BinaryIO, num_bytes: int | None = None) -> Iterable[bytes]:
    """The stream's next ``num_bytes`` (all when None) in pieces of at most ``CHUNK_BYTES``."""
    left = num_bytes
    while left is None or left > 0:
        chunk = stream.read(CHUNK_BYTES if left is None else min(left, CHUNK_BYTES))
        if not chunk:
            return
        yield chunk
        left = None if left is None else left - len(chunk)


def hash_python(path: str) -> str:
    """SHA-256 of a Python file's syntax tree without positions: comments and layout do not count."""
    tree = ast.parse(Path(path).read_bytes(), filename=path)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:32]
