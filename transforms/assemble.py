"""Blocks into shards: deal the blocks of a split out, and join the blocks of a shard without compressing them again.

The shards of a split hold equal numbers of records, give or take one.  Where a shard ends inside a block, the block is
cut in two, and only these pieces are compressed again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transforms.blockfile import BlockFile, read_block
from transforms.compression import Compression
from transforms.files import committed
from transforms.partition import Block
from transforms.shuffle import permutation
from transforms.tfrecord import crc32c, scan


@dataclass(frozen=True)
class Piece:
    """The records ``first`` to ``last`` (exclusive) of a block in a block file."""

    path: str
    block: Block
    first: int
    last: int


@dataclass(frozen=True)
class ShardPlan:
    """What one shard is to hold; its name says ``-of-N``, the number of files that the split really has."""

    split: str
    name: str
    pieces: tuple[Piece, ...]


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


def shard_name(stem: str, index: int, *, count: int, suffix: str) -> str:
    """``train-00000-of-00016.tfrecord.gz``; ``suffix``: what the compression adds, with its dot."""
    return f"{stem}-{index:05d}-of-{count:05d}.tfrecord{suffix}"


def order_blocks(block_files: Sequence[BlockFile], split: str, *, shuffle_seed: int | None) -> list[Piece]:
    """All blocks of the split in the order in which they are dealt out: that of the files, or a permutation."""
    pieces = [
        Piece(file.path, block, 0, block.num_records)
        for file in block_files
        for block in file.blocks
        if block.split == split
    ]
    if shuffle_seed is None:
        return pieces
    return [pieces[i] for i in permutation(len(pieces), "blocks", shuffle_seed, split)]


def num_shards(pieces: Sequence[Piece], *, shards: int | None, shard_bytes: int) -> int:
    """The number asked for or, from the size of a shard, as many as the stored bytes fill; no shard is empty."""
    records = sum(piece.last - piece.first for piece in pieces)
    wanted = shards if shards is not None else -(-sum(piece.block.num_bytes for piece in pieces) // shard_bytes)
    return min(wanted, records)


def deal(pieces: Sequence[Piece], shards: int) -> list[tuple[Piece, ...]]:
    """The pieces cut into ``shards`` runs with equal numbers of records, give or take one."""
    ends = np.cumsum([piece.last - piece.first for piece in pieces], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    runs = []
    for shard in range(shards):
        begin, end = shard * total // shards, (shard + 1) * total // shards
        low, high = np.searchsorted(ends, [begin, end - 1], side="right")
        runs.append(
            tuple(
                Piece(piece.path, piece.block, max(piece.first, begin - start), min(piece.last, end - start))
                for piece, start in (
                    (pieces[i], int(ends[i]) - pieces[i].block.num_records) for i in range(low, high + 1)
                )
            )
        )
    return runs


def assemble_shard(plan: ShardPlan, folder: str, *, compression: Compression) -> ShardInfo:
    """Writes the shard into ``folder`` under its name, and commits it when all of it is on the disk."""
    blocks: list[Block] = []
    sha256 = hashlib.sha256()
    path = os.path.join(folder, plan.name)
    with committed(path) as output:

        def write(content: bytes) -> None:
            sha256.update(content)
            output.write(content)

        write(compression.head())
        for stored, block in _stored(plan, compression):
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
    )


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
