"""Is a version whole?  Every byte of it is read and held against the manifest, and all faults are listed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

from pipeline.layout import MANIFEST, Layout, Manifest
from transforms.assemble import ShardInfo
from transforms.compression import Compression
from transforms.errors import CorruptError
from transforms.fingerprint import file_sha256
from transforms.partition import Block
from transforms.tfrecord import crc32c, masked_crc32c, scan

BLOCKS_AHEAD = 8  # of a shard, that wait to be unpacked
_RECORD_HEADER = struct.Struct("<QI")  # length, masked CRC-32C of the length


@dataclass(frozen=True)
class Fault:
    """``file``: relative to the version's folder.  ``block`` and ``record`` count from 0 in the shard."""

    file: str
    reason: str
    block: int | None = None
    record: int | None = None

    def __str__(self) -> str:
        block = f", block {self.block}" if self.block is not None else ""
        record = f", record {self.record}" if self.record is not None else ""
        return f"{self.file}{block}{record}: {self.reason}"


@dataclass(frozen=True)
class Verification:
    """What was held against the manifest, and all that was wrong; whole when ``faults`` is empty."""

    dir: str
    version: str
    num_shards: int
    num_records: int
    num_bytes: int
    faults: tuple[Fault, ...]


def verify(dir: str, *, version: str | None = None) -> Verification:
    """Checks one version, by default the latest, several shards and blocks at a time.

    Raises ConfigError when there is no such version, and CorruptError when its manifest cannot be read.
    """
    layout = Layout(dir)
    version = layout.find(version)
    folder = layout.version_dir(version)
    manifest = Manifest.load(layout.manifest_path(version))
    shards = manifest.shards
    faults = [*_file_faults(folder, manifest), *shard_faults(folder, manifest)]
    records = sum(shard.num_records for shard in shards)
    if records != manifest.totals.written:
        faults.append(Fault(MANIFEST, f"its shards hold {records} records, its totals say {manifest.totals.written}"))
    return Verification(dir, version, len(shards), records, sum(s.num_bytes for s in shards), tuple(faults))


def shard_faults(folder: str, manifest: Manifest) -> list[Fault]:
    """What is wrong with the shards in the folder of a version: all of their bytes are read."""
    shards, compression = manifest.shards, manifest.compression
    with ThreadPoolExecutor(os.cpu_count()) as blocks, ThreadPoolExecutor(os.cpu_count()) as pool:
        by_shard = list(pool.map(lambda shard: list(_shard_faults(folder, shard, compression, blocks)), shards))
    return [fault for found in by_shard for fault in found]


def _file_faults(folder: str, manifest: Manifest) -> Iterator[Fault]:
    """Files that the manifest does not name, and files besides the shards that are not there or not as they were."""
    known = {MANIFEST, *manifest.files, *map(_path, manifest.shards)}
    for parent, folders, names in os.walk(folder):
        folders.sort()
        inside = os.path.relpath(parent, folder)
        for name in sorted(os.path.normpath(os.path.join(inside, name)) for name in names):
            if name not in known:
                yield Fault(name, "is not in the manifest; readers that take all files would read it")
    for path, sha256 in manifest.files.items():
        try:
            if file_sha256(os.path.join(folder, path)) != sha256:
                yield Fault(path, "its content is not what was written (SHA-256)")
        except FileNotFoundError:
            yield Fault(path, "is not there")
        except OSError as error:
            yield Fault(path, f"cannot be read: {error.strerror or error}")


def _path(shard: ShardInfo) -> str:
    return os.path.join(shard.split, shard.name)


def _shard_faults(folder: str, shard: ShardInfo, compression: Compression, pool: ThreadPoolExecutor) -> Iterator[Fault]:
    """``pool``: where blocks are unpacked, while the next ones are read and hashed."""
    path = os.path.join(folder, _path(shard))
    try:
        with open(path, "rb") as stream:
            yield from _content_faults(stream, shard, compression, pool)
    except FileNotFoundError:
        yield Fault(_path(shard), "is not there")
    except OSError as error:
        yield Fault(_path(shard), f"cannot be read: {error.strerror or error}")


