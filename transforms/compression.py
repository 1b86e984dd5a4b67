"""How blocks of records are stored, and how stored blocks make a shard without being compressed again.

docs/format.md specifies the bytes.  In short: with ``gzip`` each block is a gzip member of its own, whose header says
how long it is; with ``gzip_members="single"`` and with ``zlib`` each block is a run of deflate blocks that ends on a
byte, and the shard puts one header before them and one trailer behind.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, BinaryIO, Literal, NamedTuple

import deflate
from isal import isal_zlib
from zlib_ng import zlib_ng

from transforms.errors import ConfigError, CorruptError, shorten
from transforms.partition import Block
from transforms.tfrecord import as_bytes, crc32c, crc32c_join, masked_crc32c

CHUNK_BYTES = 1 << 20  # read, and handed on, at a time

# Level -> codec and its own level, from the front of size against speed in docs/format.md.
_ISAL = {1: ("isal", 1), 2: ("isal", 2), 3: ("isal", 3)}
_MEMBER_CODECS = {
    **_ISAL,
    4: ("libdeflate", 3),
    5: ("libdeflate", 5),
    6: ("libdeflate", 6),
    7: ("libdeflate", 7),
    8: ("libdeflate", 8),
    9: ("libdeflate", 12),
}
# libdeflate ends every stream for good, so parts of a stream come from codecs that can flush.
_STREAM_CODECS = _ISAL | {level: ("zlib-ng", level - 1) for level in range(4, 10)}
_FLUSHING = {"isal": isal_zlib, "zlib-ng": zlib_ng}
_HISTORY_BYTES = 8  # see _deflate

_GZIP_START = b"\x1f\x8b\x08\x00\0\0\0\0\x00\xff"  # no name, no time, no system: the same bytes everywhere
_ZLIB_START = b"\x78\x01"
_LAST_BLOCK = b"\x03\x00"  # a final deflate block that is empty

_FORMAT_VERSION = 1
_MEMBER_START = b"\x1f\x8b\x08\x04\0\0\0\0\x00\xff" + struct.pack("<H2sH", 24, b"RM", 20)
_MEMBER_FIELDS = struct.Struct("<IIIII")
_MEMBER_HEADER_BYTES = len(_MEMBER_START) + _MEMBER_FIELDS.size
_MEMBER_TRAILER = struct.Struct("<II")  # crc32 of the raw bytes, their number


class Packed(NamedTuple):
    """A stored block, and the checksum of its raw bytes where the container wants one (crc32 or adler32), else 0."""

    data: bytes
    checksum: int


@dataclass(frozen=True)
class Compression:
    """How shards are stored.  ``level``: 1 (fastest) to 9 (smallest); nothing to ``none``.

    ``gzip_members``: ``blocks`` makes each block a member; ``single`` makes one member of a shard, for readers that
    stop after the first (TensorFlow 2.4 and older).  Raises ConfigError for what is not offered.
    """

    name: Literal["gzip", "zlib", "none"]
    level: int = 1
    gzip_members: Literal["blocks", "single"] = "blocks"

    def __post_init__(self) -> None:
        if self.name not in ("gzip", "zlib", "none"):
            raise ConfigError(f"compression {self.name!r} is not offered; use gzip, zlib or none")
        if self.level not in range(1, 10):
            raise ConfigError(f"level {self.level!r} is not offered; use 1 (fastest) to 9 (smallest)")
        if self.gzip_members not in ("blocks", "single"):
            raise ConfigError(f"gzip_members {self.gzip_members!r} is not offered; use blocks or single")

    @property
    def suffix(self) -> str:
        """What the compression adds to a file's name, with its dot."""
        return {"gzip": ".gz", "zlib": ".zlib", "none": ""}[self.name]

    @property
    def tensorflow_type(self) -> str:
        """``compression_type`` of ``tf.data.TFRecordDataset``."""
        return {"gzip": "GZIP", "zlib": "ZLIB", "none": ""}[self.name]

    @property
    def codec(self) -> tuple[str, int]:
        """The library that compresses, and its own level; ``("", 0)`` when nothing does."""
        if self.name == "none":
            return "", 0
        return (_MEMBER_CODECS if self._makes_members else _STREAM_CODECS)[self.level]

    @property
    def _makes_members(self) -> bool:
        return self.name == "gzip" and self.gzip_members == "blocks"

    def pack(self, raw: Any, *, num_records: int) -> Packed:
        """One block of whole framed records, at least one, as it is stored.

        ``raw`` is bytes-like.  The same bytes give the same block.  Holds no GIL while it works.
        """
        view = as_bytes(raw)
        if num_records < 1 or not view.nbytes:
            raise ValueError("a block holds at least one record: readers stop at an empty gzip member")
        if self.name == "none":
            return Packed(view.tobytes(), 0)
        if self._makes_members:
            return Packed(_pack_member(view, self.codec, num_records), 0)
        checksum = deflate.crc32(view) if self.name == "gzip" else deflate.adler32(view)
        return Packed(_deflate(view, self.codec, zlib.Z_SYNC_FLUSH), checksum)

    def unpack(self, stored: Any, *, raw_bytes: int, name: str) -> bytes:
        """The framed records of one stored block, which are ``raw_bytes`` long.

        Raises CorruptError, which names the file ``name``, when the block is damaged.
        """
        view = memoryview(stored)
        if self._makes_members:
            return _unpack_member(view, raw_bytes, name)
        if self.name != "none":
            return _inflate(b"".join((view, _LAST_BLOCK)), raw_bytes, name)
        raw = bytes(view)
        _check_size(raw, raw_bytes, name)
        return raw

    def head(self) -> bytes:
        """What stands in a shard before its blocks."""
        if self.name == "none" or self._makes_members:
            return b""
        return _GZIP_START if self.name == "gzip" else _ZLIB_START

    def tail(self, blocks: Sequence[Block]) -> bytes:
        """What stands in a shard behind its blocks, which are given in their order."""
        if self.name == "none" or self._makes_members:
            return b""
        if self.name == "zlib":
            checksum = reduce(lambda sum, b: adler32_combine(sum, b.checksum, b.raw_bytes), blocks, 1)
            return _LAST_BLOCK + struct.pack(">I", checksum)
        checksum = reduce(lambda sum, b: isal_zlib.crc32_combine(sum, b.checksum, b.raw_bytes), blocks, 0)
        return _LAST_BLOCK + _MEMBER_TRAILER.pack(checksum, sum(b.raw_bytes for b in blocks) & 0xFFFFFFFF)


