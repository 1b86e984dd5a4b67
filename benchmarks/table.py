"""The Criteo-like table of the benchmarks: a label, 13 integers, 26 short strings; about 334 bytes a row as CSV."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv

BATCH_ROWS = 100_000
TOKENS = 50_000  # distinct values of a string column


def batches(rows: int, *, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """The first ``rows`` rows of an endless table, the same each time."""
    widths = 10 ** np.random.default_rng(seed).integers(1, 6, 13)
    tokens = pa.array([f"{token:08x}" for token in range(TOKENS)])
    for start in range(0, rows, BATCH_ROWS):
        size = min(BATCH_ROWS, rows - start)
        rng = np.random.default_rng([seed, start])
        columns = {"label": pa.array(rng.integers(0, 2, BATCH_ROWS)[:size])}
        for i, width in enumerate(widths):
            columns[f"i{i}"] = pa.array(rng.integers(0, width, BATCH_ROWS)[:size])
        for i in range(26):
            columns[f"c{i}"] = tokens.take(pa.array(rng.integers(0, TOKENS, BATCH_ROWS)[:size]))
        yield pa.RecordBatch.from_pydict(columns)


def write_csv(path: str, rows: int) -> None:
    first = next(batches(1))
    with pa.csv.CSVWriter(path, first.schema) as writer:
        for batch in batches(rows):
            writer.write_batch(batch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--rows", type=int, default=100_000)
    arguments = parser.parse_args()
    write_csv(arguments.path, arguments.rows)
