"""TFRecord files of Examples or SequenceExamples, whoever wrote them: data to shard or to compress anew.

Compression is seen from the content.  Our own files are cut between their blocks, plain ones between records; others
are one slice.  A feature is a list column, of fixed size in batches whose rows all have so many values; the feature
lists of SequenceExamples are columns of lists of lists.  ``tfx_bsl`` decodes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from transforms.compression import decompress_stream, sniff, walk
from transforms.errors import CorruptError, SchemaError, SourceError
from transforms.example import decode
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.nested import is_list
from transforms.sources.slices import SliceStream, cut_files, file_size, open_file, warn_empty, whole_file
from transforms.sources.typed import BATCH_BYTES, MAX_ROWS, raw_batches
from transforms.tfrecord import Records, scan_stream


class TFRecordSource:
    """See ``sources.Source``.  ``sequence``: the records are SequenceExamples."""

    def __init__(self, *, sequence: bool = False) -> None:
        self._sequence = sequence

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
            row = piece.first_row
            for payloads in _payloads(piece):
                batch = self._decoded(payloads, piece.path, row, on_bad_row)
                yield from (_kept(found, columns) for found in batch)
                row += len(payloads)

    def _decoded(
        self, payloads: list[bytes], path: str, row: int, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[RawBatch]:
        rows = np.arange(row, row + len(payloads), dtype=np.int64)
        try:
            batch = decode(pa.array(payloads, pa.binary()), sequence=self._sequence)
        except SchemaError:
            good = self._good(payloads)
            what = "SequenceExample" if self._sequence else "Example"
            for i in np.flatnonzero(~good).tolist():
                on_bad_row(BadRow(path, row + i, None, None, f"the record is no serialized {what}"))
            payloads, rows = [p for p, keep in zip(payloads, good.tolist(), strict=True) if keep], rows[good]
            try:
                batch = decode(pa.array(payloads, pa.binary()), sequence=self._sequence)
            except SchemaError as error:
                where = f"{path}, in the records from {row + 1} on"
                raise SourceError(
                    f"{where}: a feature holds values of two kinds ({error}); make them one kind"
                ) from error
        for found in raw_batches(path, [_fixed(batch)], first_row=0):
            yield RawBatch(found.data, path, rows[found.rows])

    def _good(self, payloads: list[bytes]) -> np.ndarray:
        """Which of the records can be decoded by themselves."""

        def is_good(payload: bytes) -> bool:
            with contextlib.suppress(SchemaError):
                decode(pa.array([payload], pa.binary()), sequence=self._sequence)
                return True
            return False

        return np.array([is_good(payload) for payload in payloads], bool)


def _kept(raw: RawBatch, columns: frozenset[str] | None) -> RawBatch:
    if columns is None:
        return raw
    return RawBatch(raw.data.select([name for name in raw.data.schema.names if name in columns]), raw.path, raw.rows)


def _fixed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Lists that all have as many values, and at least one, as lists of a fixed size; some may be missing."""
    arrays = []
    for column in batch.columns:
        if is_list(column.type) and not is_list(column.type.value_type):
            sizes = pc.min_max(column.value_lengths())
            least, most = sizes["min"].as_py(), sizes["max"].as_py()
            if least is not None and least == most > 0:
                column = column.cast(pa.list_(column.type.value_type, most))
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _slices(path: str, target_bytes: int) -> Iterator[FileSlice]:
    if file_size(path) == 0:
        warn_empty(path)
        return
    cuts = _cuts(path)
    if cuts is None:
        yield whole_file(path)
        return
    with open_file(path) as file:
        start = end = first_row = rows = 0
        hashed = xxhash.xxh3_128()
        for num_bytes, records in cuts:
            hashed.update(file.read(num_bytes))
            end, rows = end + num_bytes, rows + records
            if end - start >= target_bytes:
                yield FileSlice(path, start, end, end - start, first_row, hashed.hexdigest(), rows)
                start, first_row, rows, hashed = end, first_row + rows, 0, xxhash.xxh3_128()
        if end > start:
            yield FileSlice(path, start, end, end - start, first_row, hashed.hexdigest(), rows)


def _cuts(path: str) -> Iterator[tuple[int, int]] | None:
    """Sizes and numbers of records of the parts that the file can be cut into; None: it cannot be cut."""
    with open_file(path) as file:
        kind = sniff(file.read(16))
        if kind == "gzip":
            try:
                return iter([(block.num_bytes, block.num_records) for block in walk(file, name=path)])
            except CorruptError:  # another writer's, or damaged: reading it says so
                return None
    return _records(path) if kind == "none" else None


def _records(path: str) -> Iterator[tuple[int, int]]:
    with open_file(path) as file:
        for records in scan_stream(decompress_stream(file, name=path), name=path):
            yield records.data.nbytes, len(records)


def _payloads(piece: FileSlice) -> Iterator[list[bytes]]:
    """The serialized records of the slice, MAX_ROWS and about BATCH_BYTES at a time.

    Raises SourceError, which names record and offset, where the file is damaged; a file that changed says so.
    """
    rows = 0
    with SliceStream(piece.path, start=piece.start, end=piece.end) as stored:
        try:
            for records in scan_stream(decompress_stream(stored, name=piece.path), name=piece.path):
                rows += len(records)
                yield from _in_parts(records)
        except CorruptError as error:
            stored.check(piece.fingerprint)
            within = f" (of the part from byte {piece.start} on)" if piece.start else ""
            raise SourceError(f"{error}{within}") from error
        stored.check(piece.fingerprint)
    if piece.num_rows not in (None, rows):
        raise SourceError(
            f"{piece.path}: the bytes {piece.start} to {piece.end} hold {rows} records, and their index says "
            f"{piece.num_rows}: the file is damaged; get it again from where it came from"
        )


def _in_parts(records: Records) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for i in range(len(records)):
        part.append(bytes(records.payload(i)))
        size += len(part[-1])
        if len(part) == MAX_ROWS or size >= BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
