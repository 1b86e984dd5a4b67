"""The states of combiners as Arrow columns: numpy arrays with dtype and shape, quantile sketches as their own bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

State = Any  # of a TFT combiner: an array, a sketch, or a sequence of these
SKETCH = "quantiles"

FIELDS = [
    pa.field("field", pa.int32()),  # its number in the state; a new state begins at 0
    pa.field("dtype", pa.string()),
    pa.field("shape", pa.list_(pa.int64())),
    pa.field("data", pa.large_binary()),  # C order, little-endian
]


def encode_states(states: Iterable[State]) -> dict[str, pa.Array]:
    """The columns ``FIELDS``, each state as many rows as it has fields."""
    columns: dict[str, list[Any]] = {field.name: [] for field in FIELDS}
    for state in states:
        for number, part in enumerate(state if isinstance(state, tuple | list) else [state]):
            dtype, shape, data = _encode(part)
            for name, value in zip(columns, (number, dtype, shape, data), strict=True):
                columns[name].append(value)
    return {field.name: pa.array(columns[field.name], field.type) for field in FIELDS}


def _encode(part: Any) -> tuple[str, Sequence[int], bytes]:
    if type(part).__name__ == "QuantilesSketch":
        return SKETCH, (), part.__getstate__()
    array = np.ascontiguousarray(part)
    if array.dtype.hasobject:
        raise TypeError(f"a state of type {type(part).__name__} has no form as an array")
    return array.dtype.newbyteorder("<").str, np.shape(part), array.tobytes()


def decode_states(columns: pa.RecordBatch, combiner: Any) -> list[State]:
    """The states of a combiner, ready for its ``merge_accumulators``."""
    dtypes, shapes = columns.column("dtype").to_pylist(), columns.column("shape").to_pylist()
    parts = [
        _decode(dtype, shape, data)
        for dtype, shape, data in zip(dtypes, shapes, columns.column("data").to_pylist(), strict=True)
    ]
    starts = np.flatnonzero(columns.column("field").to_numpy() == 0).tolist()
    make = getattr(combiner, "accumulator_class", None)
    states: list[State] = []
    for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
        if dtypes[start] == SKETCH:
            states.append(parts[start])
        else:
            states.append(make(*parts[start:end]) if make else parts[start:end])
    return states


def _decode(dtype: str, shape: Sequence[int], data: bytes) -> Any:
    if dtype == SKETCH:
        from tfx_bsl.sketches import QuantilesSketch

        sketch = QuantilesSketch.__new__(QuantilesSketch)
        sketch.__setstate__(data)
        return sketch
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()
