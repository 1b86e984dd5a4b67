"""What the features of a split are like: counts, moments, quantiles, distinct and most frequent values.

Parts are collected batch by batch while a partition is built, stand in its block file, and add up to those of a
version.
Counts, moments and extremes are exact.  The others are sketches of bounded size:

- quantiles: values at equal distances in rank, each with the weight of those around it; from a sample of at most
  SAMPLED values of a batch, so that a rank is about 1 % off;
- distinct values: the DISTINCT smallest hashes ("k minimum values", Beyer et al. 2007), 3 % off;
- most frequent values: counters that lose the weakest where there are more than COUNTERS (Misra and Gries 1982, merged
  after Agarwal et al. 2012), so that a count is at most 1/COUNTERS of all values too low.  Where most values of a batch
  are different from each other, every SPARSE-th is counted.
"""

from __future__ import annotations

import ctypes
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.native import Int64, Pointer, kernel
from transforms.sources.nested import is_list
from transforms.split import hash_rows

SAMPLED = 4096
POINTS = 512  # of the quantiles of a partition, and of a version
DISTINCT = 1024
ALL_HASHES = np.uint64(2**64 - 1)
COUNTERS = 1024
SPARSE = 16
SPARSE_ROWS = 1024  # at least, of those that are counted then
LOOK_BYTES = 32 << 20  # of features that are looked at together
GOLDEN = (5**0.5 - 1) / 2
LONG_BYTES = 256  # values that are longer, in the mean, are no categories: nothing counts them

_moments_float = kernel("moments_float", [Pointer, Int64, Pointer])
_moments_int64 = kernel("moments_int64", [Pointer, Int64, Pointer])


@dataclass
class FeatureStatistics:
    """Of one feature in one split.  ``rows`` includes the ``missing``, in which the feature has no value.

    ``m2``: sum of the squared distances to the mean, of the ``values`` without ``nan``.  ``length_…``: bytes.
    ``text``: all that was looked at is UTF-8.  ``points``, ``weights``: float64; ``hashes``: uint64, in order;
    ``top_values``: binary, with ``top_counts`` (int64), the most frequent first.
    """

    kind: str = ""  # int, float, bytes
    rows: int = 0
    missing: int = 0
    values: int = 0
    min_values: int = 0
    max_values: int = 0
    nan: int = 0
    zeros: int = 0
    mean: float = 0.0
    m2: float = 0.0
    min: float = 0.0
    max: float = 0.0
    length_sum: int = 0
    length_min: int = 0
    length_max: int = 0
    text: bool = True
    points: np.ndarray = field(default_factory=lambda: np.empty(0, np.float64))
    weights: np.ndarray = field(default_factory=lambda: np.empty(0, np.float64))
    hashes: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    top_values: pa.Array = field(default_factory=lambda: pa.array([], pa.large_binary()))
    top_counts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def deviation(self) -> float:
        numbers = self.values - self.nan
        return float(np.sqrt(self.m2 / numbers)) if numbers else 0.0

    @property
    def distinct(self) -> int:
        """About how many different values there are; exact up to DISTINCT."""
        if len(self.hashes) < DISTINCT:
            return len(self.hashes)
        return round((DISTINCT - 1) / (float(self.hashes[-1]) / 2.0**64))

    def quantiles(self, ranks: np.ndarray) -> np.ndarray:
        """The values below which these parts (0 to 1) of all lie."""
        if not len(self.points):
            return np.full(len(ranks), np.nan)
        reached, wanted = np.cumsum(self.weights), np.asarray(ranks) * self.weights.sum()
        if self.kind == "int":  # no value between two values
            middle = self.points[np.minimum(np.searchsorted(reached, wanted), len(self.points) - 1)]
        else:
            middle = np.interp(wanted, reached - self.weights / 2, self.points)
        return np.where(ranks <= 0, self.min, np.where(ranks >= 1, self.max, middle))


Statistics = Mapping[tuple[str, str], FeatureStatistics]  # by split and feature


