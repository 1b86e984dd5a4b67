"""What spoils statistics without an error: columns without values, infinity, and numbers too large."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

# float32 must tell at least so many values of a column's range apart for its mean and variance to mean something.
MIN_STEPS = 1024

log = logging.getLogger("recordmill")


@dataclass
class _Range:
    rows: int = 0
    values: int = 0  # neither missing nor NaN nor infinite
    infinite: int = 0
    least: float = np.inf
    greatest: float = -np.inf


class Observer:
    """Looks at the named numeric columns of feature batches."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._ranges = {name: _Range() for name in columns}

    def add(self, batch: pa.RecordBatch) -> None:
        for name, seen in self._ranges.items():
            column = batch.column(name)
            seen.rows += len(column)
            if not pa.types.is_primitive(column.type):
                column = column.flatten()
            values = (column.drop_null() if column.null_count else column).to_numpy().astype(np.float64)
            seen.infinite += int(np.isinf(values).sum())
            values = values[np.isfinite(values)]
            if len(values):
                seen.values += len(values)
                seen.least, seen.greatest = min(seen.least, values.min()), max(seen.greatest, values.max())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """For each column a row: column, rows, values, infinite, least, greatest."""
        schema = pa.schema(
            [
                ("column", pa.string()),
                ("rows", pa.int64()),
                ("values", pa.int64()),
                ("infinite", pa.int64()),
                ("least", pa.float64()),
                ("greatest", pa.float64()),
            ]
        )
        for name, seen in self._ranges.items():
            yield pa.RecordBatch.from_pylist([{"column": name, **vars(seen)}], schema=schema)


def warn_of_spoiled_columns(batches: Iterable[pa.RecordBatch]) -> None:
    """Logs a warning for each column whose statistics mean nothing, from the observations of all partitions."""
    total: dict[str, _Range] = {}
    for batch in batches:
        for row in batch.to_pylist():
            seen = total.setdefault(row["column"], _Range())
            seen.rows += row["rows"]
            seen.values += row["values"]
            seen.infinite += row["infinite"]
            seen.least, seen.greatest = min(seen.least, row["least"]), max(seen.greatest, row["greatest"])
    for name, seen in total.items():
        _warn(name, seen)


def _warn(name: str, seen: _Range) -> None:
    if seen.rows and not seen.values:
        log.warning(
            "column %r has no number in any of the %d analyzed rows: its statistics mean nothing", name, seen.rows
        )
    elif seen.infinite:
        log.warning(
            "column %r has %d infinite values in %d analyzed rows: its mean, variance and range are infinite or NaN; "
            "put tf.where(tf.math.is_inf(x), float('nan'), x) before its analyzers: NaN counts as missing",
            name,
            seen.infinite,
            seen.rows,
        )
    elif 0 < seen.greatest - seen.least < MIN_STEPS * _spacing(max(abs(seen.least), abs(seen.greatest))):
        log.warning(
            "column %r has values from %.17g to %.17g: its range needs more than float32 holds, so that means and "
            "variances of it are wrong; subtract an offset in the preprocessing_fn before it is cast to float32, or "
            "declare the column as bytes with 64-bit floats",
            name,
            seen.least,
            seen.greatest,
        )


def _spacing(value: float) -> float:
    """The distance from a number to the next one in float32."""
    with np.errstate(over="ignore"):
        spacing = float(np.spacing(np.float32(value)))
    return spacing if np.isfinite(spacing) else 0.0
