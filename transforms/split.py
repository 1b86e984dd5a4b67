"""Which split a row belongs to: a function of its key's content, and of nothing else.

A row keeps its split when files are renamed, reordered, cut or joined, when data are added, when a column turns out to
hold text after numbers (integers hash as their decimal text), and when a column is added that is null in old rows.
Rows with equal keys go together; without ``split_by`` the key is the whole row, so equal rows go together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import SchemaError
from transforms.native import Int64, Pointer, UInt64, kernel

_xxh64 = kernel("hash_xxh64", [Pointer, Int64, UInt64], UInt64)
_add_binary32 = kernel("hash_add_binary32", [Pointer, Pointer, Pointer, Int64, Int64, UInt64, Pointer])
_add_binary64 = kernel("hash_add_binary64", [Pointer, Pointer, Pointer, Int64, Int64, UInt64, Pointer])
_add_int64 = kernel("hash_add_int64", [Pointer, Pointer, Int64, Int64, UInt64, Pointer])
_add_float64 = kernel("hash_add_float64", [Pointer, Pointer, Int64, Int64, UInt64, Pointer])
_add_lists = kernel("hash_add_lists", [Pointer, Pointer, Pointer, Int64, Int64, UInt64, Pointer])
_finish = kernel("hash_finish", [Pointer, Int64])


@dataclass(frozen=True)
class Assignment:
    """``split``: the index of each row's split (int32).  ``keyless``: rows whose key columns were all null."""

    split: np.ndarray
    keyless: int


@dataclass(frozen=True)
class Splitter:
    """Splits with their fractions, in order, and the columns that make the key (none: the whole row)."""

    names: tuple[str, ...]
    fractions: tuple[float, ...]
    keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, splits: Mapping[str, float], *, keys: Sequence[str] = ()) -> Splitter:
        return cls(tuple(splits), tuple(splits.values()), tuple(keys))

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """The split of each row of a raw batch.

        Rows whose key columns are all null go by the hash of the whole row, so that they spread over the splits, and
        are counted.  Raises SchemaError when a key column is not there.
        """
        if len(self.names) == 1:
            return Assignment(np.zeros(batch.num_rows, np.int32), 0)
        hashes, keyless = self._hashes(batch)
        return Assignment(np.searchsorted(self._bounds(), hashes, side="right").astype(np.int32), keyless)

    def _hashes(self, batch: pa.RecordBatch) -> tuple[np.ndarray, int]:
        if not self.keys:
            return hash_rows(batch), 0
        keys = pa.RecordBatch.from_arrays([_key_column(batch, key) for key in self.keys], names=list(self.keys))
        hashes = hash_rows(keys)
        keyless = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in keys.columns])
        if keyless.any():
            hashes[keyless] = hash_rows(batch.filter(pa.array(keyless)))
        return hashes, int(keyless.sum())

    def _bounds(self) -> np.ndarray:
        """The hash at which each split but the first begins (uint64), from the fractions as decimals."""
        exact = [Fraction(repr(fraction)) for fraction in self.fractions]
        whole = sum(exact)
        ends = [sum(exact[: i + 1], Fraction(0)) / whole for i in range(len(exact) - 1)]
        return np.array([min(int(end * 2**64), 2**64 - 1) for end in ends], dtype=np.uint64)


def _key_column(batch: pa.RecordBatch, key: str) -> pa.Array:
    """The column of that name or, where a dot leads into a struct, its field."""
    name, *fields = (key,) if key in batch.schema.names else key.split(".")
    if name not in batch.schema.names:
        raise SchemaError(
            f"split_by names the column {key!r}, which is not in the data; it has "
            f"{', '.join(map(repr, batch.schema.names))}"
        )
    column = batch.column(name)
    for field in fields:
        if not pa.types.is_struct(column.type) and not pa.types.is_null(column.type):
            raise SchemaError(f"split_by names {key!r}, and {name!r} holds {column.type} values, which have no fields")
        there = pa.types.is_struct(column.type) and column.type.get_field_index(field) >= 0
        column = pc.struct_field(column, field) if there else pa.nulls(len(column))
    return column


