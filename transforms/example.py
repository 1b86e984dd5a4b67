"""Arrow columns into serialized, framed ``tf.train.Example`` and ``tf.train.SequenceExample``, in C.

The messages are those of https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto and
``feature.proto``.  Features stand in the order of the schema, so the same columns give the same bytes.

| column                                                  | feature                                                 |
|---------------------------------------------------------|---------------------------------------------------------|
| bool, (u)int8 … (u)int64                                | ``int64_list`` with one value                           |
| float16, float32, float64                               | ``float_list`` with one value, rounded to float32       |
| utf8, binary; also large, fixed-size, and their views   | ``bytes_list`` with one value                           |
| dictionary                                              | as its values                                           |
| list; also large, fixed-size, and views                 | the list of its values' kind with all of them, or none  |
| null                                                    | absent                                                  |

A null (of a scalar or a list) leaves the feature out of its Example.  A null inside a list is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import SchemaError, shorten
from transforms.native import Int64, Pointer, kernel
from transforms.schema import SEQUENCE
from transforms.tfrecord import Records

_bound = kernel("example_bound", [Pointer, Int64, Int64], Int64)
_encode = kernel("example_encode", [Pointer, Int64, Int64, Int64, Int64, Pointer, Pointer], Int64)

_INT64_MAX = 2**63 - 1
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"  # tags of the fields of Feature
_BINARY, _LARGE_BINARY = 8, 9
# The types that the kernel reads: their numbers there, and the tags of their lists.
_KINDS = {
    pa.int8(): (0, _INT64_LIST),
    pa.uint8(): (1, _INT64_LIST),
    pa.int16(): (2, _INT64_LIST),
    pa.uint16(): (3, _INT64_LIST),
    pa.int32(): (4, _INT64_LIST),
    pa.uint32(): (5, _INT64_LIST),
    pa.int64(): (6, _INT64_LIST),
    pa.uint64(): (6, _INT64_LIST),
    pa.float32(): (7, _FLOAT_LIST),
    pa.binary(): (_BINARY, _BYTES_LIST),
    pa.string(): (_BINARY, _BYTES_LIST),
    pa.large_binary(): (_LARGE_BINARY, _BYTES_LIST),
    pa.large_string(): (_LARGE_BINARY, _BYTES_LIST),
}
# What others are cast to before.
_CASTS = {
    pa.null(): pa.binary(),
    pa.bool_(): pa.uint8(),
    pa.float16(): pa.float32(),
    pa.float64(): pa.float32(),
    pa.string_view(): pa.large_binary(),
    pa.binary_view(): pa.large_binary(),
}
# The kernel's description of a column, as its `column` in native/example.c.
_COLUMN = np.dtype(
    [
        *[("entry", np.int64), ("entry_size", np.int64), ("valid", np.int64), ("first", np.int64)],
        *[("steps", np.int64), ("lists", np.int64), ("values", np.int64), ("starts", np.int64)],
        *[("values_size", np.int64), ("kind", np.int64)],
    ]
)
_PADDING = bytes(16)  # behind an entry, which the kernel copies in words


class Encoder:
    """Encodes batches of one schema.  Threads may share it.

    ``sequence`` names the columns that become ``feature_lists`` of a SequenceExample: lists of lists, one Feature a
    step, or lists, one Feature with one value a step.  The other columns are its context.  Without it (None), rows
    become Examples.

    Raises SchemaError, which names the column, when a type has no form as a feature, or a name stands twice.
    """

    def __init__(self, schema: pa.Schema, *, sequence: frozenset[str] | None = None) -> None:
        self.schema = schema
        self._is_sequence = sequence is not None
        names = sequence or frozenset()
        _check_names(schema.names, names)
        columns = [_Column.of(i, field, is_steps=field.name in names) for i, field in enumerate(schema)]
        self._columns = sorted(columns, key=lambda column: column.is_steps)

    def encode(self, batch: pa.RecordBatch, *, out: np.ndarray | None = None) -> Records:
        """The rows as framed records, in their order.

        Uses the memory of ``out`` (uint8, contiguous) when it is large enough; the records are a view of it then, and
        good until it is used again.  Raises SchemaError, which names column and row (of the batch, from 0), for a null
        inside a list, a number that has no place in an int64 or float32, and an Example over 2^31 - 1 bytes, which
        protobuf does not read.
        """
        if batch.schema != self.schema and (difference := _difference(self.schema, batch.schema)):
            raise SchemaError(f"the batch is not what the encoder was made for: {difference}")
        described = [column.describe(batch.column(column.index)) for column in self._columns]
        kernel_columns = np.array([fields for fields, _ in described], dtype=_COLUMN)
        address, n, rows = kernel_columns.ctypes.data, len(described), batch.num_rows
        bound = _bound(address, n, rows)
        if out is None or out.nbytes < bound:
            out = np.empty(bound, dtype=np.uint8)
        offsets = np.empty(rows + 1, dtype=np.int64)
        context = sum(not column.is_steps for column in self._columns)
        done = _encode(address, context, n, self._is_sequence, rows, out.ctypes.data, offsets.ctypes.data)
        if done < rows:
            raise SchemaError(_explain_size(batch.slice(done, 1), done))
        return Records(out[: offsets[-1]], offsets)

    def encode_table(self, table: pa.Table, *, batch_rows: int = 4096) -> Iterator[Records]:
        """The records of a table's rows, in their order, a batch at a time."""
        for batch in table.to_batches(max_chunksize=batch_rows):
            yield self.encode(batch)


