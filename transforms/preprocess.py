"""The user's ``preprocessing_fn``, and the transform graph that the analysis makes of it."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.errors import SchemaError
from transforms.fingerprint import digest, library_version
from transforms.schema import Schema
from transforms.tensors import (
    TensorReader,
    TensorWriter,
    ancestors,
    describe_row,
    graph_error,
    import_tensorflow,
    no_collection,
    type_specs,
)
from transforms.usercode import UserFunction

FUNCTION = "preprocessing_fn"
LIBRARIES = ("tensorflow", "tensorflow_transform", "tfx_bsl")  # whose versions may change what the function makes
MANY_ROWS = 1000  # of a batch: a function that fails on more is at fault itself

_loading = threading.RLock()


class Preprocessing(UserFunction):
    """The ``preprocessing_fn`` of a Python file."""

    def __init__(self, path: str, name: str = FUNCTION) -> None:
        super().__init__(path, name)

    @classmethod
    def load(cls, path: str) -> Preprocessing:
        """Looks at the file without running it; it runs, and imports TensorFlow, when ``function`` is asked for.

        Raises ConfigError, which names the path, when it cannot be read or has no ``preprocessing_fn``.
        """
        loaded = cls(path)
        loaded.check(example=f"`def {FUNCTION}(inputs):` that returns a dict of features")
        return loaded

    @functools.cached_property
    def digest(self) -> str:
        """``UserFunction.digest`` with the versions of the libraries that the function is written with."""
        return digest({"modules": super().digest, "libraries": {name: library_version(name) for name in LIBRARIES}})

    @functools.cached_property
    def function(self) -> Callable[[Any], Any]:
        """``preprocessing_fn``, with integers and floats of other widths cast to what an Example holds.

        Raises ConfigError with the user's line when the file cannot be imported.
        """
        import_tensorflow()
        return _with_feature_types(super().function)


def _with_feature_types(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(function)
    def preprocessing_fn(inputs: Any) -> Any:
        outputs = function(inputs)
        if not isinstance(outputs, dict):
            return outputs
        return {name: _as_feature(name, tensor) for name, tensor in outputs.items()}

    return preprocessing_fn


def _as_feature(name: str, tensor: Any) -> Any:
    """A tensor of a type that an Example holds; float64 that float32 cannot hold fails when it meets the data."""
    tf = import_tensorflow()
    if not hasattr(tensor, "dtype") or tensor.dtype in (tf.string, tf.int64, tf.float32):
        return tensor
    if tensor.dtype.is_integer or tensor.dtype.is_bool:
        return tf.cast(tensor, tf.int64)
    if not tensor.dtype.is_floating:
        return tensor
    cast = tf.cast(tensor, tf.float32)
    if tensor.dtype == tf.float64:
        was, is_now = (getattr(t, "flat_values", getattr(t, "values", t)) for t in (tensor, cast))
        message = f"feature {name!r}: a float64 is too large for float32"
        with tf.control_dependencies(
            [tf.debugging.assert_equal(tf.math.is_inf(was), tf.math.is_inf(is_now), message=message)]
        ):
            cast = tf.nest.map_structure(tf.identity, cast, expand_composites=True)
    return cast


class TransformGraph:
    """The SavedModel of an analysis, applied to feature batches.  It is loaded once in a process."""

    def __init__(self, transform_dir: str, schema: Schema) -> None:
        with _loading:
            self._graph = _load_graph(os.path.abspath(transform_dir), schema)

    def output_schema(self) -> pa.Schema:
        """The transformed features by name: int64, float32 and large_binary, lists and fixed-size lists of these."""
        return self._graph.writer.schema

    def transform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """``transform_good`` of a batch in which no row may fail.  Raises SchemaError that shows the first."""
        made, failed = self.transform_good(batch)
        for row, reason in failed.items():
            raise SchemaError(f"row {row + 1} of a batch ({describe_row(batch, row)}): {reason}")
        return made

    def transform_good(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The transformed features of a feature batch, rows in the same order; and the positions of rows that are not
        among them, since the graph fails on each alone, with TensorFlow's reason.

        Raises SchemaError when the graph fails on the batch, but on no row of it alone, or on more than ``MANY_ROWS``;
        and when it makes another number of rows.
        """
        failed: dict[int, str] = {}
        try:
            made = self._graph.apply(batch)
        except self._graph.failures as error:
            self._find_failures(batch, 0, graph_error(error), failed)
            if not failed:
                raise SchemaError(f"preprocessing_fn fails on a batch: {graph_error(error)}") from error
            batch = batch.filter(pa.array(np.isin(np.arange(batch.num_rows), list(failed), invert=True)))
            made = self._graph.apply(batch)
        if made.num_rows != batch.num_rows:
            raise SchemaError(
                f"preprocessing_fn made {made.num_rows} rows of {batch.num_rows}; each of its outputs must have one "
                "row for each row of the inputs"
            )
        return made, failed

    def _find_failures(self, batch: pa.RecordBatch, start: int, reason: str, failed: dict[int, str]) -> None:
        """Adds the rows of a batch that fails which fail alone, by halves; ``start``: the position of its first row."""
        if batch.num_rows == 1:
            failed[start] = f"preprocessing_fn fails on it: {reason}"
            if len(failed) > MANY_ROWS:
                raise SchemaError(f"preprocessing_fn fails on more than {MANY_ROWS} rows of a batch: {reason}")
            return
        half = batch.num_rows // 2
        for first, part in ((start, batch.slice(0, half)), (start + half, batch.slice(half))):
            try:
                self._graph.apply(part)
            except self._graph.failures as error:
                self._find_failures(part, first, graph_error(error), failed)


