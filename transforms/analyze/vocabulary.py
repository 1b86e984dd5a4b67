"""Vocabularies counted in columns: token -> count or weight, split by token hash into buckets that fit in memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.split import hash_rows

BUCKETS = 16
# What is held before it is counted or summed up, for each vocabulary; hashing many tokens at once is cheaper by half.
PENDING_ROWS = 1 << 17
PENDING_BYTES = 8 << 20
# Distinct tokens from which on they are summed up bucket by bucket: below, that costs more than it saves memory.
MANY_TOKENS = 1 << 19


class VocabularyCounts:
    """Counts tokens, or sums their weights.  Holds each distinct token of its batches about twice."""

    def __init__(self, *, is_text: bool, weighted: bool) -> None:
        self._weighted = weighted
        self._schema = counts_schema(is_text=is_text, weighted=weighted)
        self._summed = [self._schema.empty_table()]  # of all tokens together, or one for each bucket
        self._tables: list[pa.Table] = []
        self._tokens: list[pa.Array] = []
        self._pending = [0, 0]  # rows and bytes of the tokens
        self._table_rows = 0

    def add(self, values: tuple[np.ndarray, ...]) -> None:
        """``values``: the tokens of a batch, and their weights where weights are summed."""
        tokens = pa.array(values[0], self._schema.field("token").type)
        if self._weighted:
            self._append(pa.table([tokens, pa.array(values[1], pa.float64())], schema=self._schema))
        else:
            self.add_tokens(tokens)

    def add_tokens(self, tokens: pa.Array) -> None:
        """Tokens of a batch, to be counted; they are held for a while."""
        tokens = tokens.cast(self._schema.field("token").type)
        self._tokens.append(tokens)
        self._pending = [self._pending[0] + len(tokens), self._pending[1] + tokens.nbytes]
        if self._pending[0] > PENDING_ROWS or self._pending[1] > PENDING_BYTES:
            self._count()

    def _count(self) -> None:
        if self._tokens:
            counts = pc.value_counts(pa.chunked_array(self._tokens))
            self._tokens, self._pending = [], [0, 0]
            self._append(pa.table([counts.field("values"), counts.field("counts")], schema=self._schema))

    def _append(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._table_rows += table.num_rows
        if self._table_rows > max(PENDING_ROWS, sum(table.num_rows for table in self._summed) // 2):
            self._sum()

    def _sum(self) -> None:
        if not self._tables:
            return
        added, self._tables, self._table_rows = pa.concat_tables(self._tables), [], 0
        pieces = [added] if len(self._summed) == 1 else _by_bucket(added)
        del added
        for i, piece in enumerate(pieces):
            self._summed[i] = sum_up([self._summed[i], piece], self._schema)
        if len(self._summed) == 1 and self._summed[0].num_rows > MANY_TOKENS:
            self._summed = _by_bucket(self._summed[0])

    def batches(self) -> list[pa.RecordBatch]:
        """One batch for each bucket."""
        self._count()
        self._sum()
        tables = self._summed if len(self._summed) > 1 else _by_bucket(self._summed[0])
        return [one_batch(table) for table in tables]


def _by_bucket(table: pa.Table) -> list[pa.Table]:
    batch = one_batch(table)
    return [pa.Table.from_batches([part]) for part in parts(batch, bucket_of(batch.column("token")), BUCKETS)]


def bucket_of(tokens: pa.Array) -> np.ndarray:
    """The number of each token's bucket."""
    batch = pa.RecordBatch.from_arrays([tokens], names=["token"])
    return np.asarray(hash_rows(batch) % np.uint64(BUCKETS)).astype(np.int64)


def parts(batch: pa.RecordBatch, number: np.ndarray, count: int) -> list[pa.RecordBatch]:
    """The rows of each of ``count`` numbers, in their order."""
    ordered = batch.take(pa.array(np.argsort(number, kind="stable")))
    ends = np.cumsum(np.bincount(number, minlength=count)).tolist()
    return [ordered.slice(start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def counts_schema(*, is_text: bool, weighted: bool) -> pa.Schema:
    token = pa.large_binary() if is_text else pa.int64()
    return pa.schema([pa.field("token", token), pa.field("metric", pa.float64() if weighted else pa.int64())])


def sum_up(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """One row for each token, in order of first appearance.  Counts are exact up to 2**53."""
    both = pa.concat_tables(tables)
    encoded = one_array(both.column("token")).dictionary_encode()
    sums = np.bincount(
        encoded.indices.to_numpy(), weights=both.column("metric").to_numpy(), minlength=len(encoded.dictionary)
    )
    metric = schema.field("metric").type
    return pa.table([encoded.dictionary, pa.array(sums.astype(metric.to_pandas_dtype()))], schema=schema)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([one_array(column) for column in table.columns], schema=table.schema)


@dataclass(frozen=True)
class MergedVocabulary:
    """A vocabulary over all partitions, in a file with one batch for each bucket.

    Columns: token (large_binary or int64), metric (count, weight, or mutual information), and ``frequency`` where the
    metric is mutual information.
    """

    path: str
    num_tokens: int

    def buckets(self) -> Iterator[pa.Table]:
        with pa.OSFile(self.path) as source, pa.ipc.open_file(source) as reader:
            for i in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(i)])


@dataclass(frozen=True)
class SmallVocabulary:
    """A vocabulary in memory, with the same columns."""

    table: pa.Table

    @property
    def num_tokens(self) -> int:
        return int(self.table.num_rows)

    def buckets(self) -> Iterator[pa.Table]:
        yield self.table


Vocabulary = MergedVocabulary | SmallVocabulary


def merge_counts(
    states: Sequence[pa.ipc.RecordBatchFileReader], path: str, *, filter_tokens: Callable[[pa.Table], pa.Table] | None
) -> MergedVocabulary:
    """Sums up bucket by bucket, in partition order, so that memory holds one bucket at a time."""
    schema = states[0].schema
    merged = (sum_up([pa.Table.from_batches([s.get_batch(i)]) for s in states], schema) for i in range(BUCKETS))
    return write_merged(map(filter_tokens, merged) if filter_tokens else merged, path)


def write_merged(tables: Iterable[pa.Table], path: str) -> MergedVocabulary:
    """Writes tables of one schema, of which there is one at least; an empty one is a batch without rows."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tables = iter(tables)
    first = next(tables)
    num_tokens = 0
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
        for table in itertools.chain([first], tables):
            num_tokens += table.num_rows
            writer.write_batch(one_batch(table))
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
