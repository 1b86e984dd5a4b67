"""Columns inside columns: structs, and lists of structs, as the plain columns that features are made of.

A struct's field is a column of its own, absent where the struct is.  A list of structs is one list a field, all of the
same lengths.  Dictionaries become their values.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import shorten


def is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def leaves(name: str, column: pa.Array) -> Iterator[tuple[tuple[str, ...], pa.Array]]:
    """The path and values of each plain column inside a column: itself, when it holds no structs."""
    yield from _leaves((name,), plain(column))


def _leaves(path: tuple[str, ...], column: pa.Array) -> Iterator[tuple[tuple[str, ...], pa.Array]]:
    fields = _fields(column.type)
    if fields is None:
        yield path, column
        return
    for field in fields:
        yield from _leaves((*path, field.name), plain(_child(column, field.name)))


def find(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | None:
    """The plain column at a path; None: the batch has none there, or one of nulls alone on the way to it."""
    index = batch.schema.get_field_index(path[0])
    if index < 0:
        return None
    column = plain(batch.column(index))
    for step in path[1:]:
        fields = _fields(column.type)
        if fields is None or fields.get_field_index(step) < 0:
            return None
        column = plain(_child(column, step))
    return column


def plain(column: pa.Array) -> pa.Array:
    """The column with dictionaries decoded, and lists of any layout as ``list`` or ``large_list``."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(column))
    if is_list(kind) and not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return column.cast(pa.list_(kind.value_type))
    if is_list(kind) and pa.types.is_dictionary(kind.value_type):
        make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return column.cast(make(kind.value_type.value_type))
    return column


def shown(value: pa.Scalar) -> str:
    """A value for messages, shortened.  Not all that Arrow holds is a value of Python."""
    try:
        return shorten(value.as_py())
    except (ValueError, OverflowError):
        return shorten(value.cast(pa.int64()).as_py()) if pa.types.is_temporal(value.type) else str(value.type)


def _fields(kind: pa.DataType) -> pa.StructType | None:
    if is_list(kind):
        kind = kind.value_type
    return kind if pa.types.is_struct(kind) else None


def _child(column: pa.Array, name: str) -> pa.Array:
    if not is_list(column.type):
        return pc.struct_field(column, name)
    child = pc.struct_field(column.values, name)
    make = pa.large_list if pa.types.is_large_list(column.type) else pa.list_
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(make(child.type), len(column), buffers, column.null_count, column.offset, [child])
