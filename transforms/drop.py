"""Rows that have to go, by their keys: which partitions hold them, and a partition's rows without them.

Keys are compared as text: integers as decimal digits, booleans as ``true`` and ``false``, bytes as they are.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from transforms.errors import SchemaError
from transforms.files import read_checked, write_checked
from transforms.fingerprint import digest
from transforms.partition import BadRow, DropKeys, Partition, RawBatch
from transforms.sources import Source
from transforms.sources.nested import find
from transforms.split import hash_rows


def key_hashes(keys: pa.RecordBatch) -> np.ndarray:
    """A 64-bit hash of each key (uint64), the same for the same text whatever the types."""
    return hash_rows(keys)


def index_keys(
    source: Source, partition: Partition, path: str, *, columns: Sequence[str], on_bad_row: Callable[[BadRow], None]
) -> None:
    """Commits the distinct hashes of the partition's keys as ``path``: an Arrow stream with one uint64 column, sorted.

    Its metadata tells under ``missing`` the key columns that no row has.
    """
    found, seen = [np.zeros(0, np.uint64)], set[str]()
    for raw in source.read(partition, columns=key_columns(columns), on_bad_row=on_bad_row):
        keys = read_keys(raw, columns)
        seen |= {name for name, column in zip(columns, keys.columns, strict=True) if not pa.types.is_null(column.type)}
        found.append(np.unique(key_hashes(keys)))
    missing = ",".join(column for column in columns if column not in seen)
    schema = pa.schema([("hash", pa.uint64())], metadata={"missing": missing})
    write_checked(path, _to_bytes(pa.record_batch([np.unique(np.concatenate(found))], schema=schema)))


def read_index(path: str) -> tuple[np.ndarray, frozenset[str]]:
    """The hashes (uint64, sorted) and the columns that no row has.  Raises CorruptError when the file is damaged."""
    batch = _from_bytes(read_checked(path))
    missing = (batch.schema.metadata or {}).get(b"missing", b"").decode()
    return batch.column(0).to_numpy(), frozenset(filter(None, missing.split(",")))


def key_columns(names: Sequence[str]) -> frozenset[str]:
    """The columns of the source that hold the keys: those of the names, or those with the fields that they lead to."""
    return frozenset(name for column in names for name in (column, column.split(".")[0]))


def drop_keys(keys: pa.RecordBatch, path_of: Callable[[str], str]) -> DropKeys:
    """The descriptor of keys (text columns named as the key columns), to be written under the path for their digest."""
    name = digest([keys.schema.names, [column.to_pylist() for column in keys.columns]])
    return DropKeys(digest=name, columns=tuple(keys.schema.names), path=path_of(name))


def write_keys(keys: pa.RecordBatch, path: str) -> None:
    """Commits the keys for ``matcher``."""
    write_checked(path, _to_bytes(keys))


class KeyMatcher:
    """Tells which rows' keys are among given ones: looked up by hash, and those few that are found compared as text."""

    def __init__(self, keys: pa.RecordBatch) -> None:
        self._hashes = np.unique(key_hashes(keys))
        self._texts = frozenset(_texts(keys))

    def matches(self, keys: pa.RecordBatch) -> np.ndarray:
        """A bool for each row."""
        found = np.isin(key_hashes(keys), self._hashes)
        candidates = np.flatnonzero(found)
        if len(candidates):
            found[candidates] = [text in self._texts for text in _texts(keys.take(pa.array(candidates)))]
        return found


@functools.lru_cache(maxsize=16)
def matcher(path: str) -> KeyMatcher:
    """Of the keys that ``write_keys`` wrote."""
    return KeyMatcher(_from_bytes(read_checked(path)))


def _texts(keys: pa.RecordBatch) -> list[tuple[bytes, ...]]:
    columns = [column if _is_binary(column.type) else column.cast(pa.string()) for column in keys.columns]
    return list(zip(*(column.cast(pa.large_binary()).to_pylist() for column in columns), strict=True))


def _is_binary(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary()) or bool(pa.types.is_fixed_size_binary(kind))


def read_keys(raw: RawBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The key columns; nulls where the batch has none of the name.  Raises SchemaError for what is not text-like."""
    found = []
    for name in columns:
        column = find(raw.data, (name,) if name in raw.data.schema.names else tuple(name.split(".")))
        column = pa.nulls(raw.data.num_rows) if column is None else column
        if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
            raise SchemaError(
                f"{raw.path}: drop_rows names the column {name!r}, which holds {column.type} values; keys are compared "
                "as text, so name a column of integers or text"
            )
        found.append(column)
    return pa.RecordBatch.from_arrays(found, names=list(columns))


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _from_bytes(content: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(content) as reader:
        return reader.read_next_batch()