_CURE = "it is damaged; write or copy the file again"


def adler32_combine(first: int, second: int, second_bytes: int) -> int:
    """The Adler-32 of A followed by B, from those of A and B and the size of B (zlib's ``adler32_combine``)."""
    base = 65521
    sum_first, sum_second = first & 0xFFFF, second & 0xFFFF
    low = (sum_first + sum_second - 1) % base
    high = ((first >> 16) + (second >> 16) + second_bytes * (sum_first - 1)) % base
    return high << 16 | low


def _deflate(raw: Any, codec: tuple[str, int], flush: int) -> bytes:
    """Deflate blocks of the bytes, by a codec that can flush; the same bytes of the same input.

    ISA-L (2.32) takes bits of its state's address for text when it looks for the first matches of a stream, so that
    these depend on where in memory the state stands. It does so in a loop that takes no input below 17 bytes, and only
    before there is any history: a few bytes that are flushed first keep it from that.
    """
    library, level = codec
    compressor: Any = _FLUSHING[library].compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    parts = []
    if library == "isal":
        parts = [compressor.compress(raw[:_HISTORY_BYTES]), compressor.flush(zlib.Z_SYNC_FLUSH)]
        raw = raw[_HISTORY_BYTES:]
    return b"".join((*parts, compressor.compress(raw), compressor.flush(flush)))