class Collector:
    """Collects the statistics of the feature batches of a partition (see ``docs/architecture.md``).

    Some batches are looked at together, since a look costs the same for few rows as for many: ``finish`` looks at the
    last.
    """

    def __init__(self, splits: Sequence[str]) -> None:
        self._splits = splits
        self._waiting: list[tuple[pa.RecordBatch, np.ndarray]] = []
        self._waiting_bytes = 0
        self._seen: list[Statistics] = []
        self._below: dict[tuple[str, str], np.uint64] = {}  # hashes that may still be among the smallest

    def look(self, batch: pa.RecordBatch, split: np.ndarray) -> None:
        """``split``: the index of the split of each row (int32)."""
        num_bytes = batch.nbytes
        if self._waiting and (
            self._waiting[0][0].schema != batch.schema or self._waiting_bytes + num_bytes > LOOK_BYTES
        ):
            self._look()
        self._waiting.append((batch, split))
        self._waiting_bytes += num_bytes

    def finish(self) -> Statistics:
        """Of all that was seen."""
        self._look()
        return add(self._seen)

    def _look(self) -> None:
        if not self._waiting:
            return
        split = np.concatenate([split for _, split in self._waiting])
        table = pa.Table.from_batches([batch for batch, _ in self._waiting])
        self._waiting, self._waiting_bytes = [], 0
        found: dict[tuple[str, str], FeatureStatistics] = {}
        for number, rows in enumerate(np.bincount(split, minlength=len(self._splits)).tolist()):
            if rows:
                part = table if rows == table.num_rows else table.filter(pa.array(split == number))
                for name, column in zip(part.schema.names, part.columns, strict=True):
                    key = self._splits[number], name
                    found[key] = _of_column(_in_one(column), self._below.get(key, ALL_HASHES))
                    if len(found[key].hashes) == DISTINCT:
                        self._below[key] = found[key].hashes[-1]
        self._seen.append(found)


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def add(parts: Iterable[Statistics]) -> dict[tuple[str, str], FeatureStatistics]:
    """The statistics of all the data, from those of its parts."""
    total: dict[tuple[str, str], list[FeatureStatistics]] = {}
    for part in parts:
        for key, found in part.items():
            waiting = total.setdefault(key, [])
            waiting.append(found)
            if len(waiting) == 32:
                waiting[:] = [_sum(waiting)]
    return {key: _sum(waiting) for key, waiting in sorted(total.items())}


def _of_column(column: pa.Array, below: np.uint64) -> FeatureStatistics:
    """``below``: larger hashes are not looked for."""
    found = FeatureStatistics(rows=len(column), min_values=1, max_values=1)
    if is_list(column.type):
        lengths = pc.fill_null(column.value_lengths(), 0)
        filled = lengths.filter(pc.greater(lengths, 0))
        found.missing = len(column) - len(filled)
        extremes = pc.min_max(filled)
        found.min_values, found.max_values = extremes["min"].as_py() or 0, extremes["max"].as_py() or 0
        column = column.flatten()
        while is_list(column.type):
            column = column.flatten()
    else:
        found.missing = column.null_count
    if column.null_count:
        column = column.drop_null()
    found.values = len(column)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        found.kind = "int" if pa.types.is_integer(column.type) else "float"
        _look_at_numbers(found, column)
    else:
        found.kind = "bytes"
        _look_at_bytes(found, column, below)
    return found


def _look_at_numbers(found: FeatureStatistics, column: pa.Array) -> None:
    moments, dtype = (_moments_int64, np.int64) if found.kind == "int" else (_moments_float, np.float32)
    values = np.ascontiguousarray(column.to_numpy(zero_copy_only=False), dtype)
    result = (ctypes.c_double * 7)()
    moments(values.ctypes.data, len(values), ctypes.addressof(result))
    count, nan, zeros, found.mean, found.m2, low, high = result
    found.nan, found.zeros = int(nan), int(zeros)
    if count:
        found.min, found.max = low, high
    sample = values
    if len(values) > SAMPLED:  # one of each stretch, at places that follow no period of the data
        places = (np.arange(SAMPLED) + np.arange(SAMPLED) * GOLDEN % 1) * (len(values) / SAMPLED)
        sample = values[places.astype(np.int64)]
    sample = np.sort(sample[~np.isnan(sample)])
    found.points = sample.astype(np.float64)
    found.weights = np.full(len(sample), count / max(len(sample), 1))
    _shorten_points(found)


