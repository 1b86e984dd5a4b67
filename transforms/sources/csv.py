"""CSV files.  Every cell stays the text that it is: types are a matter of the schema.

Only an unquoted cell can be missing: one that is empty, or that ``null_values`` names.  Quotes, line ends (LF, CRLF,
CR) and blank lines are those of Python's ``csv`` module; a quoted cell may hold line ends and delimiters, and files are
cut at the ends of records only.  A line that begins with ``comment`` is left out.  Text in another ``encoding`` than
UTF-8 becomes UTF-8 as it is read; such a file is one slice.
"""

from __future__ import annotations

import csv
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import xxhash
from pyarrow import csv as arrow_csv

from transforms.errors import SourceError, shorten
from transforms.fingerprint import CHUNK_BYTES, hash_bytes, read_chunks
from transforms.partition import BadRow, FileSlice, Partition, Place, RawBatch
from transforms.sources.compressed import TextStream, sniff
from transforms.sources.csv_text import Chunk, Dialect, Fill, cut_records, scan
from transforms.sources.slices import changed, cut_files, file_size, fill, open_file, warn_empty, whole_file
from transforms.storage import Input

log = logging.getLogger("recordmill")

_MAX_BYTES = (1 << 31) - (1 << 20)  # Arrow's parser counts in 32 bits
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Header:
    """``names``: of the columns, in order.  ``content``: the bytes of the file before the first row."""

    names: tuple[str, ...]
    content: bytes


