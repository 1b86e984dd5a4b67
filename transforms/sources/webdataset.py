"""WebDataset: tar files whose neighbouring members of one name, up to its first dot, are a sample, which is a row.

Columns: ``key``, the name that the members share; and one for each ending, such as ``jpg`` or ``seg.png``, with the
bytes as they are stored.  ``cls``, ``count``, ``id``, ``index`` and the like are integers, ``txt`` and the like text,
and ``json`` is nested, as the WebDataset library decodes them.  https://github.com/webdataset/webdataset

A tar file is cut between samples, a packed one is one slice.  ``tarfile`` takes a header that is damaged for the end of
the archive; here it is an error.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from transforms.errors import SourceError, shorten
from transforms.fingerprint import hash_bytes, read_chunks
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.compressed import TextStream, compression_of
from transforms.sources.jsonl import JsonParser
from transforms.sources.slices import LARGEST_VALUE, cut_files, file_size, open_file, warn_empty, whole_file
from transforms.sources.typed import BATCH_BYTES, MAX_ROWS, absent, named

INTEGERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
TEXTS = ("txt", "text", "transcript", "caption")
NESTED = ("json", "jsn")
META = re.compile(r"(^|/)__[^/]*__($|/)")  # what such archives tell about themselves
BUFFER_BYTES = 1 << 20


class WebDatasetSource:
    """See ``sources.Source``."""

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
            batches = _Batches(piece.path, columns, declared, on_bad_row)
            with TextStream(piece) as stream, named(piece.path, "tar"):
                last = stream.compression is not None or piece.end == file_size(piece.path)
                for row, sample in enumerate(_samples(_members(stream, marked=last)), start=piece.first_row):
                    yield from batches.add(row, sample)
            yield from batches.finish()


class _Sample(NamedTuple):
    """``start``: offset in bytes of the first member; ``fault``: why there is no row, if there is none."""

    start: int
    key: str
    parts: dict[str, bytes]
    fault: str | None


class _Header(tarfile.TarInfo):
    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> _Header:
        """Raises ReadError for a header that is damaged, which is not the end."""
        offset = tar.offset
        try:
            return super().fromtarfile(tar)
        except tarfile.HeaderError as error:
            kind = type(error).__name__
            if kind == "EOFHeaderError":
                tar.marked = True  # type: ignore[attr-defined]
            if kind in ("EOFHeaderError", "EmptyHeaderError"):
                raise
            raise tarfile.ReadError(f"the header at byte {offset}: {error}") from error


class _Tar(tarfile.TarFile):
    tarinfo = _Header
    members: list[tarfile.TarInfo]
    marked = False  # whether the zeros that end an archive were seen


def _slices(path: str, target_bytes: int) -> Iterator[FileSlice]:
    size = file_size(path)
    if size == 0:
        warn_empty(path)
        return
    if compression_of(path) is not None:
        yield whole_file(path)
        return
    cuts, rows = [0], [0]
    with named(path, "tar"), open_file(path) as file:
        for row, sample in enumerate(_samples(_members(file, marked=True, seekable=True))):
            if sample.parts and sample.start - cuts[-1] >= target_bytes:
                cuts.append(sample.start)
                rows.append(row)
        for start, end, row in zip(cuts, [*cuts[1:], size], rows, strict=True):
            file.seek(start)
            yield FileSlice(path, start, end, end - start, row, hash_bytes(read_chunks(file, end - start)))


class _Member(NamedTuple):
    """``start``: offset in bytes; ``fault``: why it is no part of a sample, if it is none."""

    start: int
    name: str
    content: bytes
    fault: str | None


def _members(stream: Any, *, marked: bool, seekable: bool = False) -> Iterator[_Member]:
    """The members of the archive; without folders and ``__meta__`` ones, without contents where one can seek.

    ``marked``: whether the zeros must come that end an archive.  Raises ReadError.
    """
    with _Tar.open(fileobj=stream, mode="r:" if seekable else "r|", bufsize=BUFFER_BYTES) as tar:
        while (member := tar.next()) is not None:
            tar.members = []  # which would grow
            if member.isdir() or META.search(member.name):
                continue
            fault = _fault(member)
            content = b""
            if fault is None and not seekable:
                file = tar.extractfile(member)
                content = file.read() if file is not None else b""
            yield _Member(member.offset, member.name, content, fault)
        if marked and not tar.marked:
            raise tarfile.ReadError("the zeros that end an archive are missing, so it was cut short")
        if seekable:
            stream.seek(tar.offset)
        rest = stream if seekable else tar.fileobj
        while chunk := rest.read(BUFFER_BYTES):
            if chunk.strip(b"\0"):
                raise tarfile.ReadError("there is more behind the zeros that end it; is it two archives in one file?")


def _fault(member: tarfile.TarInfo) -> str | None:
    if not member.isreg():
        return "is a link or a device, and no file"
    if member.issparse():
        return "is a sparse file; pack it again without --sparse"
    if member.size > LARGEST_VALUE:
        return f"has {member.size} bytes, and one value holds {LARGEST_VALUE} at most"
    return None


def _samples(members: Iterator[_Member]) -> Iterator[_Sample]:
    """Neighbours with one name; a member that cannot be part of a sample comes after the one around it."""
    sample: _Sample | None = None
    strays: list[_Sample] = []
    for member in members:
        folder, slash, base = member.name.rpartition("/")
        stem, _, ending = base.partition(".")
        if not (stem and ending and _is_text(member.name)):
            fault = member.fault or "its name has no ending, or is no text, so it belongs to no sample"
            strays.append(_Sample(member.start, member.name, {}, fault))
            continue
        key, ending = folder + slash + stem, ending.lower()
        if sample is None or sample.key != key:
            if sample is not None:
                yield sample
            yield from strays
            strays.clear()
            sample = _Sample(member.start, key, {}, None)
        wrong = member.fault or (f"is there twice in {shorten(key)}" if ending in sample.parts else None)
        sample.parts[ending] = member.content
        if wrong is not None and sample.fault is None:
            sample = sample._replace(fault=f"the member {shorten(member.name)} {wrong}")
    if sample is not None:
        yield sample
    yield from strays


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass
class _Batches:
    """Samples into batches of bounded size."""

    path: str
    columns: frozenset[str] | None
    declared: Mapping[str, str] | None
    on_bad_row: Callable[[BadRow], None]
    samples: list[tuple[int, _Sample]] = field(default_factory=list)
    num_bytes: int = 0

    def add(self, row: int, sample: _Sample) -> Iterator[RawBatch]:
        if sample.fault is not None:
            self.on_bad_row(BadRow(self.path, row, None, shorten(sample.key), sample.fault))
            return
        self.samples.append((row, sample))
        self.num_bytes += sum(map(len, sample.parts.values()))
        if self.num_bytes >= BATCH_BYTES or len(self.samples) == MAX_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[RawBatch]:
        """The batch of the samples that wait, if there are any."""
        samples, self.samples, self.num_bytes = self.samples, [], 0
        if not samples:
            return
        rows = np.array([row for row, _ in samples], np.int64)
        columns: dict[str, pa.Array] = {"key": pa.array([sample.key for _, sample in samples], pa.string())}
        bad = np.zeros(len(rows), bool)
        for ending in sorted({ending for _, sample in samples for ending in sample.parts}):
            if self.columns is None or ending in self.columns:
                parts = [sample.parts.get(ending) for _, sample in samples]
                columns[ending] = self._column(ending, parts, rows, bad)
        if self.columns is not None:
            columns = {name: column for name, column in columns.items() if name in self.columns}
        for name in absent(columns, self.columns, self.declared):
            columns[name] = pa.nulls(len(rows))
        batch = pa.RecordBatch.from_pydict(columns or {"key": rows}).filter(pa.array(~bad))
        yield RawBatch(batch if columns else batch.select([]), self.path, rows[~bad])

    def _column(self, ending: str, parts: Sequence[bytes | None], rows: np.ndarray, bad: np.ndarray) -> pa.Array:
        """The parts with the type of their ending; ``bad`` gets the rows that have none."""
        if ending == "key":
            raise SourceError(
                f"{self.path}: has members that end in .key, and the column key has the names; rename them"
            )
        kind = ending.rpartition(".")[2]
        if kind in NESTED:
            return self._nested(ending, parts, rows, bad)
        if kind not in INTEGERS and kind not in TEXTS:
            return pa.array(parts, pa.binary())
        values: list[Any] = []
        for index, part in enumerate(parts):
            try:
                value = None if part is None else part.decode()
                values.append(int64(value) if value is not None and kind in INTEGERS else value)
            except ValueError:
                values.append(None)
                what = "64-bit integer" if kind in INTEGERS else "UTF-8 text"
                self._report(rows, bad, index, ending, part, f"is no {what}")
        return pa.array(values, pa.int64() if kind in INTEGERS else pa.string())

    def _nested(self, ending: str, parts: Sequence[bytes | None], rows: np.ndarray, bad: np.ndarray) -> pa.Array:
        there = np.array([index for index, part in enumerate(parts) if part is not None], np.int64)
        lines = b"".join(b" ".join((parts[index] or b"").splitlines()) + b"\n" for index in there)
        declared = None
        if self.declared is not None:
            prefix = f"{ending}."
            declared = {name.removeprefix(prefix): k for name, k in self.declared.items() if name.startswith(prefix)}

        def report(row: BadRow) -> None:
            index = int(np.searchsorted(rows, row.row))
            bad[index] = True
            column = ".".join(filter(None, (ending, row.column)))
            self.on_bad_row(replace(row, column=column))

        for index in there[[not (parts[index] or b"").strip() for index in there]]:
            self._report(rows, bad, index, ending, b"", "is not JSON")
        found = list(JsonParser(self.path, None, declared, report).parse(lines, rows[there])) if lines.strip() else []
        if not found:
            return pa.nulls(len(rows))
        values = pa.concat_arrays([pa.array(batch.data.to_struct_array()) for batch in found])
        at = np.full(len(rows), -1)
        at[np.searchsorted(rows, np.concatenate([batch.rows for batch in found]))] = np.arange(len(values))
        return values.take(pa.array(at, mask=at < 0))

    def _report(
        self, rows: np.ndarray, bad: np.ndarray, index: int, column: str, part: bytes | None, reason: str
    ) -> None:
        if not bad[index]:
            bad[index] = True
            self.on_bad_row(BadRow(self.path, int(rows[index]), column, shorten(part), reason))


def int64(text: str) -> int:
    """Raises ValueError for what is no integer of 64 bits."""
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError
    return value
