"""Files of lines that end with LF: cut, read in blocks of whole lines, and looked through for a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xxhash

from transforms.fingerprint import CHUNK_BYTES
from transforms.partition import FileSlice, Place
from transforms.sources.compressed import TextStream, compression_of
from transforms.sources.slices import open_file, warn_empty, whole_file

_BOM = b"\xef\xbb\xbf"


def cut_lines(path: str, target_bytes: int) -> Iterator[FileSlice]:
    """Slices of whole lines that count bytes; a packed file is one."""
    if compression_of(path):
        yield whole_file(path)
        return
    start = position = first_row = rows = 0
    hashed = xxhash.xxh3_128()
    with open_file(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            rest = memoryview(chunk)
            while rest:
                at = len(chunk) - len(rest)
                found = chunk.find(b"\n", at + max(start + target_bytes - position - 1, 0))
                end = found + 1 if found >= 0 else len(chunk)
                hashed.update(rest[: end - at])
                rows += chunk.count(b"\n", at, end)
                rest, position = rest[end - at :], position + end - at
                if found >= 0:
                    yield FileSlice(path, start, position, position - start, first_row, hashed.hexdigest())
                    start, first_row, rows = position, first_row + rows, 0
                    hashed = xxhash.xxh3_128()
    if position > start:
        yield FileSlice(path, start, position, position - start, first_row, hashed.hexdigest())
    if position == 0:
        warn_empty(path)


def line_blocks(stream: TextStream, *, skip_bom: bool) -> Iterator[bytes]:
    """The text in blocks of about CHUNK_BYTES, whole lines each; the last may lack its line end."""
    left, size = b"", CHUNK_BYTES
    while block := stream.read(size):
        if skip_bom:
            block, skip_bom = block.removeprefix(_BOM), False
        end = block.rfind(b"\n") + 1
        if end:
            yield left + block[:end]
            left, size = block[end:], CHUNK_BYTES
        else:
            left, size = left + block, size * 2
    if left:
        yield left


def locate_lines(path: str, rows: Sequence[int], *, encoding: str = "utf-8") -> list[Place]:
    """Where the lines begin; their ordinals in the file, from 0, ascend."""
    places, row, offset = list[Place](), 0, 0
    with TextStream(whole_file(path), encoding=encoding) as stream:
        for lines in line_blocks(stream, skip_bom=False):
            ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1
            starts = np.concatenate([[0], ends])
            while len(places) < len(rows) and rows[len(places)] - row < len(starts) - lines.endswith(b"\n"):
                wanted = rows[len(places)]
                places.append(Place(wanted + 1, offset + int(starts[wanted - row])))
            row, offset = row + len(starts) - lines.endswith(b"\n"), offset + len(lines)
            if len(places) == len(rows):
                break
    return places
