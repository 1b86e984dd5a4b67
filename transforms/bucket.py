"""Buckets of rows, permuted and cut into blocks again: the second half of an exact shuffle of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transforms.blockfile import BlockFile, Counts, read_block, read_block_file, write_block_file
from transforms.build import BuildSpec, bucket_name
from transforms.cut import BlockCutter, ShuffleSeed
from transforms.fingerprint import digest
from transforms.tfrecord import Records, scan
from transforms.timing import timed

BUCKET_BYTES = 64 << 20  # of the source, for one bucket of all splits; bounds the memory of its shuffle


@dataclass(frozen=True)
class Bucket:
    """One bucket of one split in a span, and the block files, in the order of their partitions, that hold its rows."""

    split: str
    number: int
    block_files: tuple[str, ...]
    span: str = ""

    def key(self, spec: BuildSpec, partition_keys: Sequence[str]) -> str:
        """``partition_keys``: those of the block files, which stand for their content."""
        return digest([self.split, self.number, list(partition_keys), spec.compression, spec.seed])


def num_buckets(num_bytes: int) -> int:
    return max(1, -(-num_bytes // BUCKET_BYTES))


def shuffle_bucket(bucket: Bucket, path: str, *, spec: BuildSpec) -> None:
    """Reads the bucket's rows from all block files, permutes them and commits them as the block file ``path``.

    Rows are dealt to buckets at random and permuted in each, so the buckets in order are one uniform permutation of
    the split's rows.  Holds one bucket in memory.
    """
    name = bucket_name(bucket.split, bucket.number)
    with write_block_file(path) as writer:
        seed = ShuffleSeed(spec.seed, name)
        cutter = BlockCutter(writer, spec.compression, (bucket.split,), shuffle=seed, window_bytes=1 << 62)
        for block_file in map(read_block_file, bucket.block_files):
            for records in timed("read", _records(block_file, name, spec)):
                cutter.add(records, np.zeros(len(records), dtype=np.int32))
        cutter.finish()
        writer.finish(Counts(rows_read=cutter.num_records, rows_written=cutter.num_records))


def _records(block_file: BlockFile, group: str, spec: BuildSpec) -> list[Records]:
    with open(block_file.path, "rb") as stream:
        return [
            scan(
                spec.stored_as.unpack(
                    read_block(stream, block, path=block_file.path), raw_bytes=block.raw_bytes, name=block_file.path
                ),
                name=block_file.path,
            )
            for block in block_file.blocks
            if block.split == group
        ]
