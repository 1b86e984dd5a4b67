"""Text: a row for each line, or for each file.

Lines end with LF or CRLF; the column ``text`` has them without their ends, empty ones too.  With ``whole_files`` the
columns are ``file``, its name without folders, and ``content``, its bytes as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transforms.errors import shorten
from transforms.partition import BadRow, FileSlice, Partition, Place, RawBatch
from transforms.sources.compressed import TextStream
from transforms.sources.lines import cut_lines, line_blocks, locate_lines
from transforms.sources.slices import changed, cut_files, hash_file, read_whole, whole_file
from transforms.sources.typed import no_rows, raw_batches

LINES = pa.schema([("text", pa.string())])
FILES = pa.schema([("file", pa.string()), ("content", pa.binary())])


class TextSource:
    """See ``sources.Source``.  Slices of plain files count bytes; a packed file, or one in another encoding, is one."""

    def __init__(self, *, whole_files: bool = False, encoding: str = "utf-8") -> None:
        self._whole_files = whole_files
        self._encoding = encoding

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        def cut(path: str, target: int) -> Iterator[FileSlice]:
            if self._whole_files:
                yield whole_file(path, named=(_name(path),))
            elif self._encoding != "utf-8":
                yield whole_file(path)
            else:
                yield from cut_lines(path, target)

        return cut_files(paths, cut, target_bytes=target_bytes)

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        for piece in partition.slices:
            yield from self._read_file(piece) if self._whole_files else self._read_lines(piece, on_bad_row)

    def locate(self, path: str, rows: Sequence[int]) -> list[Place]:
        if self._whole_files:
            return [Place(1, 0) for _ in rows]
        return locate_lines(path, rows, encoding=self._encoding)

    def _read_lines(self, piece: FileSlice, on_bad_row: Callable[[BadRow], None]) -> Iterator[RawBatch]:
        row = piece.first_row
        if row == 0:
            yield no_rows(piece.path, LINES)
        with TextStream(piece, encoding=self._encoding) as stream:
            for block in line_blocks(stream, skip_bom=piece.start == 0):
                lines = block.removesuffix(b"\n").split(b"\n")
                found = pa.array([line.removesuffix(b"\r") for line in lines], pa.binary())
                yield from self._lines(found, piece.path, row, on_bad_row)
                row += len(lines)

    def _lines(self, found: pa.Array, path: str, row: int, on_bad_row: Callable[[BadRow], None]) -> Iterator[RawBatch]:
        rows = np.arange(row, row + len(found), dtype=np.int64)
        try:
            text = found.cast(pa.string())
        except pa.ArrowInvalid:
            good = np.array([_is_text(line) for line in found.to_pylist()])
            for i in np.flatnonzero(~good).tolist():
                reason = "is not UTF-8 text; set source.encoding, or convert the file"
                on_bad_row(BadRow(path, row + i, "text", shorten(found[i].as_py()), reason))
            text, rows = found.filter(pa.array(good)).cast(pa.string()), rows[good]
        for batch in raw_batches(path, [pa.RecordBatch.from_arrays([text], schema=LINES)], first_row=0):
            yield RawBatch(batch.data, path, rows[batch.rows])

    def _read_file(self, piece: FileSlice) -> Iterator[RawBatch]:
        content = read_whole(piece.path, piece.num_bytes)
        name = _name(piece.path)
        if hash_file([content], named=(name,)) != piece.fingerprint:
            raise changed(piece.path)
        batch = pa.RecordBatch.from_pydict({"file": [name], "content": [content]}, schema=FILES)
        yield RawBatch(batch, piece.path, np.zeros(1, np.int64))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
