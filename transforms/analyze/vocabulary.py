"""Vocabularies counted in columns: token -> count or weight, split by token hash into buckets that fit in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.split import hash_rows

BUCKETS = 16
COMPACT_ROWS = 1 << 18  # pending rows from which on they are summed up


class VocabularyCounts:
    """Counts tokens, or sums their weights.  Holds each distinct token of its batches once."""

    def __init__(self, *, is_text: bool, weighted: bool) -> None:
        self._weighted = weighted
        self._schema = counts_schema(is_text=is_text, weighted=weighted)
        self._pending: list[pa.Table] = []
        self._rows = 0

    def add(self, values: tuple[np.ndarray, ...]) -> None:
        """``values``: the tokens of a batch, and their weights where weights are summed."""
        tokens = pa.array(values[0], self._schema.field("token").type)
        if self._weighted:
            self._append(pa.table([tokens, pa.array(values[1], pa.float64())], schema=self._schema))
        else:
            self.add_tokens(tokens)

    def add_tokens(self, tokens: pa.Array) -> None:
        if len(tokens):
            counts = pc.value_counts(tokens)
            columns = [counts.field("values").cast(self._schema.field("token").type), counts.field("counts")]
            self._append(pa.table(columns, schema=self._schema))

    def _append(self, table: pa.Table) -> None:
        self._pending.append(table)
        self._rows += table.num_rows
        if self._rows > max(COMPACT_ROWS, 2 * self._pending[0].num_rows):
            self._pending = [sum_up(self._pending, self._schema)]
            self._rows = self._pending[0].num_rows

    def batches(self) -> list[pa.RecordBatch]:
        """One batch for each bucket."""
        table = sum_up(self._pending, self._schema).combine_chunks()
        batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=self._schema)
        bucket = (hash_rows(batch.select(["token"])) % np.uint64(BUCKETS)).astype(np.int8)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=BUCKETS))
        ordered = batch.take(pa.array(order))
        return [ordered.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def counts_schema(*, is_text: bool, weighted: bool) -> pa.Schema:
    token = pa.large_binary() if is_text else pa.int64()
    return pa.schema([pa.field("token", token), pa.field("metric", pa.float64() if weighted else pa.int64())])


def sum_up(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """One row for each token, in order of first appearance."""
    if not tables:
        return schema.empty_table()
    grouped = pa.concat_tables(tables).group_by("token", use_threads=False).aggregate([("metric", "sum")])
    return grouped.select(["token", "metric_sum"]).rename_columns(["token", "metric"]).cast(schema)


@dataclass(frozen=True)
class MergedVocabulary:
    """A vocabulary over all partitions, in a file with one batch for each bucket.

    Columns: token (large_binary or int64), metric (count, weight, or mutual information), and ``frequency`` where the
    metric is mutual information.
    """

    path: str
    num_tokens: int

    def buckets(self) -> Iterator[pa.Table]:
        with pa.memory_map(self.path) as source, pa.ipc.open_file(source) as reader:
            for i in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(i)])


def merge_counts(
    parts: Sequence[pa.ipc.RecordBatchFileReader], path: str, *, filter_tokens: Callable[[pa.Table], pa.Table] | None
) -> MergedVocabulary:
    """Sums up bucket by bucket, in partition order, so that memory holds one bucket at a time."""
    schema = parts[0].schema
    merged = (sum_up([pa.Table.from_batches([p.get_batch(i)]) for p in parts], schema) for i in range(BUCKETS))
    return write_merged(map(filter_tokens, merged) if filter_tokens else merged, schema, path)


def write_merged(tables: Iterable[pa.Table], schema: pa.Schema, path: str) -> MergedVocabulary:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    num_tokens = 0
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for table in tables:
            num_tokens += table.num_rows
            writer.write_table(table.combine_chunks())
    return MergedVocabulary(path, num_tokens)


def without_line_breaks(table: pa.Table) -> pa.Table:
    """Leaves out empty tokens and those with a line break: a text file cannot hold them.

    Within a graph TFT filters by the regular expression ``^$|\\C*[\\n\\r]\\C*``; this is for tokens that met no graph.
    """
    tokens = table.column("token")
    unfit = pc.equal(pc.binary_length(tokens), 0)
    for line_break in (b"\n", b"\r"):
        unfit = pc.or_(unfit, pc.match_substring(tokens, line_break))
    return table.filter(pc.invert(unfit))