def decode(serialized: pa.Array, schema: Any = None, *, sequence: bool = False) -> pa.RecordBatch:
    """Serialized Examples (an array of binary) as a batch of list columns, through tfx_bsl; for inspection.

    ``schema`` (a ``tensorflow_metadata`` Schema) says which features to decode, and their types; without it, all that
    occur.  ``sequence``: they are SequenceExamples; the columns of their feature lists are lists of lists.  An absent
    feature is null.  Raises SchemaError when bytes are no Example.
    """
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder
    from tfx_bsl.coders.sequence_example_coder import SequenceExamplesToRecordBatchDecoder

    text = [schema.SerializeToString()] if schema is not None else []
    messages = serialized.cast(pa.binary()).to_pylist()
    try:
        if not sequence:
            return ExamplesToRecordBatchDecoder(*text).DecodeBatch(messages)
        batch = SequenceExamplesToRecordBatchDecoder(SEQUENCE, *text).DecodeBatch(messages)
    except (RuntimeError, ValueError) as error:
        raise SchemaError(f"the bytes are not serialized Examples, or do not fit the schema: {error}") from error
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    steps = columns.pop(SEQUENCE, None)
    if steps is not None:
        columns |= dict(zip((field.name for field in steps.type), steps.flatten(), strict=True))
    return pa.RecordBatch.from_pydict(columns)


@dataclass(frozen=True)
class _Column:
    """What is the same for all batches of a column."""

    index: int
    name: str
    is_steps: bool  # one Feature for each element of a row's list
    is_list: bool  # each Feature holds a list
    kind: int
    entry: np.ndarray  # the beginning of its map entry, with lengths to be filled in, and _PADDING

    @classmethod
    def of(cls, index: int, field: pa.Field, *, is_steps: bool) -> _Column:
        kind, depth = field.type, 0
        while _is_list(kind):
            kind, depth = kind.value_type, depth + 1
        stored = _stored_as(kind)
        what = f"column {field.name!r} of type {field.type}"
        if stored not in _KINDS:
            raise SchemaError(f"{what} has no form as a feature; leave it out, or make it numbers, text or bytes first")
        if is_steps and not depth:
            raise SchemaError(f"{what} is no list, so it has no steps; leave it in the context")
        if depth > 1 + is_steps:
            raise SchemaError(f"{what} is nested too deep for a feature; flatten it, or name it in sequence")
        number, tag = _KINDS[stored]
        key = field.name.encode()
        entry = b"\x0a\0\x0a" + _varint(len(key)) + key + b"\x12\0" + tag + b"\0\x0a\0"
        return cls(index, field.name, is_steps, depth > is_steps, number, np.frombuffer(entry + _PADDING, np.uint8))

    def describe(self, column: pa.Array) -> tuple[tuple[int, ...], list[Any]]:
        """The fields of ``_COLUMN``, and what must live while they are used."""
        steps = lists = None
        leaf = column
        if self.is_steps:
            steps, leaf = _unnest(leaf)
            if self.is_list and leaf.null_count:
                _refuse(column, self.name, pc.is_null, reason=_NULL_INSIDE)
        if self.is_list:
            lists, leaf = _unnest(leaf)
        leaf = _store(leaf, column, self.name)
        rows = column if self.is_steps or self.is_list else leaf  # a valid index may mean a null of the dictionary
        data = leaf.buffers()[-1]
        is_binary = self.kind >= _BINARY
        width = 4 << (self.kind - _BINARY) if is_binary else leaf.type.bit_width // 8
        start = _address(leaf, 1) + leaf.offset * width
        fields = (
            self.entry.ctypes.data,
            len(self.entry) - len(_PADDING),
            _address(rows, 0) if rows.null_count else 0,
            rows.offset,
            0 if steps is None else steps.ctypes.data,
            0 if lists is None else lists.ctypes.data,
            _address(leaf, 2) if is_binary else start,
            start if is_binary else 0,
            0 if data is None else data.size,
            self.kind,
        )
        return fields, [steps, lists, leaf, rows]


