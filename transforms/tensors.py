"""Feature batches into tensors and tensors into feature batches, column by column.

What a feature is as a tensor follows from the TFMD schema in the way of TFX: ``tensor_representation_group`` where it
says so, else dense for features with a ``shape``, and sparse with one ragged dimension for the others.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import SchemaError, shorten

Tensors = Mapping[str, Any]  # feature -> tf.Tensor, tf.SparseTensor or tf.RaggedTensor, each with the rows first

_NOTE = re.compile(rb"WARNING: All log messages before absl|[IW]\d{4} \d\d:|To enable the following instructions")
# Lines around the message of an operation that failed.
_NOISE = re.compile(
    r"Graph execution error|Detected at node .*most recent call last|<stack traces unavailable>|\s+File "
)
_INT32 = np.iinfo(np.int32)


@functools.cache
def import_tensorflow() -> Any:
    """TensorFlow, without the notes of its C++ side: what matters is raised."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _without_notes(), no_collection():
        import tensorflow

        tensorflow.constant(0)  # the first operation has notes too
    gc.freeze()
    return tensorflow


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keeps Python from looking for garbage: modules and graphs are a million objects that stay, and looking through
    them again and again takes a third of the import and a seventh of an analysis."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _without_notes() -> Iterator[None]:
    """Keeps TensorFlow's notes from standard error, where they go whatever its log level is; passes the rest on."""
    if sys.stderr is None:  # a service without standard error
        yield
        return
    sys.stderr.flush()
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(standard_error, 2)
            os.close(standard_error)
            held.seek(0)
            for line in held:
                if not _NOTE.match(line):
                    sys.stderr.write(line.decode(errors="replace"))


def type_specs(proto: Any) -> dict[str, Any]:
    """The ``tf.TypeSpec`` of each tensor that the schema describes (a TFMD ``Schema`` message)."""
    import_tensorflow()
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapter, TensorAdapterConfig

    arrow_schema = ExamplesToRecordBatchDecoder(proto.SerializeToString()).ArrowSchema()
    return dict(TensorAdapter(TensorAdapterConfig(arrow_schema, representations(proto))).TypeSpecs())


def representations(proto: Any) -> dict[str, Any]:
    from tfx_bsl.tfxio import tensor_representation_util

    return dict(tensor_representation_util.InferTensorRepresentationsFromMixedSchema(proto))


def value_column(representation: Any) -> str:
    """The column that holds the values of a tensor."""
    kind = representation.WhichOneof("kind")
    if kind == "sparse_tensor":
        return str(representation.sparse_tensor.value_column_name)
    if kind == "ragged_tensor":
        return str(representation.ragged_tensor.feature_path.step[0])
    return str(getattr(representation, kind).column_name)


