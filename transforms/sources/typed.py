"""What the sources of typed columns share: names that must be different, and batches of bounded size.

A file whose units (stripes, record batches) do not tell where their bytes are is hashed as a whole: a change anywhere
makes all of its slices new.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from transforms.errors import RecordmillError, SourceError, shorten
from transforms.fingerprint import digest, hash_bytes, read_chunks
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.slices import changed, cut_files, file_size, open_file, warn_empty

MAX_ROWS, BATCH_BYTES = 16_384, 8 << 20  # of a batch


def chosen(path: str, names: Sequence[str], columns: frozenset[str] | None) -> list[str]:
    """Those of the file's columns that are wanted.  Raises SourceError when two of all have one name."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise SourceError(
                f"{path}: has the column {shorten(name)} twice, as columns {names.index(name) + 1} and {i + 1}; rename "
                "one of them"
            )
    return [name for name in names if columns is None or name in columns]


def absent(names: Iterable[str], columns: frozenset[str] | None, declared: Mapping[str, str] | None) -> list[str]:
    """The columns that are wanted, or declared, and that the batch does not have, in a format whose rows may lack any.

    A dot may be part of a column's name, or lead to a field of it.
    """
    there = frozenset(names)
    if columns is not None:
        return sorted(name for name in columns - there if name.split(".")[0] not in there)
    either = ({name, name.split(".")[0]} for name in declared or ())
    return sorted({name for both in either if not both & there for name in both})


def raw_batches(path: str, batches: Iterable[pa.RecordBatch], *, first_row: int) -> Iterator[RawBatch]:
    """The batches of rows that follow each other from ``first_row`` on, in pieces of bounded size."""
    row = first_row
    for batch in batches:
        rows = min(MAX_ROWS, max(1, BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
        for at in range(0, batch.num_rows, rows):
            piece = batch.slice(at, rows)
            yield RawBatch(piece, path, np.arange(row, row + piece.num_rows, dtype=np.int64))
            row += piece.num_rows


def no_rows(path: str, schema: pa.Schema) -> RawBatch:
    """What tells of the columns even when there are no rows."""
    return RawBatch(pa.RecordBatch.from_pylist([], schema=schema), path, np.zeros(0, np.int64))


@contextlib.contextmanager
def named(path: str, format: str) -> Iterator[None]:
    """SourceError, which names the file, for whatever a library has to say of a damaged one."""
    try:
        yield
    except RecordmillError:
        raise
    except Exception as error:
        reason = shorten(str(error) or type(error).__name__, 200)
        raise SourceError(
            f"{path}: cannot be read as {format}: {reason}; get it again from where it came from"
        ) from error


class Unit(NamedTuple):
    """A part of a file that can be read alone."""

    rows: int
    num_bytes: int


class UnitSource(ABC):
    """A source (see ``sources.Source``) whose slices count units: record batches of Arrow files, stripes of ORC."""

    format = ""

    @abstractmethod
    def units(self, path: str) -> list[Unit]:
        """The units of the file, in order."""

    @abstractmethod
    def schema(self, path: str) -> pa.Schema: ...

    @abstractmethod
    def batches(self, path: str, start: int, end: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The columns of these units."""

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        return cut_files(paths, self._slices, target_bytes=target_bytes)

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        for piece in partition.slices:
            with named(piece.path, self.format):
                yield from self._read(piece, columns)
            if _fingerprint(piece.path, piece.start, piece.end) != piece.fingerprint:
                raise changed(piece.path)

    def _slices(self, path: str, target_bytes: int) -> Iterator[FileSlice]:
        if file_size(path) == 0:
            warn_empty(path)
            return
        with named(path, self.format):
            units = self.units(path)
        content = _content(path)
        begin = first_row = 0
        while True:
            end, num_bytes = begin, 0
            while end < len(units) and (end == begin or num_bytes + units[end].num_bytes <= target_bytes):
                num_bytes += units[end].num_bytes
                end += 1
            yield FileSlice(path, begin, end, num_bytes, first_row, digest([content, begin, end]))
            first_row += sum(unit.rows for unit in units[begin:end])
            begin = end
            if begin == len(units):
                return

    def _read(self, piece: FileSlice, columns: frozenset[str] | None) -> Iterator[RawBatch]:
        schema = self.schema(piece.path)
        names = chosen(piece.path, schema.names, columns)
        if piece.first_row == 0:
            yield no_rows(piece.path, pa.schema([schema.field(name) for name in names]))
        batches = self.batches(piece.path, piece.start, piece.end, names or schema.names[:1])
        kept = (batch if names else batch.select([]) for batch in map(validated, batches))
        yield from raw_batches(piece.path, kept, first_row=piece.first_row)


def validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, whose offsets and text are right: a reader without checksums believes what a damaged file says.

    Raises pyarrow.ArrowInvalid.
    """
    batch.validate(full=True)
    return batch


def _content(path: str) -> str:
    with open_file(path) as file:
        return hash_bytes(read_chunks(file))


def _fingerprint(path: str, start: int, end: int) -> str:
    return digest([_content(path), start, end])
