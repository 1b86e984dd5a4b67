"""The text of CSV files: its dialect, and where its records end."""

from __future__ import annotations

import csv
import ctypes
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from transforms.fingerprint import CHUNK_BYTES
from transforms.native import Int64, Pointer, UInt32, kernel

MAX_ROWS = 16_384  # of a batch

_NO_LIMIT = (1 << 63) - 1
_INSIDE_QUOTES, _BETWEEN_RECORDS = (3, 6), (0, 7)  # states of csv_scan

Fill = Callable[[memoryview], int]  # reads into a buffer; fewer bytes than it has room for only at the end

_scan = kernel("csv_scan", [Pointer, Int64, UInt32, Int64, Int64, Pointer, Pointer], Int64)
_without_comments = kernel("csv_without_comments", [Pointer, Int64, UInt32, Pointer], Int64)


@dataclass(frozen=True)
class Dialect:
    """The characters (ASCII) that mean something; ``quote``, ``escape`` and ``comment`` may be empty: there is none."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    comment: str = ""

    @property
    def packed(self) -> int:
        """As the kernels take it."""
        characters = (self.delimiter, self.quote, self.escape, self.comment)
        return int.from_bytes(bytes(ord(c) if c else 0 for c in characters), "little")

    def rows(self, text: str) -> Iterator[list[str]]:
        """The rows of a short text, blank lines and comments left out.  Raises csv.Error."""
        if self.comment:
            text = self.without_comments(memoryview(text.encode())).tobytes().decode()
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape or None,
        )
        return (row for row in reader if row)

    def without_comments(self, text: memoryview) -> memoryview:
        """Whole records without the comments between them."""
        out = bytearray(len(text))
        data, kept = np.frombuffer(text, np.uint8), np.frombuffer(out, np.uint8)
        size = _without_comments(data.ctypes.data, len(text), self.packed, kept.ctypes.data)
        return memoryview(out)[:size]


@dataclass(frozen=True)
class Chunk:
    """Whole records; ``unclosed``: what follows them, when the text ends inside a quoted cell."""

    text: memoryview
    rows: int
    unclosed: memoryview


def cut_records(fill: Fill, head: bytes, dialect: Dialect, *, header: bool) -> Iterator[Chunk]:
    """The records of a text (``head`` and what ``fill`` gives) in chunks of at most CHUNK_BYTES and MAX_ROWS.

    Longer records are chunks of their own; the header is the first, alone.  A chunk is valid until the next one.
    """
    buffer = np.empty(CHUNK_BYTES, np.uint8).data  # not filled with zeros: most files are smaller
    rest, max_rows, end_of_text = memoryview(head), 1 if header else MAX_ROWS, False
    while not end_of_text:
        left = len(rest)
        larger = (
            np.empty(2 * left, np.uint8).data if left == len(buffer) else buffer
        )  # for a record longer than a chunk
        larger[:left] = bytes(rest)
        buffer = larger
        count = fill(buffer[left:])
        end_of_text = count < len(buffer) - left
        rest = buffer[: left + count]
        while rest:
            end, rows, state = scan(rest, dialect, max_rows=max_rows)
            stopped = rows == max_rows
            if end_of_text and not stopped:
                unclosed = state in _INSIDE_QUOTES
                end, rows = (end, rows) if unclosed else (len(rest), rows + (state not in _BETWEEN_RECORDS))
                yield Chunk(rest[:end], rows, rest[end:])
                return
            if not rows:
                break
            yield Chunk(rest[:end], rows, rest[:0])
            rest = rest[end:]
            if not stopped:
                break
            max_rows = MAX_ROWS


def scan(
    text: memoryview, dialect: Dialect, *, state: int = 0, stop_at: int = _NO_LIMIT, max_rows: int = _NO_LIMIT
) -> tuple[int, int, int]:
    """Where the last whole record or blank line of ``text`` ends, how many records end, and the state of the scan.

    Stops with the first that ends at or after ``stop_at``, or with record ``max_rows``.  A line end that is not there
    yet (the LF of a CRLF) is a blank line of what follows.
    """
    at = ctypes.c_int64(state)
    rows = ctypes.c_int64(0)
    address = np.frombuffer(text, np.uint8).ctypes.data
    end = _scan(address, len(text), dialect.packed, stop_at, max_rows, ctypes.byref(at), ctypes.byref(rows))
    return end, rows.value, at.value
