"""TFT's combiners over batches: one state, or one for each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.analyze.states import State, decode_states, encode_states

Values = tuple[np.ndarray, ...]


class Combine:
    """One state over all batches."""

    def __init__(self, combiner: Any) -> None:
        self._combiner = combiner
        self._state = combiner.create_accumulator()

    def add(self, values: Values) -> None:
        self._state = self._combiner.add_input(self._state, values)

    def batches(self) -> list[pa.RecordBatch]:
        return [pa.RecordBatch.from_pydict(encode_states([self._combiner.compact(self._state)]))]


def merge_combined(combiner: Any, parts: Iterable[pa.ipc.RecordBatchFileReader]) -> State:
    """The state over all partitions, merged in their order."""
    states = [state for part in parts for state in decode_states(part.get_batch(0), combiner)]
    return combiner.merge_accumulators([combiner.create_accumulator(), *states])


class CombinePerKey:
    """A state for each key; the first of the values is the keys."""

    def __init__(self, combiner: Any) -> None:
        self._combiner = combiner
        self._states: dict[Any, State] = {}
        # A sketch takes all rows of a key at once; the other combiners get batches that the graph has reduced by key.
        self._takes_rows = type(combiner).__name__ == "QuantilesCombiner"

    def add(self, values: Values) -> None:
        pairs = _rows_by_key(values) if self._takes_rows else _one_row_a_key(values)
        self.add_pairs(pairs)

    def add_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        for key, inputs in pairs:
            state = self._states.get(key)
            state = self._combiner.create_accumulator() if state is None else state
            self._states[key] = self._combiner.add_input(state, inputs)

    def batches(self) -> list[pa.RecordBatch]:
        keys = list(self._states)
        states = encode_states(self._combiner.compact(state) for state in self._states.values())
        first = np.flatnonzero(states["field"].to_numpy() == 0)
        counts = np.diff(np.append(first, len(states["field"])))
        kind = pa.int64() if keys and isinstance(keys[0], int | np.integer) else pa.large_binary()
        repeated = pa.array(keys, kind).take(pa.array(np.repeat(np.arange(len(keys)), counts)))
        return [pa.RecordBatch.from_pydict({"key": repeated, **states})]


def _one_row_a_key(values: Values) -> Iterable[tuple[Any, Any]]:
    keys = values[0].tolist()
    return zip(keys, zip(*values[1:], strict=True), strict=True) if len(values) > 1 else ((key, ()) for key in keys)


def _rows_by_key(values: Values) -> Iterable[tuple[Any, Any]]:
    keys, inverse = np.unique(values[0], return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    cuts = np.cumsum(np.bincount(inverse, minlength=len(keys)))[:-1]
    columns = [np.split(column[order], cuts) for column in values[1:]]
    return zip(keys.tolist(), zip(*columns, strict=True), strict=True)


def merge_per_key(combiner: Any, parts: Iterable[pa.ipc.RecordBatchFileReader]) -> dict[Any, State]:
    """The state of each key over all partitions, merged in their order."""
    found: dict[Any, list[State]] = {}
    for part in parts:
        batch = part.get_batch(0)
        first = batch.filter(pa.array(batch.column("field").to_numpy() == 0))
        for key, state in zip(first.column("key").to_pylist(), decode_states(batch, combiner), strict=True):
            found.setdefault(key, []).append(state)
    return {key: _merge(combiner, states) for key, states in found.items()}


def _merge(combiner: Any, states: Sequence[State]) -> State:
    return combiner.merge_accumulators([combiner.create_accumulator(), *states])