class TensorReader:
    """Makes the named tensors of feature batches; columns that no named tensor needs are not looked at."""

    def __init__(self, proto: Any, names: Iterable[str]) -> None:
        self._tf = import_tensorflow()
        all_of_them = representations(proto)
        wanted = {name: all_of_them[name] for name in names}
        self._scalars = {
            name: r.dense_tensor.column_name
            for name, r in wanted.items()
            if _is_plain(r) and not r.dense_tensor.shape.dim
        }
        self._others = {name: r for name, r in wanted.items() if name not in self._scalars}
        self._adapter: tuple[pa.Schema, Any] | None = None

    def read(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Raises SchemaError, which names the column, when a value is missing where the schema promises one."""
        tensors = {name: self._scalar(column, batch.column(column)) for name, column in self._scalars.items()}
        if self._others:
            tensors.update(self._adapt(batch))
        return tensors

    def _scalar(self, name: str, column: pa.Array) -> Any:
        values = column
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            values = column.flatten()
        if values.null_count or len(values) != len(column):
            raise missing_value(name, column)
        return self._tf.convert_to_tensor(values.to_numpy(zero_copy_only=False))

    def _adapt(self, batch: pa.RecordBatch) -> dict[str, Any]:
        from tfx_bsl.tfxio.tensor_adapter import TensorAdapter, TensorAdapterConfig
        from tfx_bsl.tfxio.tensor_representation_util import GetSourceColumnsFromTensorRepresentation

        names = {path.steps()[0] for r in self._others.values() for path in GetSourceColumnsFromTensorRepresentation(r)}
        columns = {name: as_lists(batch.column(name)) for name in sorted(names)}
        listed = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if self._adapter is None or not self._adapter[0].equals(listed.schema):
            self._adapter = (listed.schema, TensorAdapter(TensorAdapterConfig(listed.schema, self._others)))
        try:
            return dict(self._adapter[1].ToBatchTensors(listed))
        except ValueError as error:
            raise SchemaError(f"{error}: {error.__cause__ or 'it does not fit the schema'}") from error


def missing_value(name: str, column: pa.Array) -> SchemaError:
    """The error of a column that lacks a value, or has several, where the schema requires one in each row."""
    if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
        wrong = column.is_null()
    else:
        wrong = pc.not_equal(column.value_lengths().fill_null(0), 1)
    row = int(np.flatnonzero(wrong.to_numpy(zero_copy_only=False))[0])
    return SchemaError(
        f"column {name!r} has {shorten(column[row].as_py())} in row {row + 1} of a batch, but the schema requires one "
        "value: declare a default value, or make the feature optional"
    )


def _is_plain(representation: Any) -> bool:
    dense = representation.WhichOneof("kind") == "dense_tensor"
    return dense and not representation.dense_tensor.HasField("default_value")


def as_lists(column: pa.Array) -> pa.Array:
    """The column as TFX has it: a list of values in each row, and no slice (TFX reads what lies outside of it)."""
    if pa.types.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        is_slice = column.offset or len(column.values) != column.offsets[-1].as_py()
        return pa.concat_arrays([column]) if is_slice else column
    if not column.null_count:
        return pa.ListArray.from_arrays(pa.array(np.arange(len(column) + 1, dtype=np.int32)), column)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(present)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), column.drop_null(), mask=pa.array(~present))


# ---- and back --------------------------------------------------------------------------------------------------------


class TensorWriter:
    """Makes feature batches of tensors.  ``outputs``: the tensors' symbolic form, from a traced function.

    A dense tensor becomes a scalar column or a ``fixed_size_list`` in C order, a sparse one of rank 2 a list.  A sparse
    tensor of a higher rank, and a ragged one, take several columns, with the names that TFT gives them in the schema of
    its outputs (``x$sparse_indices_0``, ``x$sparse_values``, ``x$ragged_values``, ``x$row_lengths_1``).
    """

    def __init__(self, outputs: Tensors) -> None:
        self._tf = import_tensorflow()
        self._columns: list[tuple[str, pa.DataType, str, Callable[[Any], pa.Array]]] = []
        for name in sorted(outputs):
            self._add(name, outputs[name])
        self.schema = pa.schema([pa.field(column, kind) for column, kind, _, _ in self._columns])

    def write(self, tensors: Tensors) -> pa.RecordBatch:
        arrays = [make(tensors[name]) for _, _, name, make in self._columns]
        rows = [len(array) for array in arrays]
        if len(set(rows)) > 1:
            odd = next(i for i, count in enumerate(rows) if count != rows[0])
            raise SchemaError(
                f"transformed feature {self.schema.names[odd]!r} has {rows[odd]} rows where {self.schema.names[0]!r} "
                f"has {rows[0]}: preprocessing_fn must give each feature a value, or a list, for each row"
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _add(self, name: str, tensor: Any) -> None:
        kind = _arrow_type(name, tensor.dtype)
        if isinstance(tensor, self._tf.SparseTensor):
            if tensor.shape.rank == 2:
                self._columns.append((name, pa.list_(kind), name, lambda t: _sparse(t, t.values, kind)))
            else:
                self._add_sparse(name, tensor, kind)
        elif isinstance(tensor, self._tf.RaggedTensor):
            self._add_ragged(name, tensor, kind)
        else:
            shape = tensor.shape.as_list()[1:]
            size = int(np.prod(shape, dtype=np.int64))
            column = pa.list_(kind, size) if shape else kind
            self._columns.append((name, column, name, lambda t: _dense(t, kind, size if shape else None)))

    def _add_sparse(self, name: str, tensor: Any, kind: pa.DataType) -> None:
        for axis in range(tensor.shape.rank - 1):
            self._columns.append(
                (
                    f"{name}$sparse_indices_{axis}",
                    pa.list_(pa.int64()),
                    name,
                    lambda t, axis=axis: _sparse(t, t.indices[:, axis + 1], pa.int64()),  # type: ignore[misc]
                )
            )
        self._columns.append((f"{name}$sparse_values", pa.list_(kind), name, lambda t: _sparse(t, t.values, kind)))

    def _add_ragged(self, name: str, tensor: Any, kind: pa.DataType) -> None:
        self._columns.append((f"{name}$ragged_values", pa.list_(kind), name, lambda t: _ragged(t, kind)))
        for depth in range(1, tensor.ragged_rank):
            self._columns.append(
                (
                    f"{name}$row_lengths_{depth}",
                    pa.list_(pa.int64()),
                    name,
                    lambda t, depth=depth: _row_lengths(t, depth),  # type: ignore[misc]
                )
            )


def _arrow_type(name: str, dtype: Any) -> pa.DataType:
    types = {"int64": pa.int64(), "float32": pa.float32(), "string": pa.large_binary()}
    if dtype.name not in types:
        raise SchemaError(f"transformed feature {name!r} is {dtype.name}, which an Example cannot hold; use tf.cast")
    return types[dtype.name]


def _values(tensor: Any, kind: pa.DataType) -> pa.Array:
    return pa.array(tensor.numpy().reshape(-1), type=kind)


def _dense(tensor: Any, kind: pa.DataType, size: int | None) -> pa.Array:
    values = _values(tensor, kind)
    return values if size is None else pa.FixedSizeListArray.from_arrays(values, size)


def _lists(offsets: np.ndarray, values: pa.Array) -> pa.Array:
    if offsets[-1] > _INT32.max:
        raise SchemaError(f"a batch has {offsets[-1]} values of one feature; use fewer rows in a batch")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _sparse(tensor: Any, values: Any, kind: pa.DataType) -> pa.Array:
    """One list a row; the tensor's indices are in row order, as TensorFlow requires."""
    rows = int(tensor.dense_shape[0])
    offsets = np.searchsorted(tensor.indices.numpy()[:, 0], np.arange(rows + 1))
    return _lists(offsets, _values(values, kind))


def _ragged(tensor: Any, kind: pa.DataType) -> pa.Array:
    """All values of a row as one list."""
    offsets = tensor.row_splits.numpy()
    inner = tensor.values
    while hasattr(inner, "row_splits"):
        offsets, inner = inner.row_splits.numpy()[offsets], inner.values
    uniform = int(np.prod(inner.shape[1:], dtype=np.int64))
    return _lists(offsets * uniform, _values(inner, kind))


def _row_lengths(tensor: Any, depth: int) -> pa.Array:
    """The lengths of the lists at that depth, as one list a row."""
    offsets = tensor.row_splits.numpy()
    inner = tensor.values
    for _ in range(depth - 1):
        offsets, inner = inner.row_splits.numpy()[offsets], inner.values
    return _lists(offsets, pa.array(np.diff(inner.row_splits.numpy()), pa.int64()))


def graph_error(error: Exception) -> str:
    """What TensorFlow says of a failed operation, without where in its own code that was."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        text = error.object.decode("utf-8", "backslashreplace")
    kept = [line for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
    return re.sub(r"\s*\[\[\{\{node .*", "", " ".join(kept)) or type(error).__name__


def describe_row(batch: pa.RecordBatch, row: int) -> str:
    """A row in the words of an error message."""
    return ", ".join(f"{name}={shorten(batch.column(name)[row].as_py(), 30)}" for name in batch.schema.names)


def ancestors(operations: list[Any]) -> set[str]:
    """Names of the operations and of all that they depend on."""
    seen: set[str] = set()
    todo = list(operations)
    while todo:
        operation = todo.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            todo.extend(tensor.op for tensor in operation.inputs)
            todo.extend(operation.control_inputs)
    return seen
