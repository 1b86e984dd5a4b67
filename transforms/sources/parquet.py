"""Parquet files: columns with their types, cut between row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from transforms.errors import SourceError
from transforms.fingerprint import hash_bytes, read_chunks
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.slices import changed, cut_files, file_size, open_file, warn_empty
from transforms.sources.typed import chosen, no_rows, raw_batches, validated
from transforms.storage import arrow_input, is_remote

READ_ROWS, READ_BYTES = 65_536, 32 << 20  # decoded at once: many more a second than in small batches
BUFFER_BYTES = 1 << 20  # read ahead for each column


class ParquetSource:
    """See ``sources.Source``.  Slices count row groups; their fingerprint is of these groups' bytes and the schema.

    ``read`` hashes the bytes again once it has read them, to notice a file that has changed.
    """

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


def _slices(path: str, target_bytes: int) -> Iterator[FileSlice]:
    if file_size(path) == 0:
        warn_empty(path)
        return
    with _open(path) as (raw, file):
        metadata = file.metadata
        sizes = [end - start for start, end in (_byte_range(metadata, i) for i in range(metadata.num_row_groups))]
        begin, first_row = 0, 0
        while True:
            end, num_bytes = begin, 0
            while end < len(sizes) and (end == begin or num_bytes + sizes[end] <= target_bytes):
                num_bytes += sizes[end]
                end += 1
            yield FileSlice(path, begin, end, num_bytes, first_row, _fingerprint(raw, file, begin, end))
            first_row += sum(metadata.row_group(i).num_rows for i in range(begin, end))
            begin = end
            if begin == len(sizes):
                return


@contextlib.contextmanager
def _open(path: str) -> Iterator[tuple[BinaryIO, parquet.ParquetFile]]:
    with open_file(path) as raw:
        try:
            stored = arrow_input(path) if is_remote(path) else path
            with parquet.ParquetFile(stored, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
                yield raw, file
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{path}: cannot be read as Parquet: {error}; get it again from where it came from"
            ) from (error)


def _byte_range(metadata: parquet.FileMetaData, index: int) -> tuple[int, int]:
    """Where the bytes of a row group lie in the file."""
    group_data = metadata.row_group(index)
    starts, ends = [], []
    for i in range(group_data.num_columns):
        column = group_data.column(i)
        start = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset:
            start = min(start, column.dictionary_page_offset)
        starts.append(start)
        ends.append(start + column.total_compressed_size)
    return (min(starts), max(ends)) if starts else (0, 0)


def _fingerprint(raw: BinaryIO, file: parquet.ParquetFile, begin: int, end: int) -> str:
    def content() -> Iterator[bytes]:
        yield str(file.schema).partition("\n")[2].encode()  # without its address in memory
        yield file.schema_arrow.serialize().to_pybytes()
        for i in range(begin, end):
            yield str(file.metadata.row_group(i).num_rows).encode()
            start, stop = _byte_range(file.metadata, i)
            raw.seek(start)
            yield from read_chunks(raw, stop - start)

    return hash_bytes(content())


def _read(piece: FileSlice, columns: frozenset[str] | None) -> Iterator[RawBatch]:
    with _open(piece.path) as (raw, file):
        schema = file.schema_arrow
        names = chosen(piece.path, schema.names, columns)
        if piece.end > file.num_row_groups:
            raise changed(piece.path)
        if piece.first_row == 0:
            yield no_rows(piece.path, pa.schema([schema.field(name) for name in names]))
        batches = (batch for i in range(piece.start, piece.end) for batch in _batches(piece.path, file, i, names))
        yield from raw_batches(piece.path, batches, first_row=piece.first_row)
        if _fingerprint(raw, file, piece.start, piece.end) != piece.fingerprint:
            raise changed(piece.path)


def _batches(path: str, file: parquet.ParquetFile, row_group: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    """The batches of a row group, with the columns of these names in the file's order.

    Raises SourceError when they have not as many rows as the file's footer says.
    """
    about, rows = file.metadata.row_group(row_group), 0
    row_bytes = max(about.total_byte_size, 0) // max(about.num_rows, 1) + 1  # a damaged footer may say anything
    for batch in file.iter_batches(
        batch_size=min(READ_ROWS, READ_BYTES // row_bytes + 1),
        row_groups=[row_group],
        columns=names or file.schema_arrow.names[:1],
        use_threads=False,
    ):
        rows += batch.num_rows
        yield validated(batch.select(names) if names else batch)  # a name may stand for a field of a struct as well
    if rows != about.num_rows:
        raise SourceError(
            f"{path}: row group {row_group} has {rows} rows, and the footer says {about.num_rows}; get it again from "
            "where it came from"
        )
