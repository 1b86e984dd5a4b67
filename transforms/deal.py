"""Which records go into which shard: the blocks of a split in order, cut into runs.

The partitions of a span are put together to sections of about seven.  Blocks are mixed, and shards are made, inside a
section, so that what one partition holds does not move the shards of others.  Which partitions make a section depends
on their places in the source, not on what they hold: a partition whose content changes stays where it is.

The shards of a section hold equal numbers of records, give or take one.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.blockfile import BlockFile
from transforms.compression import Compression
from transforms.fingerprint import digest
from transforms.partition import Block
from transforms.shuffle import permutation

SECTION_PARTITIONS = (4, 16)  # at least, at most; a section ends with one in four of the places


@dataclass(frozen=True)
class Piece:
    """The records ``first`` to ``last`` (exclusive) of a block in a block file."""

    path: str
    block: Block
    first: int
    last: int


@dataclass(frozen=True)
class ShardPlan:
    """What one shard is to hold; its name says ``-of-N``, the number of files that the split really has in the span."""

    split: str
    name: str
    pieces: tuple[Piece, ...]
    span: str = ""

    def key(self, compression: Compression) -> str:
        """Hash of all that the shard's bytes depend on.  Block files of the cache are named by theirs."""
        pieces = [[os.path.basename(p.path), p.block.offset, p.first, p.last] for p in self.pieces]
        return digest([compression, pieces])

    def __reduce__(self) -> tuple[Any, ...]:
        """The pieces as one table of numbers: plans travel through runners, and have thousands of them."""
        paths = list(dict.fromkeys(piece.path for piece in self.pieces))
        index = {path: i for i, path in enumerate(paths)}
        rows = [
            (index[p.path], p.first, p.last, *(getattr(p.block, name) for name in _BLOCK_NUMBERS)) for p in self.pieces
        ]
        table = np.array(rows, np.int64).reshape(len(rows), 3 + len(_BLOCK_NUMBERS))
        splits = list(dict.fromkeys(piece.block.split for piece in self.pieces))
        which = np.array([splits.index(piece.block.split) for piece in self.pieces], np.int32)
        return _unpack, (self.split, self.name, self.span, paths, splits, which, table)


_BLOCK_NUMBERS = tuple(field.name for field in dataclasses.fields(Block) if field.name != "split")


def _unpack(
    split: str, name: str, span: str, paths: list[str], splits: list[str], which: np.ndarray, table: np.ndarray
) -> ShardPlan:
    pieces = tuple(
        Piece(paths[path], Block(splits[i], **dict(zip(_BLOCK_NUMBERS, numbers, strict=True))), first, last)
        for i, (path, first, last, *numbers) in zip(which.tolist(), table.tolist(), strict=True)
    )
    return ShardPlan(split, name, pieces, span)


def shard_name(stem: str, index: int, *, count: int, suffix: str) -> str:
    """``train-00000-of-00016.tfrecord.gz``; ``suffix``: what the compression adds, with its dot."""
    return f"{stem}-{index:05d}-of-{count:05d}.tfrecord{suffix}"


def sections(places: Sequence[str], *, shuffle_seed: int | None) -> list[list[int]]:
    """The indexes of the partitions of each section, by their places; with a seed in a pseudo-random order."""
    ranks = [int(digest(["section", shuffle_seed, place])[:15], 16) for place in places]
    order = range(len(places)) if shuffle_seed is None else sorted(range(len(places)), key=ranks.__getitem__)
    least, most = SECTION_PARTITIONS
    found: list[list[int]] = []
    for i in order:
        if not found or len(found[-1]) == most or (len(found[-1]) >= least and ranks[i] % 4 == 0):
            found.append([])
        found[-1].append(i)
    return found


def order_blocks(block_files: Sequence[BlockFile], split: str, *, shuffle_seed: str | int | None) -> list[Piece]:
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