def _pack_member(raw: Any, codec: tuple[str, int], num_records: int) -> bytes:
    library, level = codec
    payload: bytes | bytearray
    payload = _deflate(raw, codec, zlib.Z_FINISH) if library in _FLUSHING else deflate.deflate_compress(raw, level)
    num_bytes = _MEMBER_HEADER_BYTES + len(payload) + _MEMBER_TRAILER.size
    fields = _MEMBER_FIELDS.pack(_FORMAT_VERSION, num_bytes, len(raw), num_records, crc32c(payload))
    return b"".join((_MEMBER_START, fields, payload, _MEMBER_TRAILER.pack(deflate.crc32(raw), len(raw))))


def _unpack_member(stored: memoryview, raw_bytes: int, name: str) -> bytes:
    found = _read_header(bytes(stored[:_MEMBER_HEADER_BYTES]), at=0, name=name)
    payload = stored[_MEMBER_HEADER_BYTES : -_MEMBER_TRAILER.size]
    if (found.num_bytes, found.raw_bytes) != (len(stored), raw_bytes):
        raise CorruptError(
            f"{name}: a block says it has {found.num_bytes} bytes, {found.raw_bytes} of records, but it has "
            f"{len(stored)} and should have {raw_bytes}; {_CURE}"
        )
    if crc32c(payload) != found.payload_crc32c:
        raise CorruptError(f"{name}: the stored bytes of a block changed (CRC-32C); {_CURE}")
    raw = _inflate(payload, raw_bytes, name)
    if _MEMBER_TRAILER.unpack(stored[-_MEMBER_TRAILER.size :]) != (deflate.crc32(raw), raw_bytes & 0xFFFFFFFF):
        raise CorruptError(f"{name}: the end of a block does not fit its records (CRC-32); {_CURE}")
    return raw


def _inflate(payload: Any, raw_bytes: int, name: str) -> bytes:
    try:
        raw = bytes(deflate.deflate_decompress(payload, raw_bytes))
    except deflate.DeflateError as error:
        raise CorruptError(f"{name}: a block cannot be decompressed ({error}); {_CURE}") from error
    _check_size(raw, raw_bytes, name)
    return raw


def _check_size(raw: bytes, raw_bytes: int, name: str) -> None:
    if len(raw) != raw_bytes:
        raise CorruptError(f"{name}: a block holds {len(raw)} bytes, not {raw_bytes}; {_CURE}")


class _Member(NamedTuple):
    version: int
    num_bytes: int
    raw_bytes: int
    num_records: int
    payload_crc32c: int


def _read_header(header: bytes, *, at: int, name: str) -> _Member:
    where = f"{name}: at byte {at}"
    if len(header) < _MEMBER_HEADER_BYTES or not header.startswith(_MEMBER_START):
        raise CorruptError(f"{where} there is no block of ours, but {shorten(header[:16])}; read the file as a stream")
    found = _Member(*_MEMBER_FIELDS.unpack_from(header, len(_MEMBER_START)))
    if found.version != _FORMAT_VERSION:
        raise CorruptError(f"{where} the block has format {found.version}, this version reads {_FORMAT_VERSION}")
    if found.num_bytes <= _MEMBER_HEADER_BYTES + _MEMBER_TRAILER.size or not found.num_records:
        raise CorruptError(f"{where} the header of the block makes no sense; {_CURE}")
    return found