def _look_at_bytes(found: FeatureStatistics, column: pa.Array, below: np.uint64) -> None:
    lengths = pc.binary_length(column)
    if len(column):
        extremes = pc.min_max(lengths)
        found.length_sum = pc.sum(lengths).as_py()
        found.length_min, found.length_max = extremes["min"].as_py(), extremes["max"].as_py()
    if found.length_sum > LONG_BYTES * found.values:
        found.text = _is_text(column[:: max(1, len(column) // 8)])
        return
    counted, scale = _counted(column)
    values, counts = counted.field("values"), counted.field("counts").to_numpy() * scale
    hashes = _hashes(values if scale == 1 else column)
    found.hashes = _smallest(hashes[hashes < below] if below < ALL_HASHES else hashes)
    found.text = _is_text(values.slice(0, 256))
    found.top_values, found.top_counts = _strongest(values.cast(pa.large_binary()), counts)


def _counted(column: pa.Array) -> tuple[pa.StructArray, int]:
    """The different values with their counts, and how many values each counted one stands for."""
    if len(column) >= SPARSE * SPARSE_ROWS:
        sparse = column.take(pa.array(np.arange(0, len(column), SPARSE)))
        counted = pc.value_counts(sparse)
        if len(counted) > len(sparse) / 2:
            return counted, SPARSE
    return pc.value_counts(column), 1


def _is_text(values: pa.Array) -> bool:
    try:
        values.cast(pa.large_string() if pa.types.is_large_binary(values.type) else pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _hashes(values: pa.Array) -> np.ndarray:
    return hash_rows(pa.RecordBatch.from_arrays([values], names=[""]))


def _smallest(hashes: np.ndarray) -> np.ndarray:
    """The DISTINCT smallest different ones, in order; of many, those are sorted that are likely to be among them."""
    if len(hashes) > 16 * DISTINCT:
        low = _different(hashes[hashes < np.uint64(2.0**64 * 4 * DISTINCT / len(hashes))])
        if len(low) >= DISTINCT:
            return low[:DISTINCT]
    return _different(hashes)[:DISTINCT]


def _different(hashes: np.ndarray) -> np.ndarray:
    """Each once, in order; numpy's sort is faster than the hash table of its ``unique``."""
    hashes = np.sort(hashes)
    return hashes[np.concatenate([[True], hashes[1:] != hashes[:-1]])] if len(hashes) else hashes


def _strongest(values: pa.Array, counts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """By count and then by value; where there are more than COUNTERS, each less the count of the first that is out."""
    if len(counts) > COUNTERS:
        least = np.partition(counts, -COUNTERS - 1)[-COUNTERS - 1]
        kept = np.flatnonzero(counts > least)
        values, counts = values.take(pa.array(kept)), counts[kept] - least
    order = pc.sort_indices(pa.table({"n": counts, "v": values}), sort_keys=[("n", "descending"), ("v", "ascending")])
    return values.take(order), counts[order.to_numpy()].astype(np.int64)


def _shorten_points(found: FeatureStatistics) -> None:
    """Takes POINTS values at equal distances in rank for more of them; ``points`` are in order."""
    if len(found.points) <= POINTS:
        return
    total = float(found.weights.sum())
    ranks = (np.arange(POINTS) + 0.5) * (total / POINTS)
    chosen = np.searchsorted(np.cumsum(found.weights), ranks)
    found.points = found.points[np.minimum(chosen, len(found.points) - 1)]
    found.weights = np.full(POINTS, total / POINTS)


def _sum(parts: Sequence[FeatureStatistics]) -> FeatureStatistics:
    """Moments after Chan, Golub and LeVeque (1979)."""
    if len(parts) == 1:
        return parts[0]
    total = FeatureStatistics(kind=parts[0].kind)
    for name in ("rows", "missing", "values", "nan", "zeros", "length_sum"):
        setattr(total, name, sum(getattr(part, name) for part in parts))
    total.text = all(part.text for part in parts)
    some = [part for part in parts if part.values]
    if not some:
        return total
    for name, choose in (("min", min), ("max", max)):
        setattr(total, f"{name}_values", choose(getattr(part, f"{name}_values") for part in some))
        setattr(total, f"length_{name}", choose(getattr(part, f"length_{name}") for part in some))
    numbers = [part for part in some if part.values > part.nan]
    if total.kind == "bytes":
        total.hashes = _different(np.concatenate([part.hashes for part in some]))[:DISTINCT]
        counted = pa.table(
            {
                "v": pa.concat_arrays([part.top_values for part in some]),
                "n": np.concatenate([part.top_counts for part in some]),
            }
        )
        summed = counted.group_by("v", use_threads=False).aggregate([("n", "sum")])
        total.top_values, total.top_counts = _strongest(
            summed["v"].combine_chunks(), summed["n_sum"].combine_chunks().to_numpy()
        )
    elif numbers:
        counts = np.array([part.values - part.nan for part in numbers], np.float64)
        means = np.array([part.mean for part in numbers])
        total.mean = float(np.average(means, weights=counts))
        total.m2 = float(sum(part.m2 for part in numbers) + np.sum(counts * (means - total.mean) ** 2))
        total.min, total.max = min(part.min for part in numbers), max(part.max for part in numbers)
        points = np.concatenate([part.points for part in numbers])
        order = np.argsort(points, kind="stable")
        total.points = points[order]
        total.weights = np.concatenate([part.weights for part in numbers])[order]
        _shorten_points(total)
    return total


_ARROW = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_LISTS = {
    "points": pa.float64(),
    "weights": pa.float64(),
    "hashes": pa.uint64(),
    "top_values": pa.large_binary(),
    "top_counts": pa.int64(),
}
_SCHEMA = pa.schema(
    [("split", pa.string()), ("feature", pa.string())]
    + [
        (f.name, pa.list_(_LISTS[f.name]) if f.name in _LISTS else _ARROW[str(f.type)])
        for f in dataclasses.fields(FeatureStatistics)
    ]
)


def to_bytes(statistics: Statistics) -> bytes:
    """An Arrow stream with a row for each split and feature, whose columns are the fields of FeatureStatistics."""
    rows = [{"split": split, "feature": name, **vars(found)} for (split, name), found in statistics.items()]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([_column(rows, f.name, f.type) for f in _SCHEMA], schema=_SCHEMA))
    return sink.getvalue()


def _column(rows: Sequence[Mapping[str, Any]], name: str, kind: pa.DataType) -> pa.Array:
    values = [row[name] for row in rows]
    if name not in _LISTS:
        return pa.array(values, kind)
    offsets = pa.array(np.cumsum([0, *map(len, values)]), pa.int32())
    parts = [pa.array(part, kind.value_type) if isinstance(part, np.ndarray) else part for part in values]
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(parts) if parts else pa.array([], kind.value_type))


def from_bytes(content: bytes) -> dict[tuple[str, str], FeatureStatistics]:
    with pa.ipc.open_stream(content) as reader:
        table = reader.read_all().combine_chunks()
    return {(split, name): found for split, name, found in _rows(table)}


def _rows(table: pa.Table) -> Iterator[tuple[str, str, FeatureStatistics]]:
    plain = table.drop_columns(list(_LISTS)).to_pylist()
    lists = {name: table.column(name) for name in _LISTS}
    for i, row in enumerate(plain):
        parts = {name: column[i].values for name, column in lists.items()}
        arrays = {name: part if name == "top_values" else part.to_numpy() for name, part in parts.items()}
        yield row.pop("split"), row.pop("feature"), FeatureStatistics(**row, **arrays)
