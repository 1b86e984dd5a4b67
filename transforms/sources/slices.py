"""What the sources share: files as streams that notice a change, and slices put together to partitions."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import xxhash

from transforms.errors import SourceError
from transforms.fingerprint import hash_bytes, read_chunks
from transforms.partition import FileSlice, Partition
from transforms.storage import Input, open_input, size_of

LARGEST_VALUE = (1 << 31) - 1  # bytes of a file that is one value
FILES_AT_ONCE = 1000  # whose slices are waited for together
FILES_TOGETHER = 64  # times as many, and so many to a thread, where there are very many

AT_ONCE = max(2, os.cpu_count() or 1)  # threads that fetch or decode: Pillow and stores let others run

log = logging.getLogger("recordmill")
T = TypeVar("T")
R = TypeVar("R")


def cut_files(
    paths: Sequence[str], cut: Callable[[str, int], Iterable[FileSlice]], *, target_bytes: int
) -> list[Partition]:
    """The partitions of the files; ``cut(path, target_bytes)`` makes slices of one file, of several files at a time."""

    together = max(1, min(FILES_TOGETHER, len(paths) // FILES_AT_ONCE))

    def cut_some(start: int) -> list[FileSlice]:
        return [piece for path in paths[start : start + together] for piece in cut(path, target_bytes)]

    def cut_all() -> Iterator[FileSlice]:
        at_once = FILES_AT_ONCE * together
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for start in range(0, len(paths), at_once):
                for slices in pool.map(cut_some, range(start, min(start + at_once, len(paths)), together)):
                    yield from slices

    return group(cut_all(), target_bytes=target_bytes)


def group(slices: Iterable[FileSlice], *, target_bytes: int) -> list[Partition]:
    """Neighbours together, as long as they have no more than ``target_bytes``.

    From half of that on, a group ends after one in eight slices, by their content: so a file that is new or gone moves
    the ends of a few groups, and not those of all that follow.
    """
    groups: list[list[FileSlice]] = []
    size, ends = 0, True
    for piece in slices:
        if ends or size + piece.num_bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.num_bytes
        ends = size >= target_bytes // 2 and int(piece.fingerprint[-4:], 16) % 8 == 0
    return [Partition(tuple(pieces)) for pieces in groups]


@contextlib.contextmanager
def open_file(path: str) -> Iterator[Input]:
    """The file for reading.  Raises SourceError, which names it, when it cannot be opened or read."""
    with _named(path), open_input(path) as file:
        yield file


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def warn_empty(path: str) -> None:
    log.warning("%s: the file is empty; it gives no rows", path)


def fill(readinto: Callable[[memoryview], int | None], buffer: memoryview) -> int:
    """Reads until the buffer is full or the stream ends; returns how many bytes that gave."""
    filled = 0
    while filled < len(buffer) and (count := readinto(buffer[filled:])):
        filled += count
    return filled


class SliceStream(io.RawIOBase):
    """The bytes from ``start`` to ``end`` of a file, hashed as they are read."""

    def __init__(self, path: str, *, start: int, end: int) -> None:
        with _named(path):
            self._file: Any = open_input(path)
            self._file.seek(start)
        self._left = end - start
        self._hash = xxhash.xxh3_128()
        self._path = path

    def seed(self, content: bytes) -> None:
        """Bytes of the file that the fingerprint covers besides, before its own: the header."""
        self._hash.update(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: self._left]
        with _named(self._path):
            count = self._file.readinto(view) if view else 0
        self._hash.update(view[:count])
        self._left -= count
        return count

    def check(self, fingerprint: str) -> None:
        """Reads what is left.  Raises SourceError when the bytes are not those that the fingerprint was made of."""
        buffer = bytearray(1 << 20)
        while self.readinto(buffer):
            pass
        if self._left or self._hash.hexdigest() != fingerprint:
            raise changed(self._path)

    def close(self) -> None:
        self._file.close()
        super().close()


def changed(path: str) -> SourceError:
    return SourceError(f"{path}: the file changed while it was read; run the build again when it is complete")


def file_size(path: str) -> int:
    with _named(path):
        return size_of(path)


def whole_file(path: str, *, named: Sequence[str] = ()) -> FileSlice:
    """The file as one slice that cannot be split; ``named``: the parts of its path that its rows hold."""
    size = file_size(path)
    with open_file(path) as file:
        return FileSlice(path, 0, size, size, 0, hash_file(read_chunks(file), named=named))


def hash_file(chunks: Iterable[bytes], *, named: Sequence[str]) -> str:
    """The fingerprint of a whole file, whose rows hold ``named`` as well."""
    return hash_bytes(itertools.chain(["\0".join([*named, ""]).encode()], chunks))


def read_whole(path: str, num_bytes: int) -> bytes:
    """A file that becomes one value: ``num_bytes``, and one more where it has grown.  Raises SourceError."""
    if num_bytes > LARGEST_VALUE:
        raise SourceError(f"{path}: has {num_bytes} bytes, and one value holds {LARGEST_VALUE} at most")
    with open_file(path) as file:
        return b"".join(read_chunks(file, num_bytes + 1))


def ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Each item with what the function makes of it, in order; some are made ahead, side by side."""
    waiting = deque[tuple[T, Future[R]]]()
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        for item in items:
            waiting.append((item, pool.submit(function, item)))
            if len(waiting) > 2 * AT_ONCE:
                first, made = waiting.popleft()
                yield first, made.result()
        for first, made in waiting:
            yield first, made.result()
    finally:
        pool.shutdown(cancel_futures=True)
