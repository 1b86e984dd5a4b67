"""The bytes of a text file's slice, unpacked when the file is packed: told by its first bytes, not by its name."""

from __future__ import annotations

import bz2
import codecs
import io
import zlib
from typing import Any

import pyarrow as pa
from isal import igzip, isal_zlib

from transforms.errors import SourceError
from transforms.partition import FileSlice
from transforms.sources.slices import SliceStream, fill, open_file
from transforms.storage import Input

_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}


def compression_of(path: str) -> str | None:
    """``gzip``, ``bz2`` or ``zstd``; None: the file is none of these."""
    with open_file(path) as file:
        return sniff(file)


def sniff(file: Input) -> str | None:
    """``compression_of`` a file that was just opened; it is read from its begin again afterwards."""
    head = file.read(4)
    file.seek(0)
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


class TextStream:
    """Reads the text of a slice, of all members of a packed file.

    Text in another ``encoding`` comes as UTF-8, without a byte order mark.  Raises SourceError, which names the file,
    when the stream is cut, damaged or not of that encoding, and at its end when the file is not what it was when it was
    cut into partitions.
    """

    def __init__(self, piece: FileSlice, *, encoding: str = "utf-8") -> None:
        self._piece = piece
        self._stored = SliceStream(piece.path, start=piece.start, end=piece.end)
        self.compression = compression_of(piece.path)
        self.num_bytes = 0  # read so far
        self._stream = self._unpacked()
        if encoding != "utf-8":
            self._stream = _Recoded(self._stream, encoding)

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
        except UnicodeDecodeError as error:
            self._stored.check(self._piece.fingerprint)
            raise SourceError(f"{self._piece.path}: {_describe(error)}") from error
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


class _Recoded(io.RawIOBase):
    """The text of a stream of bytes in some encoding, as UTF-8."""

    CHUNK_BYTES = 1 << 20

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = memoryview(b"")
        self._offset = 0  # of the next byte to decode
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        while not self._pending and not self._ended:
            chunk = memoryview(bytearray(self.CHUNK_BYTES))
            count = fill(self._stream.readinto, chunk)
            self._ended = count < len(chunk)
            kept = len(self._decoder.getstate()[0])  # of a character that was cut
            try:
                text = self._decoder.decode(chunk[:count], self._ended)
            except UnicodeDecodeError as error:
                error.encoding = self._encoding
                error.reason = f"{error.reason}, at byte {self._offset - kept + error.start}"
                raise
            self._pending = memoryview((text if self._offset else text.removeprefix("\ufeff")).encode("utf-8"))
            self._offset += count
        count = min(len(view), len(self._pending))
        view[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count


def _describe(error: UnicodeDecodeError) -> str:
    found = error.object[error.start : error.end]
    return (
        f"is not {error.encoding} text: {found!r} ({error.reason}); see what encoding it has, and set source.encoding"
    )