def _check_names(names: list[str], sequence: frozenset[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise SchemaError(f"column {name!r} stands {count} times, and an Example holds a name once; rename one")
    for name in sorted(sequence.difference(names)):
        raise SchemaError(f"sequence names {name!r}, which is no column; there are {shorten(names, 200)}")


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    tests = types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view
    return any(test(kind) for test in tests)


def _stored_as(kind: pa.DataType) -> pa.DataType:
    """The type that the kernel reads for this one, or one that it does not read."""
    if pa.types.is_dictionary(kind):
        return _stored_as(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.large_binary()
    return _CASTS.get(kind, kind)


def _varint(value: int) -> bytes:
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _address(array: pa.Array, index: int) -> int:
    buffer = array.buffers()[index]
    return 0 if buffer is None else int(buffer.address)


def _unnest(array: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Where each list begins among the values, and the last one's end (int64, n + 1), and the values."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        return np.arange(len(array) + 1, dtype=np.int64) * size, values
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):  # in any order, and overlapping
        return np.concatenate([[0], np.cumsum(_lengths(array))]).astype(np.int64), array.flatten()
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64), array.values.slice(0, 0)
    width = np.int64 if pa.types.is_large_list(array.type) else np.int32
    offsets = np.frombuffer(array.buffers()[1], dtype=width)[array.offset : array.offset + len(array) + 1]
    first = int(offsets[0])
    return offsets.astype(np.int64) - first, array.values.slice(first, int(offsets[-1]) - first)


def _lengths(lists: pa.Array) -> np.ndarray:
    """Of each list; a null has length 0, as in ``flatten``."""
    return np.asarray(pc.list_value_length(lists).fill_null(0))


def _store(leaf: pa.Array, column: pa.Array, name: str) -> pa.Array:
    """The values of a column as the kernel reads them, after a look for what a feature cannot hold."""
    if pa.types.is_dictionary(leaf.type):
        leaf = leaf.dictionary_decode()
    stored = leaf if leaf.type in _KINDS else leaf.cast(_stored_as(leaf.type))
    if stored.null_count and _is_list(column.type):
        _refuse(column, name, pc.is_null, reason=_NULL_INSIDE)
    if leaf.type == pa.uint64() and (pc.max(leaf).as_py() or 0) > _INT64_MAX:
        _refuse(column, name, _exceeds_int64, reason="does not fit into an int64; make it text, or bytes")
    if leaf.type == pa.float64() and pc.any(pc.is_inf(stored)).as_py():
        _refuse(column, name, _exceeds_float32, reason="does not fit into a float32; scale it, or make it bytes")
    return stored


_NULL_INSIDE = "a null inside a list, which a feature cannot hold; drop it, or fill it in"


def _exceeds_int64(values: pa.Array) -> pa.Array:
    return pc.greater(values, pa.scalar(_INT64_MAX, pa.uint64()))


def _exceeds_float32(values: pa.Array) -> pa.Array:
    return pc.and_(pc.is_finite(values), pc.is_inf(values.cast(pa.float32())))


def _refuse(column: pa.Array, name: str, is_bad: Callable[[pa.Array], pa.Array], *, reason: str) -> None:
    """Raises SchemaError for the first bad value, if there is one: what stands under a null list does not count."""
    rows, values = np.arange(len(column)), column
    while _is_list(values.type):
        rows = np.repeat(rows, _lengths(values))
        values = values.flatten()
        if is_bad is pc.is_null and values.null_count:
            break
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    found = pc.index(is_bad(values), True).as_py()
    if found >= 0:
        value = shorten(values[found].as_py())
        raise SchemaError(f"column {name!r}, row {rows[found]} of the batch: {value}: {reason}")


def _difference(expected: pa.Schema, found: pa.Schema) -> str | None:
    """What the encoder minds; metadata and nullability are nothing to it."""
    for field in expected:
        if field.name not in found.names:
            return f"column {field.name!r} is not there"
        if found.field(field.name).type != field.type:
            return f"column {field.name!r} is {found.field(field.name).type}, not {field.type}"
    for name in found.names:
        if name not in expected.names:
            return f"column {name!r} is too much"
    return None if found.names == expected.names else f"the order of its columns is {shorten(found.names, 200)}"


def _explain_size(row: pa.RecordBatch, index: int) -> str:
    name = max(row.schema.names, key=lambda name: row.column(name).nbytes)
    return (
        f"row {index} of the batch makes an Example of more than 2^31 - 1 bytes, which protobuf does not read; its "
        f"largest column is {name!r} ({row.column(name).nbytes} bytes): store its parts in rows of their own"
    )
