"""TFT's combiners over batches: one state, or one for each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.analyze.keyed import is_keyed, merge_keyed
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


class SketchPerKey:
    """A quantile sketch for each key; the first of the values is the key of each row."""

    def __init__(self, combiner: Any) -> None:
        self._combiner = combiner
        self._states: dict[Any, State] = {}

    def add(self, values: Values) -> None:
        for key, inputs in _rows_by_key(values):
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


def _rows_by_key(values: Values) -> Iterable[tuple[Any, Any]]:
    keys, inverse = np.unique(values[0], return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    cuts = np.cumsum(np.bincount(inverse, minlength=len(keys)))[:-1]
    columns = [np.split(column[order], cuts) for column in values[1:]]
    return zip(keys.tolist(), zip(*columns, strict=True), strict=True)


def merge_per_key(combiner: Any, parts: Iterable[pa.ipc.RecordBatchFileReader]) -> list[tuple[Any, Any]]:
    """Each key and the combiner's outputs for it, over all partitions, merged in their order."""
    if is_keyed(combiner):
        keys, arrays = merge_keyed(combiner, (part.get_batch(0) for part in parts))
        return [(key, combiner.extract_output(state)) for key, state in states_of(combiner, keys, arrays)]
    found: dict[Any, list[State]] = {}
    for part in parts:
        batch = part.get_batch(0)
        first = batch.filter(pa.array(batch.column("field").to_numpy() == 0))
        for key, state in zip(first.column("key").to_pylist(), decode_states(batch, combiner), strict=True):
            found.setdefault(key, []).append(state)
    return [(key, combiner.extract_output(_merge(combiner, states))) for key, states in found.items()]


def _merge(combiner: Any, states: Sequence[State]) -> State:
    return combiner.merge_accumulators([combiner.create_accumulator(), *states])


def states_of(combiner: Any, keys: pa.Array, arrays: Sequence[np.ndarray]) -> Iterable[tuple[Any, State]]:
    """Each key and its state as the combiner has it."""
    make = getattr(combiner, "accumulator_class", None)
    for key, *state in zip(keys.to_pylist(), *arrays, strict=True):
        yield key, make(*state) if make else state
