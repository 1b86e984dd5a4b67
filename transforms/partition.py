"""The descriptors that travel through Beam: what to read, what was read, what was written.

They are small, immutable and made of plain values; rows never travel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from transforms.fingerprint import digest

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True)
class FileSlice:
    """A part of one file that can be read on its own.

    ``start`` and ``end`` count what the source splits by: bytes for text (of the file as stored), row groups for
    Parquet.  A file that cannot be split (a compressed one) is one slice.
    """

    path: str
    start: int
    end: int
    num_bytes: int  # raw bytes to read, for balance and rates
    first_row: int  # rows of the file before this slice
    fingerprint: str  # hash of the slice's content and of what else of the file it needs (header, footer)
    num_rows: int | None = None  # where the file says so: what is read is held against it


@dataclass(frozen=True)
class DropKeys:
    """Keys whose rows are left out of a partition; ``path``: where they are written (see ``drop.write_keys``)."""

    digest: str
    columns: tuple[str, ...]
    path: str = field(compare=False)


@dataclass(frozen=True)
class Partition:
    """The unit of work and of the cache: neighbouring slices, read by one task.

    ``place``: where in the source it begins, in words that no machine's folders and no row's content change.
    ``drop``: the keys to leave out, those that it has and no others.
    """

    slices: tuple[FileSlice, ...]
    span: str = ""
    place: str = ""
    drop: DropKeys | None = None

    @property
    def num_bytes(self) -> int:
        return sum(s.num_bytes for s in self.slices)

    @property
    def fingerprint(self) -> str:
        """Hash of the content that is read: a file that was renamed or touched keeps it."""
        content = [s.fingerprint for s in self.slices]
        return digest([content, self.drop.digest] if self.drop else content)

    @property
    def name(self) -> str:
        """For people: ``flights-01.csv.gz`` or ``a.csv … z.csv (26 files)``."""
        paths = list(dict.fromkeys(s.path for s in self.slices))
        if not paths:
            return "no files"
        if len(paths) > 1:
            return f"{paths[0]} … {paths[-1]} ({len(paths)} files)"
        first, last = self.slices[0], self.slices[-1]
        return f"{paths[0]} [{first.start}:{last.end}]" if (first.start or first.first_row) else paths[0]


@dataclass(frozen=True)
class RawBatch:
    """Rows of one file as the source holds them, before any schema.

    ``rows`` gives each row's ordinal in its file, from 0 and without a header (int64), for error messages.
    ``typed``: the source's columns have types; otherwise they are text, whose values say what they are (CSV).
    """

    data: pa.RecordBatch
    path: str
    rows: np.ndarray
    typed: bool = True


@dataclass(frozen=True)
class BadRowLimit:
    """How many rows may be bad (``max_bad_rows``): a number, or a fraction of all rows that were read."""

    number: int = 0
    fraction: float | None = None

    def allows(self, bad: int, *, read: int | None = None) -> bool:
        """Whether so many may be bad; ``read`` is None for a part of the rows, of which no fraction is known."""
        if self.fraction is not None:
            return read is None or bad <= self.fraction * read
        return bad <= self.number

    def __str__(self) -> str:
        if self.fraction is not None:
            return f"max_bad_rows allows {100 * self.fraction:g}% of the rows"
        return f"max_bad_rows allows {self.number}" if self.number else "none is allowed"


@dataclass(frozen=True)
class Place:
    """Where a row begins in a text file: its line, from 1, and the offset in bytes of the text, unpacked."""

    line: int
    offset: int


@dataclass(frozen=True)
class BadRow:
    """A row that cannot become an Example, and why.  ``row`` counts from 0 in the file, without a header."""

    path: str
    row: int
    column: str | None
    value: str | None  # shortened
    reason: str

    def __str__(self) -> str:
        where = f"{self.path}, row {self.row + 1}" + (f", column {self.column!r}" if self.column else "")
        return f"{where}: {self.reason}" + (f": {self.value}" if self.value is not None else "")


@dataclass(frozen=True)
class Block:
    """A run of whole records that was compressed as one piece."""

    split: str
    offset: int  # of its first byte in the block file
    num_bytes: int  # as stored
    raw_bytes: int  # framed records before compression
    num_records: int
    crc32c: int  # of the stored bytes
    checksum: int = field(default=0)  # of the raw bytes, as the container wants it (crc32 or adler32), else 0


def redacted(rows: Iterable[BadRow], columns: Collection[str]) -> list[BadRow]:
    """The rows without the values of the columns; one that is bad as a whole may show any column, so it shows none."""
    return [
        replace(row, value=None) if columns and (row.column is None or row.column in columns) else row for row in rows
    ]
