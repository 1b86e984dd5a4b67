"""From a merged vocabulary to its file: thresholds, top k, order, text.  The bytes are those that stock TFT writes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.analyze.sorting import SortKeys, in_order
from transforms.analyze.vocabulary import MergedVocabulary, SmallVocabulary, Vocabulary, one_array, write_merged
from transforms.errors import ConfigError

CHUNK_ROWS = 1 << 18
DESCENDING: SortKeys = [("metric", "descending"), ("token", "descending")]
_RECORD_SUFFIX = ".tfrecord.gz"


def entries(tokens: Sequence[Any], metrics: Sequence[Any], metric_type: pa.DataType) -> pa.Table:
    """Entries of a vocabulary: ``metric`` and ``token`` (large_binary)."""
    return pa.table({"metric": pa.array(metrics, metric_type), "token": pa.array(tokens, pa.large_binary())})


def prune(operation: Any, vocabulary: MergedVocabulary, empty_entry: tuple[int, bytes]) -> Vocabulary:
    """The entries that TFT's ``VocabularyPrune`` keeps, in no order.

    Memory holds a bucket, and the ``top_k`` entries or, with a ``key_fn``, all that pass the thresholds.  Raises
    ConfigError for a negative threshold or ``top_k``.
    """
    for name in ("top_k", "frequency_threshold", "coverage_top_k", "coverage_frequency_threshold"):
        if (getattr(operation, name) or 0) < 0:
            raise ConfigError(f"tft.vocabulary: {name} is {getattr(operation, name)}; it must be 0 or more, or None")
    often, informative = operation.frequency_threshold, operation.informativeness_threshold
    kept = (_above(bucket, often, informative) for bucket in vocabulary.buckets())
    if operation.top_k is None and not operation.key_fn:
        if often <= 0 and informative == float("-inf"):
            return vocabulary
        return write_merged(kept, f"{vocabulary.path}.kept")
    table = _largest(map(as_entries, kept), operation.top_k)
    if operation.top_k is not None and not table.num_rows:
        table = entries([empty_entry[1]], [empty_entry[0]], pa.int64())
    if not operation.key_fn:
        return SmallVocabulary(table)
    often, informative = operation.coverage_frequency_threshold, operation.coverage_informativeness_threshold
    covering = _largest((as_entries(_above(bucket, often, informative)) for bucket in vocabulary.buckets()), None)
    covering = _largest_by_key(covering, operation.coverage_top_k, operation.key_fn)
    both = pa.concat_tables([table.cast(covering.schema), covering])
    return SmallVocabulary(both.group_by(["metric", "token"], use_threads=False).aggregate([]))


def as_entries(table: pa.Table) -> pa.Table:
    """``metric`` and ``token`` as the file has it: whole numbers as text."""
    token = table.column("token")
    if not pa.types.is_large_binary(token.type):
        token = token.cast(pa.large_string()).cast(pa.large_binary())
    return pa.table({"metric": table.column("metric"), "token": token})


def _above(table: pa.Table, frequency: float, information: float) -> pa.Table:
    if frequency <= 0 and information == float("-inf"):
        return table
    if "frequency" not in table.schema.names:
        return table.filter(pc.greater_equal(table.column("metric"), frequency))
    often = pc.greater_equal(table.column("frequency"), frequency)
    return table.filter(pc.and_(often, pc.greater_equal(table.column("metric"), information)))


def _descending(table: pa.Table) -> pa.Array:
    return pc.sort_indices(table, sort_keys=DESCENDING)


def _largest(tables: Iterable[pa.Table], count: int | None) -> pa.Table:
    """The ``count`` largest entries of all tables (all when None), of which there is one at least."""
    if count is None:
        return pa.concat_tables(tables)
    tables = iter(tables)
    largest = next(tables)
    for table in tables:
        both = pa.concat_tables([largest, table])
        largest = both.take(_descending(both)[:count])
    return largest.take(_descending(largest)[:count])


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
    operation: Any,
    vocabulary: Vocabulary,
    *,
    reserved: Sequence[bytes] | None,
    empty_entry: tuple[int, bytes],
    folder: str,
) -> str:
    """Writes what TFT's ``VocabularyOrderAndWrite`` writes, and returns the path.

    ``reserved`` tokens come first, with the count -1, and are left out of the rest.  Memory holds ``SORT_BYTES`` of the
    entries, a few times over, however many there are.
    """
    tables: Iterable[pa.Table] = map(as_entries, vocabulary.buckets())
    if reserved is not None:
        unwanted = pa.array(reserved, pa.large_binary())
        tables = (t.filter(pc.invert(pc.is_in(t.column("token"), value_set=unwanted))) for t in tables)
    order: SortKeys = DESCENDING
    if operation.fingerprint_shuffle:
        tables, order = map(_with_fingerprints, tables), [("fingerprint", "ascending")]
    first = [(-1, token) for token in reserved or ()]
    if not first and not vocabulary.num_tokens:
        first = [empty_entry]
    path = os.path.join(folder, operation.vocab_filename)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temp_dir:
        ordered = in_order(tables, order, num_rows=vocabulary.num_tokens, path=os.path.join(temp_dir, "ranges"))
        lines = _lines(first, ordered, counts=operation.store_frequency)
        if operation.file_format == "text":
            _write_text(path, lines)
            return path
        _write_records(path + _RECORD_SUFFIX, lines)
        return path + _RECORD_SUFFIX


def _with_fingerprints(table: pa.Table) -> pa.Table:
    digests = [hashlib.sha1(token).digest() for token in table.column("token").to_pylist()]
    return table.append_column("fingerprint", pa.array(digests, pa.large_binary()))


def _lines(first: Sequence[tuple[int, bytes]], tables: Iterable[pa.Table], *, counts: bool) -> Iterator[pa.Array]:
    """The lines without line breaks, in chunks."""
    yield pa.array([b"%d %s" % entry if counts else entry[1] for entry in first], pa.large_binary())
    for table in tables:
        for start in range(0, table.num_rows, CHUNK_ROWS):
            part = table.slice(start, CHUNK_ROWS).combine_chunks()
            tokens = one_array(part.column("token"))
            if counts:
                metrics = _as_text(one_array(part.column("metric")))
                tokens = pc.binary_join_element_wise(metrics, tokens, pa.scalar(b" ", pa.large_binary()))
            yield tokens


def _as_text(metrics: pa.Array) -> pa.Array:
    """Numbers as Python prints them, which TFT relies on (Arrow prints floats in another way)."""
    if pa.types.is_floating(metrics.type):
        metrics = pa.array(np.char.encode(metrics.to_numpy().astype("U32"), "ascii"), pa.large_binary())
    return metrics.cast(pa.large_string()).cast(pa.large_binary())


def _write_text(path: str, lines: Iterable[pa.Array]) -> None:
    line_break, nothing = pa.scalar(b"\n", pa.large_binary()), pa.scalar(b"", pa.large_binary())
    with open(path, "wb") as stream:
        for chunk in lines:
            ended = pc.binary_join_element_wise(chunk, nothing, line_break)
            _, offsets, data = ended.buffers()
            if data is not None:
                ends = np.frombuffer(offsets, np.int64)
                stream.write(memoryview(data)[ends[ended.offset] : ends[ended.offset + len(ended)]])


def _write_records(path: str, lines: Iterable[pa.Array]) -> None:
    from transforms.tensors import import_tensorflow

    with import_tensorflow().io.TFRecordWriter(path, "GZIP") as writer:
        for chunk in lines:
            for line in chunk.to_pylist():
                writer.write(line)
