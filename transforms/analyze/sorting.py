"""Sorting more rows than memory should hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.analyze.vocabulary import one_batch, parts

SORT_BYTES = 32 << 20  # what is sorted at once; Arrow holds it about three times meanwhile
SAMPLE = 64  # rows of the sample for each range

SortKeys = list[tuple[str, Literal["ascending", "descending"]]]


def in_order(tables: Iterable[pa.Table], keys: SortKeys, *, num_rows: int, path: str) -> Iterator[pa.Table]:
    """The rows of all tables, sorted, in tables of about ``SORT_BYTES``; ``keys`` go all in one direction.

    One of the tables must fit in memory.  When they do not all together, they are cut into ranges, in a file at
    ``path``, and sorted range by range.  ``num_rows``: of all tables, about.  Ranges are of one size when the first
    tables are a fair sample of all, as buckets by hash are.
    """
    held, size, tables = [], 0, iter(tables)
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size > SORT_BYTES:
            break
    if not held:
        return
    first = pa.concat_tables(held)
    ranges = -(-size * max(1, num_rows // max(1, first.num_rows)) // SORT_BYTES)
    rest = itertools.chain(held, tables)
    if ranges <= 1:
        yield _sorted(pa.concat_tables(rest), keys)
        return
    splitters = _splitters(first, keys, ranges)
    del first, held
    _write_ranges(rest, splitters, path)
    with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
        numbers = range(len(splitters) + 1)
        for number in numbers if keys[0][1] == "ascending" else reversed(numbers):
            found = range(number, reader.num_record_batches, len(numbers))
            yield _sorted(pa.Table.from_batches([reader.get_batch(i) for i in found]), keys)


def _sorted(table: pa.Table, keys: SortKeys) -> pa.Table:
    return table.take(pc.sort_indices(table, sort_keys=keys))


def _splitters(table: pa.Table, keys: SortKeys, ranges: int) -> list[dict[str, Any]]:
    """The rows between the ranges, ascending."""
    columns = [name for name, _ in keys]
    at = np.linspace(0, table.num_rows - 1, min(table.num_rows, SAMPLE * ranges)).astype(np.int64)
    sample = _sorted(table.select(columns).take(pa.array(at)), [(name, "ascending") for name in columns])
    between = np.linspace(0, sample.num_rows, ranges + 1)[1:-1].astype(np.int64)
    return list(sample.take(pa.array(between)).to_pylist())


def _write_ranges(tables: Iterable[pa.Table], splitters: Sequence[dict[str, Any]], path: str) -> None:
    """Writes a batch for each table and range."""
    tables = iter(tables)
    first = next(tables)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
        for table in itertools.chain([first], tables):
            batch = one_batch(table)
            number = np.zeros(len(batch), np.int64)
            for splitter in splitters:
                number += _is_beyond(batch, splitter).to_numpy(zero_copy_only=False)
            for part in parts(batch, number, len(splitters) + 1):
                writer.write_batch(part)


def _is_beyond(batch: pa.RecordBatch, splitter: dict[str, Any]) -> pa.Array:
    """Which rows are not less than the splitter."""
    beyond: pa.Array = pa.repeat(True, len(batch))
    for name, value in reversed(splitter.items()):
        column, limit = batch.column(name), pa.scalar(value, batch.schema.field(name).type)
        beyond = pc.or_(pc.greater(column, limit), pc.and_(pc.equal(column, limit), beyond))
    return beyond
