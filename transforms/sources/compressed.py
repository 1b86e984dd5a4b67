"""The bytes of a text file's slice, unpacked when the file is packed: told by its first bytes, not by its name."""

from __future__ import annotations

import bz2
import zlib
from typing import Any

import pyarrow as pa
from isal import igzip, isal_zlib

from transforms.errors import SourceError
from transforms.partition import FileSlice
from transforms.sources.slices import SliceStream, fill, open_file

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}


def compression_of(path: str) -> str | None:
    """``gzip``, ``bz2`` or ``zstd``; None: the file is none of these."""
    with open_file(path) as file:
        head = file.read(4)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


class TextStream:
    """Reads the text of a slice, of all members of a packed file.

    Raises SourceError, which names the file, when the stream is cut or damaged, and at its end when the file is not
    what it was when it was cut into partitions.
    """

    def __init__(self, piece: FileSlice) -> None:
        self._piece = piece
        self._stored = SliceStream(piece.path, start=piece.start, end=piece.end)
        self.compression = compression_of(piece.path)
        self.num_bytes = 0  # read so far
        self._stream = self._unpacked()

    def _unpacked(self) -> Any:
        if self.compression == "gzip":
            return igzip.IGzipFile(fileobj=self._stored)  # type: ignore[no-untyped-call]
        if self.compression == "bz2":
            return bz2.BZ2File(self._stored)
        if self.compression == "zstd":
            return pa.CompressedInputStream(pa.PythonFile(self._stored, mode="r"), "zstd")
        return self._stored

    def seed(self, content: bytes) -> None:
        """See ``SliceStream.seed``; before the first read."""
        self._stored.seed(content)

    def fill(self, buffer: memoryview) -> int:
        """Reads the next bytes into the buffer, and returns how many: fewer than it has room for only at the end."""
        try:
            count = fill(self._stream.readinto, buffer)
        except (OSError, EOFError, ValueError, zlib.error, isal_zlib.IsalError) as error:  # type: ignore[misc]  # a stub
            self._stored.check(self._piece.fingerprint)
            raise SourceError(
                f"{self._piece.path}: the {self.compression} file is cut short or damaged ({error}); get it again from "
                "where it came from"
            ) from error
        if count < len(buffer):
            self._stored.check(self._piece.fingerprint)
        self.num_bytes += count
        return count

    def read(self, num_bytes: int) -> bytes:
        """The next ``num_bytes``; fewer only at the end."""
        buffer = memoryview(bytearray(num_bytes))
        return bytes(buffer[: self.fill(buffer)])

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stored.close()
