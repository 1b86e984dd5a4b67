"""A shard is written: its blocks are joined as they are stored, or the file of an earlier version is taken again.

Where a shard ends inside a block, the block was cut in two by ``deal``, and only these pieces are compressed again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from transforms.blockfile import read_block
from transforms.compression import Compression
from transforms.deal import Piece, ShardPlan
from transforms.errors import CorruptError
from transforms.files import committed, link_or_copy
from transforms.fingerprint import read_chunks
from transforms.partition import Block
from transforms.tfrecord import crc32c, crc32c_join, scan
from transforms.timing import step, timed


@dataclass(frozen=True)
class ShardInfo:
    """A shard as it was written.  ``blocks``: where its blocks are in the shard, for readers that jump."""

    split: str
    name: str
    num_records: int
    num_bytes: int
    raw_bytes: int
    sha256: str
    blocks: tuple[Block, ...]
    span: str = ""
    key: str = ""  # ``ShardPlan.key``: the shard of another version with the same key has the same bytes


def assemble_shard(plan: ShardPlan, folder: str, *, compression: Compression) -> ShardInfo:
    """Writes the shard into ``folder`` under its name, and commits it when all of it is on the disk.

    The folder is the caller's to sync, once for all shards.
    """
    blocks: list[Block] = []
    sha256 = hashlib.sha256()
    path = os.path.join(folder, plan.name)
    with step("write"), committed(path, sync_name=False) as output:

        def write(content: bytes) -> None:
            sha256.update(content)
            output.write(content)

        write(compression.head())
        for stored, block in timed("read", _stored(plan, compression)):
            blocks.append(dataclasses.replace(block, offset=output.num_bytes))
            write(stored)
        write(compression.tail(blocks))
    return ShardInfo(
        split=plan.split,
        name=plan.name,
        num_records=sum(block.num_records for block in blocks),
        num_bytes=output.num_bytes,
        raw_bytes=sum(block.raw_bytes for block in blocks),
        sha256=sha256.hexdigest(),
        blocks=tuple(blocks),
        span=plan.span,
    )


def shard_crc32c(info: ShardInfo, compression: Compression) -> int:
    """The CRC-32C of the whole file, from what the manifest tells of it."""
    total = 0
    head, tail = compression.head(), compression.tail(info.blocks)
    parts = [(crc32c(head), len(head)), *((b.crc32c, b.num_bytes) for b in info.blocks), (crc32c(tail), len(tail))]
    for checksum, num_bytes in parts:
        total = crc32c_join(total, checksum, num_bytes)
    return total


def take_shard(earlier: str, path: str, *, num_bytes: int, checksum: int) -> None:
    """Gives the shard of an earlier version, the file ``earlier``, the name ``path`` too: by a link, or by a copy where
    the file system has no links.  Raises CorruptError unless it has so many bytes with this CRC-32C."""
    found, total = 0, 0
    try:
        with open(earlier, "rb", buffering=0) as stream:
            for chunk in read_chunks(stream):
                total = crc32c_join(total, crc32c(chunk), len(chunk))
                found += len(chunk)
    except OSError as error:
        raise CorruptError(f"{earlier}: the shard cannot be read ({error.strerror}); it is made again") from error
    if (found, total) != (num_bytes, checksum):
        raise CorruptError(f"{earlier}: the shard is not as it was published; it is made again")
    link_or_copy(earlier, path)


def _stored(plan: ShardPlan, compression: Compression) -> Iterator[tuple[bytes, Block]]:
    for piece in plan.pieces:
        with open(piece.path, "rb") as stream:
            stored = read_block(stream, piece.block, path=piece.path)
        if (piece.first, piece.last) == (0, piece.block.num_records):
            yield stored, piece.block
        else:
            yield _cut(piece, stored, compression)


def _cut(piece: Piece, stored: bytes, compression: Compression) -> tuple[bytes, Block]:
    raw = compression.unpack(stored, raw_bytes=piece.block.raw_bytes, name=piece.path)
    offsets = scan(raw, name=piece.path).offsets
    part = memoryview(raw)[int(offsets[piece.first]) : int(offsets[piece.last])]
    with step("compress"):
        packed = compression.pack(part, num_records=piece.last - piece.first)
    return packed.data, Block(
        split=piece.block.split,
        offset=0,
        num_bytes=len(packed.data),
        raw_bytes=len(part),
        num_records=piece.last - piece.first,
        crc32c=crc32c(packed.data),
        checksum=packed.checksum,
    )
