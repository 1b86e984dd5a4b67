"""Hashes that names and cache keys are made of: of content, never of names or times alone."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable
from importlib.metadata import version
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
    if value is None or type(value) in (str, int, float, bool):  # most of a manifest
        return value
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


@functools.cache
def library_version(name: str) -> str:
    """The version of an installed distribution, as it counts in keys of what the library made."""
    return version(name)


def file_sha256(path: str) -> str:
    """SHA-256 of the file's content, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def folder_sha256(folder: str) -> dict[str, str]:
    """``file_sha256`` of every file below the folder, by its path in it."""
    paths = sorted(os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return {os.path.relpath(path, folder): file_sha256(path) for path in paths}


def hash_python(path: str) -> str:
    """SHA-256 of a Python file's syntax tree without positions: comments and layout do not count."""
    tree = ast.parse(Path(path).read_bytes(), filename=path)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:32]


def outline(path: str) -> dict[str, list[str]]:
    """What a Python file defines at its top: by name, two hashes of the definition, the second without its constants.

    They tell what changed between two versions of the file.  Names that are bound by nothing but statements (``if``,
    ``with``, calls) go together under ``""``.
    """
    parts: dict[str, list[str]] = {}
    for node in ast.parse(Path(path).read_bytes(), filename=path).body:
        for name in _bound(node):
            parts.setdefault(name, []).append(ast.dump(node))
    return {
        name: [hashlib.sha256("\n".join(text).encode()).hexdigest()[:32] for text in (dumps, map(_no_constants, dumps))]
        for name, dumps in parts.items()
    }


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return ["import"]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)] or [""]


def _no_constants(dump: str) -> str:
    return re.sub(r"Constant\(value=(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^()'\"]*)", "Constant(", dump)
