"""States for many keys as arrays: what TFT's combiners do for one key at a time, done for all keys of a batch at once.

For the combiners whose states are numbers.  Each formula is that of the combiner, operation by operation, so that
results are the same to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Arrays = list[np.ndarray]  # one array for each number of a state; the first axis is the keys
Values = tuple[np.ndarray, ...]

PENDING_ROWS = 1 << 16  # from which on batches are combined; more when there are more keys than that


def is_keyed(combiner: Any) -> bool:
    return type(combiner).__name__ in ("NumPyCombiner", "WeightedMeanAndVarCombiner")


class KeyedStates:
    """Key -> state.  A key stands at most once in a batch; batches are combined in their order."""

    def __init__(self, combiner: Any) -> None:
        self._combine = _reduction(combiner) if type(combiner).__name__ == "NumPyCombiner" else _moments(combiner)
        self._keys: pa.Array | None = None
        self._states: Arrays = []
        self._pending: list[tuple[pa.Array, Arrays]] = []
        self._rows = 0

    def add(self, values: Values) -> None:
        """``values``: the keys (bytes or int64), and the numbers of their states."""
        keys = values[0]
        kind = pa.int64() if keys.dtype.kind in "iu" else pa.large_binary()
        self.add_states(pa.array(keys, kind), list(values[1:]))

    def add_states(self, keys: pa.Array, states: Arrays) -> None:
        self._pending.append((keys, states))
        self._rows += len(keys)
        if self._rows > max(PENDING_ROWS, len(self._keys or ())):
            self._flush()

    def items(self) -> tuple[pa.Array, Arrays]:
        """The keys in order of first appearance, and their states."""
        self._flush()
        return (pa.array([], pa.large_binary()), []) if self._keys is None else (self._keys, self._states)

    def batches(self) -> list[pa.RecordBatch]:
        keys, states = self.items()
        columns = [pa.FixedSizeListArray.from_arrays(pa.array(s.reshape(-1)), _size(s)) for s in states]
        shapes = {"shapes": json.dumps([s.shape[1:] for s in states])}
        names = ["key", *map(str, range(len(states)))]
        return [pa.RecordBatch.from_arrays([keys, *columns], names=names).replace_schema_metadata(shapes)]

    def _flush(self) -> None:
        """Combines the pending batches.  All keys are numbered at once: that is the costly part."""
        if not self._pending:
            return
        known = [] if self._keys is None else [self._keys]
        encoded = pa.concat_arrays([*known, *(keys for keys, _ in self._pending)]).dictionary_encode()
        numbers = encoded.indices.to_numpy()
        start, count = (len(known[0]), len(known[0])) if known else (0, 0)
        for keys, states in self._pending:
            at = numbers[start : start + len(keys)]
            start += len(keys)
            grown = max(count, int(at.max(initial=-1)) + 1)
            self._states = self._combined(at, states, count, grown)
            count = grown
        self._keys, self._pending, self._rows = encoded.dictionary, [], 0

    def _combined(self, at: np.ndarray, states: Arrays, count: int, grown: int) -> Arrays:
        """The states of ``grown`` keys, ``count`` of which were there, with those of the keys ``at`` added."""
        is_new = at >= count
        before = np.where(is_new, 0, at)
        old = [s[before] for s in self._states] if count else [np.zeros_like(s) for s in states]
        combined = self._combine(old, states, is_new)
        result = []
        for i, rows in enumerate(combined):
            kept = self._states[i] if count else rows[:0]
            into = np.zeros((grown, *rows.shape[1:]), np.result_type(kept, rows))
            into[tuple(slice(0, n) for n in kept.shape)] = kept
            into[at] = rows
            result.append(into)
        return result


def _size(states: np.ndarray) -> int:
    return int(np.prod(states.shape[1:], dtype=np.int64))


def merge_keyed(combiner: Any, batches: Iterable[pa.RecordBatch]) -> tuple[pa.Array, Arrays]:
    """The states of all keys over the batches of all partitions, combined in their order."""
    merged = KeyedStates(combiner)
    for batch in batches:
        shapes = json.loads(batch.schema.metadata[b"shapes"])
        states = [
            column.flatten().to_numpy().reshape(len(column), *shape)
            for column, shape in zip(batch.columns[1:], shapes, strict=True)
        ]
        if batch.num_rows:
            merged.add_states(batch.column("key"), states)
    return merged.items()


Combine = Callable[[Arrays, Arrays, np.ndarray], Arrays]  # old states, new states, which rows have no old state


def _reduction(combiner: Any) -> Combine:
    """Of a ``NumPyCombiner``: a sum or a maximum."""

    def combine(old: Arrays, new: Arrays, is_new: np.ndarray) -> Arrays:
        return [np.where(_beside(is_new, n), n, combiner._fn((o, n), axis=0)) for o, n in zip(old, new, strict=True)]

    return combine


def _moments(combiner: Any) -> Combine:
    """Of a ``WeightedMeanAndVarCombiner``: count, mean, variance, weight (the mean of the weights)."""
    has_variance, has_weight = combiner._compute_variance, combiner._compute_weighted

    def clean(state: Arrays) -> Arrays:
        count, mean, variance, weight = state
        return [
            count,
            np.nan_to_num(mean),
            np.nan_to_num(variance) if has_variance else np.zeros(mean.shape),
            np.nan_to_num(weight) if has_weight else np.ones(count.shape),
        ]

    def combine(old: Arrays, new: Arrays, is_new: np.ndarray) -> Arrays:
        old = [np.where(_beside(is_new, o), 0, o) for o in old]
        pairs = [_padded(o, n) for o, n in zip(clean(old), clean(new), strict=True)]
        swap = _total(pairs[0][0]) < _total(pairs[0][1])  # the state with more rows comes first
        a = [np.where(_beside(swap, n), n, o) for o, n in pairs]
        b = [np.where(_beside(swap, n), o, n) for o, n in pairs]
        with np.errstate(divide="ignore", invalid="ignore"):
            result = _combined_moments(a, b, has_variance=has_variance, has_weight=has_weight)
        is_empty = _total(a[0]) == 0
        return [np.where(_beside(is_empty, r), x, r) for r, x in zip(result, b, strict=True)]

    return combine


def _combined_moments(a: Arrays, b: Arrays, *, has_variance: bool, has_weight: bool) -> Arrays:
    (a_count, a_mean, a_variance, a_weight), (b_count, b_mean, b_variance, b_weight) = a, b
    total = a_count + b_count
    if has_weight:
        weight = a_weight + (b_count / total) * (b_weight - a_weight)
        mean = a_mean + _beside(b_count * b_weight / (total * weight), a_mean) * (b_mean - a_mean)
    else:
        weight = np.ones(total.shape)
        mean = a_mean + _beside(b_count / total, a_mean) * (b_mean - a_mean)
    variance = np.zeros(mean.shape)
    if has_variance:
        variance = a_variance + _beside(b_count / total, a_variance) * (
            b_variance - a_variance + ((b_mean - mean) * (b_mean - a_mean))
        )
    return [total, mean, variance, weight]


def _total(counts: np.ndarray) -> np.ndarray:
    return np.asarray(counts.sum(axis=tuple(range(1, counts.ndim))))


def _beside(values: np.ndarray, other: np.ndarray) -> np.ndarray:
    """``values`` with axes of length 1 added, to stand beside an array of more axes."""
    return values.reshape(values.shape + (1,) * (other.ndim - values.ndim))


def _padded(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with zeros at the end of each axis where the other is longer: labels that were not met yet."""
    shape = tuple(map(max, left.shape, right.shape))
    padded: Sequence[np.ndarray] = [
        x if x.shape == shape else np.pad(x, [(0, n - m) for n, m in zip(shape, x.shape, strict=True)])
        for x in (left, right)
    ]
    return padded[0], padded[1]