def hash_rows(batch: pa.RecordBatch) -> np.ndarray:
    """A 64-bit hash of each row (uint64): of its columns' names and values in any order, nulls left out."""
    rows = np.zeros(batch.num_rows, dtype=np.uint64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _add_column(name, column, rows)
    _finish(rows.ctypes.data, len(rows))
    return rows


def _add_column(name: str, column: pa.Array, rows: np.ndarray) -> None:
    if pa.types.is_struct(column.type):
        for field, child in zip(column.type, column.flatten(), strict=True):
            _add_column(f"{name}.{field.name}", child, rows)
        return
    encoded = name.encode()
    _add_values(column, _xxh64(encoded, len(encoded), 0), rows)


def _add_values(column: pa.Array, seed: int, rows: np.ndarray) -> None:
    """Adds the hash of each value to its row.

    Integers, booleans and times hash as decimal text (times in nanoseconds), decimals as text without trailing zeros.
    """
    kind, n, out = column.type, len(column), rows.ctypes.data
    if pa.types.is_dictionary(kind):
        _add_values(column.dictionary_decode(), seed, rows)
    elif pa.types.is_null(kind):
        return
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        _add_list(column, seed, rows)
    elif pa.types.is_struct(kind):  # inside a list
        parts = np.zeros(n, dtype=np.uint64)
        _add_column("", column, parts)
        rows += parts
    elif pa.types.is_boolean(kind):
        _add_values(column.cast(pa.string()), seed, rows)
    elif pa.types.is_integer(kind) and kind != pa.uint64():
        values = column.cast(pa.int64())
        _add_int64(_address(values, 1), _address(values, 0), values.offset, n, seed, out)
    elif pa.types.is_floating(kind):
        values = column.cast(pa.float64())
        _add_float64(_address(values, 1), _address(values, 0), values.offset, n, seed, out)
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        _add_binary64(_address(column, 1), _address(column, 2), _address(column, 0), column.offset, n, seed, out)
    elif pa.types.is_binary(kind) or pa.types.is_string(kind):
        _add_binary32(_address(column, 1), _address(column, 2), _address(column, 0), column.offset, n, seed, out)
    else:
        _add_values(_canonical(column), seed, rows)


def _canonical(column: pa.Array) -> pa.Array:
    """Values of the rarer types in a form that does not depend on how they are stored."""
    kind = column.type
    if kind == pa.date32():
        return _canonical(column.cast(pa.timestamp("s")))
    if pa.types.is_temporal(kind):
        unit = "ms" if kind == pa.date64() else kind.unit
        counts = (column.cast(pa.int32()) if kind.bit_width == 32 else column).cast(pa.int64())
        nanoseconds = pa.scalar({"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit], pa.int64())
        factors = [counts.cast(pa.decimal128(19, 0)), nanoseconds.cast(pa.decimal128(19, 0)).cast(pa.decimal128(11, 0))]
        return pc.multiply(*factors).cast(pa.string())
    if pa.types.is_decimal(kind):
        text = column.cast(pa.string())
        trimmed = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
        return pc.if_else(pc.match_substring(text, "."), trimmed, text)
    if kind == pa.uint64():
        return column.cast(pa.string())
    return column.cast(pa.large_binary() if pa.types.is_binary_view(kind) else pa.large_string())


def _add_list(column: pa.Array, seed: int, rows: np.ndarray) -> None:
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.large_list(column.type.value_type))
    elements = column.flatten()
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    hashes = np.zeros(len(elements), dtype=np.uint64)
    _add_values(elements, 0, hashes)
    _add_lists(
        offsets.ctypes.data,
        hashes.ctypes.data,
        _address(column, 0),
        column.offset,
        len(column),
        seed,
        rows.ctypes.data,
    )


def _address(array: pa.Array, index: int) -> int | None:
    buffer = array.buffers()[index]
    return None if buffer is None else int(buffer.address)