def walk(stream: BinaryIO, *, name: str, split: str = "") -> list[Block]:
    """The blocks of a shard of gzip members, from their headers and trailers: nothing is decompressed.

    The stream can seek, and is read from its beginning; ``split`` is put into the blocks.  Raises CorruptError, which
    names ``name`` and the offset, when a member is not ours or the file is cut.
    """
    blocks: list[Block] = []
    at, size = 0, stream.seek(0, 2)
    while at < size:
        stream.seek(at)
        header = stream.read(_MEMBER_HEADER_BYTES)
        found = _read_header(header, at=at, name=name)
        if at + found.num_bytes > size:
            raise CorruptError(
                f"{name}: cut short after {len(blocks)} whole blocks: of that at byte {at}, {size - at} of its "
                f"{found.num_bytes} bytes are there; write or copy the file again"
            )
        stream.seek(at + found.num_bytes - _MEMBER_TRAILER.size)
        trailer = stream.read(_MEMBER_TRAILER.size)
        payload_bytes = found.num_bytes - len(header) - len(trailer)
        checksum = crc32c_join(crc32c(header), found.payload_crc32c, payload_bytes)
        checksum = crc32c_join(checksum, crc32c(trailer), len(trailer))
        blocks.append(Block(split, at, found.num_bytes, found.raw_bytes, found.num_records, checksum))
        at += found.num_bytes
    return blocks


def sniff(start: bytes) -> Literal["gzip", "zlib", "none"]:
    """How a TFRecord file is compressed, by its first 12 bytes or more."""
    if len(start) >= 12 and int.from_bytes(start[8:12], "little") == masked_crc32c(start[:8]):
        return "none"
    if start[:2] == b"\x1f\x8b":
        return "gzip"
    if start[:1] and start[0] & 15 == 8 and int.from_bytes(start[:2], "big") % 31 == 0:
        return "zlib"
    return "none"


def decompress_stream(stream: BinaryIO | io.RawIOBase, *, name: str) -> Iterator[bytes]:
    """The raw bytes of any TFRecord file, whoever wrote it, in chunks of at most ``CHUNK_BYTES``, none empty.

    Whether it is gzip, zlib or plain is seen from its content.  All members of a gzip file are read, empty ones and
    zeros between and behind them too.  Raises CorruptError, which names ``name`` and an offset in the file, when the
    stream is damaged or ends early.
    """
    source = _Source(stream)
    source.fill()
    kind = sniff(source.pending)
    while source.fill():
        if kind == "none":
            yield source.take()
        elif source.offset == 0 or (kind == "gzip" and source.pending[:1] == b"\x1f"):
            yield from _inflate_stream(source, kind, name)
        elif kind == "gzip" and source.pending[:1] == b"\0":
            source.pending = source.pending.lstrip(b"\0")
        else:
            what = f"the {kind} stream ends, but {shorten(source.pending[:16])} follows at byte {source.offset}"
            raise CorruptError(f"{name}: {what}; {_CURE}")


class _Source:
    """A stream, and what was read of it but not used yet."""

    def __init__(self, stream: BinaryIO | io.RawIOBase) -> None:
        self._stream = stream
        self._num_read = 0
        self.pending = b""

    @property
    def offset(self) -> int:
        return self._num_read - len(self.pending)

    def fill(self) -> bool:
        """Whether there is more; reads when nothing is pending."""
        if not self.pending:
            self.pending = self._stream.read(CHUNK_BYTES) or b""
            self._num_read += len(self.pending)
        return bool(self.pending)

    def take(self) -> bytes:
        pending, self.pending = self.pending, b""
        return pending


def _inflate_stream(source: _Source, kind: str, name: str) -> Iterator[bytes]:
    """One gzip member, or a zlib stream."""
    begin = source.offset
    inflater = isal_zlib.decompressobj(zlib.MAX_WBITS + (16 if kind == "gzip" else 0))
    while not inflater.eof:
        ended = not source.fill()
        offset = source.offset
        try:
            raw = inflater.decompress(source.take(), CHUNK_BYTES)
        except isal_zlib.IsalError as error:  # type: ignore[misc]  # the stub calls the class an instance
            where = f"the {kind} stream that begins at byte {begin}, at byte {offset} or after"
            raise CorruptError(f"{name}: damaged in {where} ({error}); write or copy the file again") from error
        source.pending = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if raw:
            yield raw
        elif ended and not inflater.eof:
            raise CorruptError(
                f"{name}: cut short: the {kind} stream that begins at byte {begin} does not end before the file does, "
                f"at byte {offset}; write or copy the file again"
            )
