"""Histograms of features with the same bins for all data, so that they add up and can be compared.

Numbers: the bin is the sign, the exponent and the four highest bits of the mantissa of the float32, so that a bin is at
most 6.25 % wide.  Bytes: one of 256 bins, by a hash.  Missing values, and NaN, have bins of their own.  A row with a
list counts with each of its values.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.sources.nested import is_list
from transforms.split import hash_rows

BINS = 256  # of bytes: few, so that chance alone moves them little
MISSING, NAN = -1, -2  # bins besides 0 and up

Histograms = Mapping[str, Mapping[int, int]]  # feature -> bin -> count

_SCHEMA = pa.schema([("feature", pa.string()), ("bin", pa.int32()), ("count", pa.int64())])


def count(batches: Iterable[pa.RecordBatch]) -> Histograms:
    """The histograms of feature batches (see ``Schema.arrow_schema``)."""
    found: dict[str, dict[int, int]] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            counts = found.setdefault(name, {})
            for bins in _bins(column):
                values, numbers = np.unique(bins, return_counts=True)
                for bin_, number in zip(values.tolist(), numbers.tolist(), strict=True):
                    counts[bin_] = counts.get(bin_, 0) + number
    return found


def _bins(column: pa.Array) -> Iterable[np.ndarray]:
    if is_list(column.type):
        empty = pc.fill_null(pc.equal(column.value_lengths(), 0), True)
        yield np.full(pc.sum(empty).as_py() or 0, MISSING)
        column = column.flatten()
    if column.null_count:
        yield np.full(column.null_count, MISSING)
        column = column.drop_null()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        with np.errstate(over="ignore"):
            values = column.to_numpy(zero_copy_only=False).astype(np.float32) + np.float32(0)  # -0 is 0
        bins = (values.view(np.uint32) >> np.uint32(19)).astype(np.int32)
        yield np.where(np.isnan(values), NAN, bins)
    else:
        hashes = hash_rows(pa.RecordBatch.from_arrays([column], names=[""]))
        yield (hashes % np.uint64(BINS)).astype(np.int32)


def add(parts: Iterable[Histograms]) -> Histograms:
    """The histograms of all the data, from those of its parts."""
    total: dict[str, dict[int, int]] = {}
    for part in parts:
        for name, counts in part.items():
            sums = total.setdefault(name, {})
            for bin_, number in counts.items():
                sums[bin_] = sums.get(bin_, 0) + number
    return total


def to_bytes(histograms: Histograms) -> bytes:
    """An Arrow stream: feature, bin, count, in order."""
    rows = [(name, bin_, n) for name, counts in sorted(histograms.items()) for bin_, n in sorted(counts.items())]
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_bytes(content: bytes) -> Histograms:
    with pa.ipc.open_stream(content) as reader:
        table = reader.read_all()
    found: dict[str, dict[int, int]] = {}
    for name, bin_, n in zip(*(table.column(c).to_pylist() for c in ("feature", "bin", "count")), strict=True):
        found.setdefault(name, {})[bin_] = n
    return found


def divergence(old: Mapping[int, float], new: Mapping[int, float]) -> float:
    """The Jensen–Shannon divergence (Lin 1991) of two histograms, in bits: 0 for the same shape, 1 for nothing in
    common."""
    bins = sorted(old.keys() | new.keys())
    p, q = (np.array([counts.get(bin_, 0) for bin_ in bins], np.float64) for counts in (old, new))
    if not p.sum() or not q.sum():
        return 0.0 if p.sum() == q.sum() else 1.0
    p, q = p / p.sum(), q / q.sum()
    middle = (p + q) / 2
    return float(sum(0.5 * np.sum(x[x > 0] * np.log2(x[x > 0] / middle[x > 0])) for x in (p, q)))
