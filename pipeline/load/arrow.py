"""Without TensorFlow: Arrow RecordBatches and numpy arrays, blocks unpacked and decoded side by side."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.load.version import Split, check_shard
from transforms.assemble import ShardInfo
from transforms.partition import Block


class Ragged(NamedTuple):
    """Lists of different lengths: row i has ``values[offsets[i]:offsets[i + 1]]``; ``offsets`` is int64, n + 1.

    ``values`` of lists of lists, such as steps, are Ragged themselves.
    """

    values: np.ndarray | Ragged
    offsets: np.ndarray


def batches(
    split: Split,
    *,
    batch_size: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    threads: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The split as Arrow: a column of lists for each feature, null where it is absent.

    ``batch_size``: rows of each batch but the last; None: a batch for each block.  ``shuffle``: blocks in a random
    order, and the rows of each.  ``shard``: this reader's number, and how many read together; each gets blocks.  Raises
    CorruptError at a block that is damaged.
    """
    check_shard(shard)
    rng = np.random.default_rng(seed) if shuffle else None
    blocks = split.blocks()
    order = rng.permutation(len(blocks)) if rng is not None else np.arange(len(blocks))
    mine = [blocks[i] for i in order[shard[0] :: shard[1]].tolist()]
    made = _decoded(split, mine, threads or os.cpu_count() or 1)
    if rng is not None:
        made = (batch.take(pa.array(rng.permutation(batch.num_rows))) for batch in made)
    return made if batch_size is None else _resized(made, batch_size)


def arrays(
    split: Split,
    *,
    batch_size: int,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    threads: int | None = None,
) -> Iterator[dict[str, np.ndarray | Ragged]]:
    """``batches`` as numpy: ``[batch, *shape]`` for features of a fixed shape that are never absent, Ragged for others.

    Bytes are objects.
    """
    shapes = {
        feature.name: tuple(dim.size for dim in feature.shape.dim)
        for feature in split.schema.feature
        if feature.HasField("shape") and feature.presence.min_fraction == 1
    }
    found = batches(split, batch_size=batch_size, shuffle=shuffle, seed=seed, shard=shard, threads=threads)
    return (
        {name: _array(column, shapes.get(name)) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
        for batch in found
    )


def _decoded(split: Split, blocks: list[tuple[ShardInfo, Block]], threads: int) -> Iterator[pa.RecordBatch]:
    """The blocks as batches, in order; a few are made ahead."""

    def make(shard: ShardInfo, block: Block) -> pa.RecordBatch:
        return split.decode(split.read_block(shard, block).payloads())

    waiting = deque[Future[pa.RecordBatch]]()
    pool = ThreadPoolExecutor(threads)
    try:
        for shard, block in blocks:
            waiting.append(pool.submit(make, shard, block))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _resized(found: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of ``rows``; the last has what is left."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in found:
        at = 0
        while size + batch.num_rows - at >= rows:
            kept.append(batch.slice(at, rows - size))
            at += rows - size
            yield pa.concat_batches(kept)
            kept, size = [], 0
        if at < batch.num_rows:
            kept.append(batch.slice(at))
            size += batch.num_rows - at
    if kept:
        yield pa.concat_batches(kept)


def _array(column: pa.Array, shape: tuple[int, ...] | None) -> np.ndarray | Ragged:
    values = column.flatten()
    if shape is not None:
        return np.reshape(values.to_numpy(zero_copy_only=False), (len(column), *shape))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        return Ragged(_array(values, None), offsets)
    return Ragged(values.to_numpy(zero_copy_only=False), offsets)
