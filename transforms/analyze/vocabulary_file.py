"""From a merged vocabulary to its file: thresholds, top k, order, text.  The bytes are those that stock TFT writes."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.analyze.vocabulary import MergedVocabulary, one_array
from transforms.errors import ConfigError

CHUNK_ROWS = 1 << 20
_RECORD_SUFFIX = ".tfrecord.gz"


def entries(tokens: Sequence[Any], metrics: Sequence[Any], metric_type: pa.DataType) -> pa.Table:
    """Entries of a vocabulary: ``metric`` and ``token`` (large_binary)."""
    return pa.table({"metric": pa.array(metrics, metric_type), "token": pa.array(tokens, pa.large_binary())})


def prune(operation: Any, vocabulary: MergedVocabulary, empty_entry: tuple[int, bytes]) -> pa.Table:
    """The entries that TFT's ``VocabularyPrune`` keeps; with ``top_k`` alone they are in descending order.

    Raises ConfigError for a negative threshold or ``top_k``.
    """
    for name in ("top_k", "frequency_threshold", "coverage_top_k", "coverage_frequency_threshold"):
        if (getattr(operation, name) or 0) < 0:
            raise ConfigError(f"tft.vocabulary: {name} is {getattr(operation, name)}; it must be 0 or more, or None")
    kept = _select(
        vocabulary, operation.frequency_threshold, operation.informativeness_threshold, top_k=operation.top_k
    )
    if operation.top_k is not None and not kept.num_rows:
        kept = entries([empty_entry[1]], [empty_entry[0]], pa.int64())
    if not operation.key_fn:
        return kept
    covering = _select(
        vocabulary, operation.coverage_frequency_threshold, operation.coverage_informativeness_threshold, top_k=None
    )
    covering = _largest_by_key(covering, operation.coverage_top_k, operation.key_fn)
    both = pa.concat_tables([kept.cast(covering.schema), covering])
    return both.group_by(["metric", "token"], use_threads=False).aggregate([])


def _select(vocabulary: MergedVocabulary, frequency: float, information: float, *, top_k: int | None) -> pa.Table:
    """What passes the thresholds.  A token lives in one bucket, so each bucket can be cut down on its own."""
    tables = []
    for bucket in vocabulary.buckets():
        table = _above(bucket, frequency, information).select(["metric", "token"])
        if not pa.types.is_large_binary(table.column("token").type):
            table = table.set_column(1, "token", table.column("token").cast(pa.large_string()).cast(pa.large_binary()))
        tables.append(table if top_k is None else _largest(table, top_k))
    if not tables:
        return entries([], [], pa.int64())
    table = pa.concat_tables(tables)
    return table if top_k is None else _largest(table, top_k)


def _above(table: pa.Table, frequency: float, information: float) -> pa.Table:
    if frequency <= 0 and information == float("-inf"):
        return table
    if "frequency" not in table.schema.names:
        return table.filter(pc.greater_equal(table.column("metric"), frequency))
    often = pc.greater_equal(table.column("frequency"), frequency)
    return table.filter(pc.and_(often, pc.greater_equal(table.column("metric"), information)))


def _descending(table: pa.Table) -> pa.Array:
    return pc.sort_indices(table, sort_keys=[("metric", "descending"), ("token", "descending")])


def _largest(table: pa.Table, count: int) -> pa.Table:
    return table.take(_descending(table)[:count])


def _largest_by_key(table: pa.Table, count: int | None, key_fn: Callable[[bytes], Any]) -> pa.Table:
    """The ``count`` largest entries of each key that the user's function gives to the tokens (all when None)."""
    if count is None:
        return table
    ordered = table.take(_descending(table))
    taken: defaultdict[Any, int] = defaultdict(int)
    kept = []
    for row, token in enumerate(ordered.column("token").to_pylist()):
        key = key_fn(token)
        if taken[key] < count:
            taken[key] += 1
            kept.append(row)
    return ordered.take(pa.array(kept, pa.int64()))


def write_vocabulary(
    operation: Any, table: pa.Table, *, reserved: Sequence[bytes] | None, empty_entry: tuple[int, bytes], folder: str
) -> str:
    """Writes what TFT's ``VocabularyOrderAndWrite`` writes, and returns the path.

    ``reserved`` tokens come first, with the count -1, and are left out of the rest.
    """
    if reserved is not None:
        table = table.filter(
            pc.invert(pc.is_in(table.column("token"), value_set=pa.array(reserved, pa.large_binary())))
        )
    if operation.fingerprint_shuffle:
        digests = [hashlib.sha1(token).digest() for token in table.column("token").to_pylist()]
        table = table.take(pc.sort_indices(pa.array(digests, pa.binary(20))))
    else:
        table = table.take(_descending(table))
    first = [(-1, token) for token in reserved or ()]
    if not first and not table.num_rows:
        first = [empty_entry]
    path = os.path.join(folder, operation.vocab_filename)
    if operation.file_format == "text":
        _write_text(path, first, table, counts=operation.store_frequency)
        return path
    _write_records(path + _RECORD_SUFFIX, first, table, counts=operation.store_frequency)
    return path + _RECORD_SUFFIX


def _lines(first: Sequence[tuple[int, bytes]], table: pa.Table, *, counts: bool) -> list[pa.Array]:
    """The lines without line breaks, in chunks."""
    head = [b"%d %s" % entry if counts else entry[1] for entry in first]
    chunks = [pa.array(head, pa.large_binary())]
    for start in range(0, table.num_rows, CHUNK_ROWS):
        part = table.slice(start, CHUNK_ROWS).combine_chunks()
        tokens = one_array(part.column("token"))
        if counts:
            metrics = _as_text(one_array(part.column("metric")))
            tokens = pc.binary_join_element_wise(metrics, tokens, pa.scalar(b" ", pa.large_binary()))
        chunks.append(tokens)
    return chunks


def _as_text(metrics: pa.Array) -> pa.Array:
    """Numbers as Python prints them, which TFT relies on (Arrow prints floats in another way)."""
    if pa.types.is_floating(metrics.type):
        metrics = pa.array(np.char.encode(metrics.to_numpy().astype("U32"), "ascii"), pa.large_binary())
    return metrics.cast(pa.large_string()).cast(pa.large_binary())


def _write_text(path: str, first: Sequence[tuple[int, bytes]], table: pa.Table, *, counts: bool) -> None:
    line_break, nothing = pa.scalar(b"\n", pa.large_binary()), pa.scalar(b"", pa.large_binary())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as stream:
        for chunk in _lines(first, table, counts=counts):
            ended = pc.binary_join_element_wise(chunk, nothing, line_break)
            _, offsets, data = ended.buffers()
            if data is not None:
                ends = np.frombuffer(offsets, np.int64)
                stream.write(memoryview(data)[ends[ended.offset] : ends[ended.offset + len(ended)]])


def _write_records(path: str, first: Sequence[tuple[int, bytes]], table: pa.Table, *, counts: bool) -> None:
    from transforms.tensors import import_tensorflow

    os.makedirs(os.path.dirname(path), exist_ok=True)
    with import_tensorflow().io.TFRecordWriter(path, "GZIP") as writer:
        for chunk in _lines(first, table, counts=counts):
            for line in chunk.to_pylist():
                writer.write(line)