def output_seconds(transform_dir: str, schema: Schema, batch: pa.RecordBatch, *, repeats: int = 3) -> dict[str, float]:
    """How long the graph takes to make each of its outputs alone of the batch: by name, the fastest of some runs."""
    with _loading, no_collection():
        graph = _Graph(os.path.abspath(transform_dir), schema)
    return {name: min(graph.seconds_of(name, batch, repeats)) for name in graph.outputs}


@functools.lru_cache(maxsize=4)
@no_collection()
def _load_graph(transform_dir: str, schema: Schema) -> _Graph:
    return _Graph(transform_dir, schema)


class _Graph:
    def __init__(self, transform_dir: str, schema: Schema) -> None:
        tf = import_tensorflow()
        from tensorflow_transform import tf2_utils
        from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

        # TensorFlow decodes its own message, which may quote bytes of the data.
        self.failures = (tf.errors.OpError, UnicodeDecodeError)
        self._loader = SavedModelLoader(os.path.join(transform_dir, "transform_fn"))
        outputs = self._loader.structured_outputs
        components = tf.nest.flatten(outputs, expand_composites=True)
        inputs = tf2_utils.get_structured_inputs_from_func_graph(components[0].graph)
        used = ancestors([tensor.op for tensor in components])
        specs = type_specs(schema.to_proto())
        needed = {
            name
            for name, tensor in inputs.items()
            if name in specs and any(t.op.name in used for t in tf.nest.flatten(tensor, expand_composites=True))
        }
        self._loader.finalize(needed, set(outputs))
        self._needed = needed
        self.outputs = tuple(outputs)
        self._reader = TensorReader(schema.to_proto(), needed)
        self.writer = TensorWriter(outputs)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self.writer.write(self._loader.apply_transform_model(self._reader.read(batch)))

    def seconds_of(self, output: str, batch: pa.RecordBatch, repeats: int) -> list[float]:
        """Of each of some runs that make one output alone; the graph makes no other from then on."""
        self._loader.finalize(self._needed, {output})
        tensors = self._reader.read(batch)
        self._loader.apply_transform_model(tensors)  # the first run traces
        found = []
        for _ in range(repeats):
            begin = time.perf_counter()
            self._loader.apply_transform_model(tensors)
            found.append(time.perf_counter() - begin)
        return found
