"""Avro object container files, cut between blocks.

``fastavro`` reads them: blocks of any codec that it knows, and values with their logical types.  Types become Arrow's:
an enum is text, a union with null a column that may be missing, a union of numbers the widest of them; other unions and
recursive types have no form.  Source: https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from transforms.errors import SourceError, missing_extra, shorten
from transforms.fingerprint import hash_bytes, read_chunks
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.slices import SliceStream, cut_files, file_size, open_file, warn_empty
from transforms.sources.typed import BATCH_BYTES, MAX_ROWS, chosen, named, no_rows, raw_batches

_NUMBERS = ("int", "long", "float", "double")  # the widest last
_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


class AvroSource:
    """See ``sources.Source``.  Slices count bytes, of whole blocks; their fingerprint covers the header too."""

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        return cut_files(paths, _slices, target_bytes=target_bytes)

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        for piece in partition.slices:
            yield from _read(piece, columns)


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise missing_extra("fastavro", "avro", "Avro files") from error
    return fastavro


def _slices(path: str, target_bytes: int) -> Iterator[FileSlice]:
    if file_size(path) == 0:
        warn_empty(path)
        return
    with open_file(path) as raw, io.BufferedReader(raw) as file:
        header = _header(file, path)
        start = end = len(header)
        first_row = rows = 0
        cuts = []
        with named(path, "Avro"):
            file.seek(0)
            for block in _fastavro().block_reader(file):
                if block.num_records < 0:
                    raise SourceError(
                        f"{path}: damaged: the block at byte {block.offset} has {block.num_records} records"
                    )
                end, rows = block.offset + block.size, rows + block.num_records
                if end - start >= target_bytes:
                    cuts.append((start, end, first_row))
                    start, first_row, rows = end, first_row + rows, 0
        if end > start or not cuts:
            cuts.append((start, end, first_row))
        for begin, stop, first in cuts:
            file.seek(begin)
            content = hash_bytes(itertools.chain([header], read_chunks(file, stop - begin)))
            yield FileSlice(path, begin, stop, stop - begin, first, content)


def _header(file: Any, path: str) -> bytes:
    with named(path, "Avro"):
        _fastavro().reader(file)
        size = file.tell()
    file.seek(0)
    return bytes(file.read(size))


def _read(piece: FileSlice, columns: frozenset[str] | None) -> Iterator[RawBatch]:
    with open_file(piece.path) as raw, io.BufferedReader(raw) as file:
        header = _header(file, piece.path)
    with SliceStream(piece.path, start=piece.start, end=piece.end) as stored:
        stored.seed(header)
        try:
            with named(piece.path, "Avro"):
                yield from _batches(piece, header, io.BufferedReader(stored), columns)
        except SourceError:
            stored.check(piece.fingerprint)  # a file that changed says so
            raise
        stored.check(piece.fingerprint)


def _batches(
    piece: FileSlice, header: bytes, blocks: io.BufferedReader, columns: frozenset[str] | None
) -> Iterator[RawBatch]:
    stream = _Chained(header, blocks)
    found = _fastavro().block_reader(stream)
    records = _records(piece, found)
    schema = found.writer_schema
    kind = _arrow_type(schema, {}, ())
    if not pa.types.is_struct(kind):
        raise SourceError(f"{piece.path}: its values are {schema!r}, not records; a row must be a record")
    whole = pa.schema(list(kind))
    names = chosen(piece.path, whole.names, columns)
    wanted = pa.schema([whole.field(name) for name in names])
    if piece.first_row == 0:
        yield no_rows(piece.path, wanted)
    row = piece.first_row
    while rows := _take(records, stream):
        arrays = [_array([r[field.name] for r in rows], field, piece.path, row) for field in wanted]
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted) if arrays else _without_columns(len(rows))
        yield from raw_batches(piece.path, [batch], first_row=row)
        row += len(rows)


def _records(piece: FileSlice, blocks: Iterable[Any]) -> Iterator[Any]:
    """The records of the blocks, which have to hold as many as they say, and nothing besides."""
    for block in blocks:
        yield from block
        if block.bytes_.read(1):
            raise SourceError(
                f"{piece.path}: damaged: a block in the bytes {piece.start} to {piece.end} holds more than its "
                f"{block.num_records} records"
            )


def _take(records: Iterator[Any], stream: _Chained) -> list[Any]:
    """The next records, of which there are MAX_ROWS or, about, BATCH_BYTES at most."""
    rows: list[Any] = []
    end = stream.num_bytes + BATCH_BYTES
    while len(rows) < MAX_ROWS and stream.num_bytes < end:
        some = list(itertools.islice(records, 256))
        if not some:
            break
        rows += some
    return rows


def _array(values: list[Any], field: pa.Field, path: str, first_row: int) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SourceError(
            f"{path}, in the rows from {first_row + 1} on: column {field.name!r} cannot be taken as {field.type}: "
            f"{shorten(str(error), 200)}"
        ) from error


def _without_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"": pa.nulls(rows)}).select([])


class _Chained(io.RawIOBase):
    """The header, then the blocks."""

    def __init__(self, header: bytes, blocks: io.BufferedReader) -> None:
        self._header = io.BytesIO(header)
        self._blocks = blocks
        self.num_bytes = 0  # that were read

    def read(self, size: int = -1) -> bytes:
        found = self._header.read(size)
        if size < 0 or len(found) < size:
            found += self._blocks.read(size - len(found) if size >= 0 else -1)
        self.num_bytes += len(found)
        return found

    def tell(self) -> int:
        return self.num_bytes


def _arrow_type(schema: Any, named_types: dict[str, pa.DataType | None], path: tuple[str, ...]) -> pa.DataType:
    """The Arrow type of an Avro type.  Raises SourceError, which names the field, where it has none."""
    where = f"field {'.'.join(path)!r}" if path else "the records"
    if isinstance(schema, list):
        return _union(schema, named_types, path)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if named_types.get(schema) is None:
            raise SourceError(f"{where} is of the recursive type {schema!r}, which has no form as columns")
        return named_types[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("record", "error"):
        named_types[schema["name"]] = None
        found = pa.struct(
            [(f["name"], _arrow_type(f["type"], named_types, (*path, f["name"]))) for f in schema["fields"]]
        )
    elif kind == "enum":
        found = pa.string()
    elif logical == "decimal":
        found = (
            pa.decimal128(schema["precision"], schema.get("scale", 0))
            if schema["precision"] <= 38
            else (pa.decimal256(schema["precision"], schema.get("scale", 0)))
        )
    elif kind == "fixed":
        found = pa.binary(schema["size"])
    elif kind == "array":
        found = pa.list_(_arrow_type(schema["items"], named_types, path))
    elif kind == "map":
        found = pa.map_(pa.string(), _arrow_type(schema["values"], named_types, path))
    else:
        found = _LOGICAL.get(logical) or _arrow_type(kind, named_types, path)
    if "name" in schema:
        named_types[schema["name"]] = found
    return found


def _union(branches: list[Any], named_types: dict[str, pa.DataType | None], path: tuple[str, ...]) -> pa.DataType:
    some = [branch for branch in branches if branch != "null"]
    if len(some) > 1 and all(branch in _NUMBERS for branch in some):
        widest = max(some, key=_NUMBERS.index)
        return _PRIMITIVES["double" if widest == "float" and "long" in some else widest]
    if len(some) > 1:
        raise SourceError(
            f"field {'.'.join(path)!r} is a union of {shorten(some, 100)}; a column has values of one kind: leave the "
            "field out of the schema of the reader, or write it as fields of their own"
        )
    return _arrow_type(some[0], named_types, path) if some else pa.null()