class CsvSource:
    """See ``sources.Source``.  Slices of plain files count bytes; a packed file is one slice."""

    def __init__(
        self,
        *,
        delimiter: str = ",",
        quote: str = '"',
        escape: str = "",
        comment: str = "",
        encoding: str = "utf-8",
        null_values: Sequence[str] = (),
        columns: Sequence[str] | None = None,
    ) -> None:
        self._dialect = Dialect(delimiter, quote, escape, comment)
        self._encoding = encoding
        self._null_values = ["", *(value for value in null_values if value)]
        self._columns = tuple(columns) if columns is not None else None
        self._warned = False

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
            yield from self._read_slice(piece, columns, on_bad_row)

    def locate(self, path: str, rows: Sequence[int]) -> list[Place]:
        places: dict[int, Place] = {}
        wanted, row, line, offset = set(rows), 0, 1, 0
        with TextStream(whole_file(path), encoding=self._encoding) as stream:
            header, chunks = self._begin(stream.fill, path)
            text = header.content if header else b""
            line, offset = line + text.count(b"\n"), offset + len(text)
            for chunk in chunks:
                rest = chunk.text
                while rest and wanted.intersection(range(row, row + chunk.rows)):
                    blank = self._blank(bytes(rest[:CHUNK_BYTES]))
                    line, offset, rest = line + bytes(rest[:blank]).count(b"\n"), offset + blank, rest[blank:]
                    if row in wanted:
                        places[row] = Place(line, offset)
                        wanted.discard(row)
                    end, count, _ = scan(rest, self._dialect, max_rows=1)
                    end = end if count else len(rest)
                    line, offset, rest = line + bytes(rest[:end]).count(b"\n"), offset + end, rest[end:]
                    row += 1
                    chunk = replace(chunk, rows=chunk.rows - 1)
                line, offset, row = line + bytes(rest).count(b"\n"), offset + len(rest), row + chunk.rows
                if not wanted:
                    break
        return [places.get(row, Place(line, offset)) for row in rows]

    def _blank(self, text: bytes) -> int:
        """How many bytes of blank lines and comments the text begins with."""
        rest = text.lstrip(b"\r\n")
        while self._dialect.comment and rest.startswith(self._dialect.comment.encode()):
            rest = rest[len(rest.splitlines()[0]) :].lstrip(b"\r\n")
        return len(text) - len(rest)

    def _slices(self, path: str, target_bytes: int) -> Iterator[FileSlice]:
        with open_file(path) as file:
            if self._encoding != "utf-8" or sniff(file):
                yield whole_file(path)
                return
            header, _ = self._begin(functools.partial(fill, file.readinto), path)
            if header is None:
                warn_empty(path)
                return
            yield from self._cut(path, file, header, target_bytes)

    def _cut(self, path: str, file: Input, header: Header, target_bytes: int) -> Iterator[FileSlice]:
        start = position = file.seek(len(header.content))
        size = file_size(path) - start
        if size <= target_bytes:  # no place to cut it is needed
            content = hash_bytes(itertools.chain([header.content], read_chunks(file)))
            yield FileSlice(path, start, file.tell(), file.tell() - start, 0, content)
            return
        hashed, first_row, rows, state = xxhash.xxh3_128(header.content), 0, 0, 0
        while chunk := file.read(CHUNK_BYTES):
            rest = memoryview(chunk)
            while rest:
                stop_at = max(start + target_bytes - position, 1)
                end, count, state = scan(rest, self._dialect, state=state, stop_at=stop_at)
                used = end if end >= stop_at else len(rest)
                hashed.update(rest[:used])
                rest, position, rows = rest[used:], position + used, rows + count
                if end >= stop_at:
                    yield FileSlice(path, start, position, position - start, first_row, hashed.hexdigest())
                    start, first_row, rows = position, first_row + rows, 0
                    hashed = xxhash.xxh3_128(header.content)
        if position > start or first_row == 0:
            yield FileSlice(path, start, position, position - start, first_row, hashed.hexdigest())

    def _begin(self, fill: Fill, path: str) -> tuple[Header | None, Iterator[Chunk]]:
        """The header (None: there is no text but blank lines) and what follows it."""
        first_bytes = memoryview(bytearray(len(_BOM)))
        head = bytes(first_bytes[: fill(first_bytes)])
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise _not_utf8(path, "it begins like UTF-16", "utf-16")
        bom = head if head == _BOM else b""
        chunks = cut_records(fill, head[len(bom) :], self._dialect, header=self._columns is None)
        if self._columns is not None:
            return Header(self._columns, bom), chunks
        first = next(chunks, None)
        if first is not None and first.unclosed:
            raise SourceError(f"{path}: a quote begins a cell of the header and is never closed; close it")
        if first is None or not first.rows:
            return None, chunks
        record = bytes(first.text)
        return Header(self._parse_names(path, record), bom + record), chunks

    def _parse_names(self, path: str, record: bytes) -> tuple[str, ...]:
        try:
            text = record.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, f"the header holds {shorten(record[error.start : error.end])}", "latin-1") from error
        try:
            names = next(self._dialect.rows(text))
        except csv.Error as error:
            raise SourceError(f"{path}: the header cannot be read ({error}); see whether a quote is missing") from error
        for i, name in enumerate(names):
            if name and name in names[:i]:
                raise SourceError(
                    f"{path}: the header names {shorten(name)} twice, as columns {names.index(name) + 1} and {i + 1}; "
                    "rename one of them"
                )
        if "" in names and not self._warned:
            self._warned = True  # other files will have it too
            where = f"column {names.index('') + 1}"
            log.warning("%s: %s has no name in the header: it is left out; give it one to keep it", path, where)
        return tuple(names)

    def _read_slice(
        self, piece: FileSlice, columns: frozenset[str] | None, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[RawBatch]:
        with TextStream(piece, encoding=self._encoding) as stream:
            if stream.compression or self._encoding != "utf-8":
                header, chunks = self._begin(stream.fill, piece.path)
                if header is None:
                    warn_empty(piece.path)
                    return
            else:
                header = self._plain_header(piece.path)
                stream.seed(header.content)
                chunks = cut_records(stream.fill, b"", self._dialect, header=False)
            parser = _Parser(piece.path, header.names, columns, self._dialect, self._null_values, on_bad_row)
            row = piece.first_row
            if row == 0:
                yield parser.empty()  # the columns are known even when there are no rows
            for chunk in chunks:
                if chunk.rows:
                    yield parser.parse(chunk, row)
                row += chunk.rows
                if chunk.unclosed:
                    text = shorten(bytes(chunk.unclosed[:200]).decode("utf-8", "replace"))
                    on_bad_row(
                        BadRow(piece.path, row, None, text, "a quote begins a cell and is never closed; close it")
                    )

    def _plain_header(self, path: str) -> Header:
        with open_file(path) as file:
            header, _ = self._begin(functools.partial(fill, file.readinto), path)
        if header is None:  # it had one when it was cut
            raise changed(path)
        return header


class _Parser:
    """Whole records of one file into batches."""

    def __init__(
        self,
        path: str,
        names: Sequence[str],
        columns: frozenset[str] | None,
        dialect: Dialect,
        null_values: list[str],
        on_bad_row: Callable[[BadRow], None],
    ) -> None:
        self._path = path
        self._on_bad_row = on_bad_row
        self._dialect = dialect
        self._null_values = null_values
        self._header = names
        # Columns go by their number until the end: the parser need not like their names.
        self._all = [str(i) for i in range(len(names))]
        self._kept = [i for i, name in enumerate(names) if name and (columns is None or name in columns)]
        self._names = [names[i] for i in self._kept]

    def empty(self) -> RawBatch:
        data = pa.RecordBatch.from_pydict({name: pa.array([], pa.string()) for name in self._names})
        return RawBatch(data, self._path, np.zeros(0, np.int64), typed=False)

    def parse(self, chunk: Chunk, first_row: int) -> RawBatch:
        """The chunk's rows, but those with a wrong number of cells."""
        if len(chunk.text) > _MAX_BYTES:
            raise SourceError(
                f"{self._path}, row {first_row + 1}: the record is longer than 2 GiB; see whether a quote is missing"
            )
        text = self._dialect.without_comments(chunk.text) if self._dialect.comment else chunk.text
        bad: list[int] = []

        def reject(row: arrow_csv.InvalidRow) -> str:
            bad.append(row.number - 1)
            reason = (
                f"has {row.actual_columns} cells, and the header names {row.expected_columns}; a cell that holds the "
                "delimiter must be quoted"
            )
            self._on_bad_row(BadRow(self._path, first_row + row.number - 1, None, shorten(row.text), reason))
            return "skip"

        try:
            table = self._table(text, None)
        except pa.ArrowInvalid:
            self._check_utf8(text, first_row)  # Arrow shows no row to ``reject`` that is not
            try:
                table = self._table(text, reject)
            except pa.ArrowInvalid as error:
                where = f"{self._path}, in the rows from {first_row + 1} on"
                raise SourceError(f"{where}: cannot be read as CSV: {error}") from error
        rows = np.arange(first_row, first_row + chunk.rows, dtype=np.int64)
        data = table.combine_chunks().to_batches()[0] if table.num_rows else self.empty().data
        return RawBatch(data, self._path, np.delete(rows, bad) if bad else rows, typed=False)

    def _table(self, text: memoryview, reject: Callable[[arrow_csv.InvalidRow], str] | None) -> pa.Table:
        # Arrow takes a byte order mark off every piece that it parses; only the file's first bytes can be one.
        guarded = b"\n" + bytes(text) if text[: len(_BOM)] == _BOM else text
        kept = [self._all[i] for i in self._kept] or self._all[:1]  # none at all would mean all
        table = arrow_csv.read_csv(
            pa.BufferReader(guarded),
            read_options=arrow_csv.ReadOptions(
                column_names=self._all, use_threads=False, block_size=len(guarded) + 1, encoding="utf8"
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._dialect.delimiter,
                quote_char=self._dialect.quote or False,
                escape_char=self._dialect.escape or False,
                newlines_in_values=True,
                invalid_row_handler=reject,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self._all, pa.string()),
                include_columns=kept,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=self._null_values,
            ),
        )
        return table.rename_columns(self._names) if self._names else table

    def _check_utf8(self, text: memoryview, first_row: int) -> None:
        """Raises SourceError, which names the first cell that is not UTF-8."""
        try:
            str(text, "utf-8")
        except UnicodeDecodeError as error:
            begin, row, _ = scan(text[: error.start + 1], self._dialect)
            column, cell = self._last_cell(bytes(text[begin : error.start]).decode())
            value = shorten(cell.encode() + bytes(text[error.start : error.end]))
            where = f"row {first_row + row + 1}, {column} holds {value}"
            raise _not_utf8(self._path, where, "latin-1") from error

    def _last_cell(self, record: str) -> tuple[str, str]:
        """The column in which a record that is cut off ends, and what there is of its cell."""
        try:
            rows = list(self._dialect.rows(record))
        except csv.Error:  # a cell too long for Python
            return "a cell", ""
        cells = rows[-1] if rows else [""]
        index = len(cells) - 1
        return f"column {self._header[index]!r}" if index < len(self._header) else f"cell {index + 1}", cells[-1]


def _not_utf8(path: str, what: str, encoding: str) -> SourceError:
    return SourceError(
        f"{path}: is not UTF-8 text: {what}; if it is {encoding}, set source.encoding: {encoding.lower()}"
    )