def _content_faults(
    stream: BinaryIO, shard: ShardInfo, compression: Compression, pool: ThreadPoolExecutor
) -> Iterator[Fault]:
    name, sha256 = _path(shard), hashlib.sha256()
    size = os.fstat(stream.fileno()).st_size
    if size != shard.num_bytes:
        yield Fault(name, f"has {size} bytes, the manifest says {shard.num_bytes}")
    if (records := sum(block.num_records for block in shard.blocks)) != shard.num_records:
        yield Fault(name, f"its blocks hold {records} records, the manifest says {shard.num_records}")

    def read(num_bytes: int) -> bytes:
        content = stream.read(num_bytes)
        sha256.update(content)
        return content

    if read(len(compression.head())) != compression.head():
        yield Fault(name, f"does not begin as a {compression.name} file")
    first_record = 0
    waiting = deque[Future[list[Fault]]]()
    for number, block in enumerate(shard.blocks):
        if stream.tell() != block.offset:
            yield from (fault for made in waiting for fault in made.result())
            yield Fault(name, f"is said to begin at byte {block.offset}, but begins at {stream.tell()}", block=number)
            return
        stored = read(block.num_bytes)
        at = Fault(name, "", number, first_record)
        waiting.append(pool.submit(_block_faults, stored, block, compression, at=at))
        if len(waiting) > BLOCKS_AHEAD:
            yield from waiting.popleft().result()
        if len(stored) < block.num_bytes:
            yield from (fault for made in waiting for fault in made.result())
            return  # all that follows is missing too
        first_record += block.num_records
    yield from (fault for made in waiting for fault in made.result())
    if read(-1) != compression.tail(shard.blocks):
        yield Fault(name, "does not end as it was written")
    if sha256.hexdigest() != shard.sha256:
        yield Fault(name, "its content is not what was written (SHA-256)")


def _block_faults(stored: bytes, block: Block, compression: Compression, *, at: Fault) -> list[Fault]:
    """``at``: the shard, the number of the block, and that of its first record."""
    return list(_faults_of_block(stored, block, compression, at))


def _faults_of_block(stored: bytes, block: Block, compression: Compression, at: Fault) -> Iterator[Fault]:
    if len(stored) < block.num_bytes:
        yield Fault(at.file, f"is cut short: {len(stored)} of {block.num_bytes} bytes are there", at.block)
    elif crc32c(stored) != block.crc32c:
        yield Fault(at.file, "its stored bytes changed (CRC-32C)", at.block)
    try:
        found = len(scan(compression.unpack(stored, raw_bytes=block.raw_bytes, name=at.file), name=at.file))
    except CorruptError as error:
        damaged = list(_damaged_records(_unpack_what_can_be(stored, compression), block.num_records))
        for record, reason in damaged:
            yield Fault(at.file, reason, at.block, (at.record or 0) + record)
        if not damaged:
            yield Fault(at.file, str(error), at.block)
    else:
        if found != block.num_records:
            yield Fault(at.file, f"holds {found} records, the manifest says {block.num_records}", at.block)


def _damaged_records(raw: bytes, num_records: int) -> Iterator[tuple[int, str]]:
    """The damaged records of a block that is known to be damaged, and what is wrong with them; they count from 0."""
    offset = 0
    for record in range(num_records):
        start = offset + _RECORD_HEADER.size
        if start > len(raw):
            yield record, "cannot be read, nor can the records after it in the block"
            return
        length, length_crc = _RECORD_HEADER.unpack_from(raw, offset)
        if masked_crc32c(raw[offset : offset + 8]) != length_crc:
            yield record, "its length is damaged, so the records after it in the block are lost too"
            return
        offset = start + length + 4
        if offset > len(raw):
            yield record, "cannot be read to its end, nor can the records after it in the block"
            return
        if masked_crc32c(raw[start : start + length]) != int.from_bytes(raw[offset - 4 : offset], "little"):
            yield record, "its data changed (CRC-32C)"


def _unpack_what_can_be(stored: bytes, compression: Compression) -> bytes:
    """The raw bytes before the place where a damaged block stops making sense."""
    if compression.name == "none":
        return stored
    whole_member = compression.name == "gzip" and compression.gzip_members == "blocks"
    decompressor = zlib.decompressobj(31 if whole_member else -15)
    raw = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in range(0, len(stored), 64):
            raw += decompressor.decompress(stored[byte : byte + 64])
    return bytes(raw)
