"""What choices cost, measured on a sample of the user's own data."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.sample import Sample
from transforms.compression import Compression, Packed
from transforms.partition import Block
from transforms.preprocess import output_seconds
from transforms.tensors import import_tensorflow

LONG = 0.5  # seconds: what takes longer is not run again
FEATURE_ROWS = 4096  # that a transform graph is tried on
CODEC_BLOCKS = 8
SHARE_BYTES = 4 << 20  # of Examples, on which features are measured
SHARE_LEVEL = 6
REPEATS = 3  # of which the fastest counts: what is slower was disturbed


@dataclass(frozen=True)
class Codec:
    """``num_bytes``: of some blocks of the sample, as stored; ``raw_bytes``: before.

    ``write``, ``read``: bytes of records per second and thread; ``read`` by ``tf.data``, None where not measured."""

    compression: Compression
    num_bytes: int
    raw_bytes: int
    write: float
    read: float | None = None

    @property
    def name(self) -> str:
        plain = self.compression.name == "none"
        return "none" if plain else f"{self.compression.name}, level {self.compression.level}"


def measure_codec(compression: Compression, blocks: Sequence[np.ndarray], *, read: bool = False) -> Codec:
    packed: list[Packed] = []

    def pack() -> None:
        packed[:] = [compression.pack(block, num_records=1) for block in blocks]

    seconds = _fastest(pack)
    raw = sum(block.nbytes for block in blocks)
    return Codec(
        compression,
        sum(len(block.data) for block in packed),
        raw,
        write=raw / seconds,
        read=raw / _seconds_to_read(blocks, packed, compression) if read else None,
    )


def _seconds_to_read(raw: Sequence[np.ndarray], packed: Sequence[Packed], compression: Compression) -> float:
    tf = import_tensorflow()
    blocks = [Block("", 0, len(p.data), r.nbytes, 1, 0, p.checksum) for r, p in zip(raw, packed, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sample")
        with open(path, "wb") as stream:
            stream.writelines([compression.head(), *(block.data for block in packed), compression.tail(blocks)])
        data = tf.data.TFRecordDataset(path, compression.tensorflow_type, buffer_size=8 << 20).batch(1024)
        return _fastest(lambda: sum(1 for _ in data))


def levels(sample: Sample, now: Compression, *, read: bool = False) -> list[Codec]:
    """The compression as it is, and others that could be, from the fastest to the smallest."""
    blocks = sample.blocks()
    blocks = blocks[:: -(-len(blocks) // CODEC_BLOCKS)]
    others = [dataclasses.replace(now, name="gzip", level=level) for level in (1, 3, 6, 9)]
    if now not in others:
        others.append(now)
    return [measure_codec(c, blocks, read=read) for c in sorted(others, key=lambda c: (c.name != "none", c.level))]


def feature_bytes(sample: Sample, compression: Compression) -> dict[str, int]:
    """How many stored bytes of the sample each feature takes: what they are fewer without it."""
    batch = sample.written
    total = stored_bytes(batch, sample, compression)
    if batch.num_columns == 1:
        return {batch.schema.names[0]: total}
    without = {name: batch.remove_column(i) for i, name in enumerate(batch.schema.names)}
    return {name: total - stored_bytes(rest, sample, compression) for name, rest in without.items()}


def stored_bytes(batch: pa.RecordBatch, sample: Sample, compression: Compression) -> int:
    """Of the batch, which has the sample's rows, as Examples: of some rows, and at no level that takes minutes."""
    rows = max(1, min(sample.num_rows, SHARE_BYTES * sample.num_rows // sample.num_bytes))
    level = dataclasses.replace(compression, level=min(compression.level, SHARE_LEVEL))
    return sum(len(level.pack(block, num_records=1).data) for block in sample.blocks(batch.slice(0, rows)))


def feature_seconds(sample: Sample) -> dict[str, float]:
    """How long the transform graph takes for each of its outputs alone, of all rows of the sample; {} without one.

    What several outputs are made of counts for each of them.
    """
    if sample.transform_dir is None:
        return {}
    batch = sample.features.slice(0, FEATURE_ROWS)
    scale = sample.features.num_rows / batch.num_rows
    found = output_seconds(sample.transform_dir, sample.schema, batch)
    return {name: seconds * scale for name, seconds in found.items()}


def _fastest(work: Callable[[], object]) -> float:
    def once() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    seconds = once()
    return seconds if seconds > LONG else min(seconds, *(once() for _ in range(REPEATS - 1)))
