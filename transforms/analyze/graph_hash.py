"""Hashes of what tensors are computed by: equal for equal computations, whatever their operations are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transforms.analyze.phase import tensor_name
from transforms.fingerprint import digest, file_sha256, hash_bytes
from transforms.tensors import import_tensorflow

# Attributes that say where or under which unique name an operation runs, not what it computes.
_NO_MEANING = frozenset({"_output_shapes", "_class", "shared_name", "container", "table_name"})
_SETS_UP_TABLES = ("InitializeTable", "LookupTableImport")


class Unhashable(Exception):
    """The tensor depends on what no hash tells: a variable, a Python function, a random number."""


class GraphHash:
    """Hashes tensors of a graph of operations.

    ``inputs``: the features; they hash by their names, or when ``anonymous`` by their components alone.  ``bindings``:
    TFT's results of earlier phases, which stand for tensors of the graph; they hash by their values, and assets by what
    the file holds.
    """

    def __init__(
        self, graph: Any, inputs: Mapping[str, Any], bindings: Sequence[Any] = (), *, anonymous: bool = False
    ) -> None:
        flatten = import_tensorflow().nest.flatten
        self._graph = graph
        self._inputs = {
            part.name: (name, i)
            for name, value in inputs.items()
            for i, part in enumerate(flatten(value, expand_composites=True))
        }
        self._anonymous = anonymous
        self._bound = {tensor_name(binding.tensor_name): binding for binding in bindings}
        self._known: dict[str, tuple[str, frozenset[str]]] = {}
        self._functions: dict[str, str] = {}
        self._captures = {inside.op.name: outside for outside, inside in getattr(graph, "captures", ())}
        self._set_up: dict[str, list[Any]] = {}
        for operation in graph.get_operations():
            if operation.type.startswith(_SETS_UP_TABLES):
                self._set_up.setdefault(operation.inputs[0].op.name, []).append(operation)

    def __call__(self, name: str) -> tuple[str, frozenset[str]]:
        """The hash of a tensor, and the names of the inputs that it depends on.  Raises Unhashable."""
        tensor = self._graph.get_tensor_by_name(tensor_name(name))
        self._visit(tensor.op)
        return self._tensor(tensor)

    def _visit(self, last: Any) -> None:
        """Hashes the operation and all that it depends on, without recursion: graphs are deep."""
        stack, waiting = [last], set[str]()
        while stack:
            operation = stack[-1]
            known = operation.name in self._known
            needed = [] if known else [name for name in self._needs(operation) if name not in self._known]
            if any(name in waiting for name in needed):
                raise Unhashable(f"a loop through {operation.name}")
            if needed:
                waiting.add(operation.name)
                stack += [self._graph.get_operation_by_name(name) for name in needed]
                continue
            if not known:
                self._known[operation.name] = self._operation(operation)
            waiting.discard(operation.name)
            stack.pop()

    def _needs(self, operation: Any) -> list[str]:
        if all(self._is_leaf(output) for output in operation.outputs) and operation.outputs:
            return []
        inputs = [tensor.op.name for tensor in operation.inputs if not self._is_leaf(tensor)]
        inputs += [other.name for other in operation.control_inputs]
        for other in self._set_up.get(operation.name, ()):
            inputs += [tensor.op.name for tensor in list(other.inputs)[1:] if not self._is_leaf(tensor)]
        return inputs

    def _is_leaf(self, tensor: Any) -> bool:
        return tensor.name in self._inputs or tensor.name in self._bound

    def _tensor(self, tensor: Any) -> tuple[str, frozenset[str]]:
        if tensor.name in self._inputs:
            name, component = self._inputs[tensor.name]
            return (f"input {component}" if self._anonymous else f"input {name} {component}"), frozenset({name})
        if tensor.name in self._bound:
            return f"value {value_digest(self._bound[tensor.name])}", frozenset()
        text, inputs = self._known[tensor.op.name]
        return f"{text}:{tensor.value_index}", inputs

    def _operation(self, operation: Any) -> tuple[str, frozenset[str]]:
        if operation.outputs and all(self._is_leaf(output) for output in operation.outputs):
            return "", frozenset()
        if operation.name in self._captures:
            return self._capture(operation), frozenset()
        if operation.type == "Placeholder" or operation.type.startswith(("Var", "PyFunc", "EagerPyFunc", "Random")):
            raise Unhashable(f"{operation.type} ({operation.name})")
        parts = [self._tensor(tensor) for tensor in operation.inputs]
        parts += [self._known[other.name] for other in operation.control_inputs]
        for other in self._set_up.get(operation.name, ()):
            content = [self._tensor(tensor) for tensor in list(other.inputs)[1:]]
            text = digest([other.type, self._attributes(other.node_def), [part[0] for part in content]])
            parts.append((text, frozenset().union(*(part[1] for part in content))))
        text = digest([operation.type, self._attributes(operation.node_def), [part[0] for part in parts]])
        return text, frozenset().union(*(part[1] for part in parts))

    def _capture(self, placeholder: Any) -> str:
        """A value from outside of the graph: a tensor, or a table, by what it holds.

        The tables of TFT's vocabularies hold nothing yet; who looks up in one depends on its asset besides.
        """
        tf = import_tensorflow()
        value = self._captures[placeholder.name]
        if value.dtype == tf.variant:  # a tf.data.Dataset
            raise Unhashable(f"a variant ({placeholder.name})")
        if value.dtype != tf.resource:
            return f"value {_array_digest(value.numpy())}"
        for operation in placeholder.outputs[0].consumers():
            if {"Tin", "Tout"} <= set(operation.node_def.attr):
                dtypes = {"Tkeys": operation.get_attr("Tin"), "Tvalues": operation.get_attr("Tout")}
                try:
                    keys, values = tf.raw_ops.LookupTableExportV2(table_handle=value, **dtypes)
                except tf.errors.OpError as error:  # not filled yet: it will be, from a result of the analysis
                    raise Unhashable(f"a table ({placeholder.name})") from error
                pairs = zip(_texts(keys.numpy()), _texts(values.numpy()), strict=False)
                return f"table {digest(sorted(map(list, pairs)))}"
        raise Unhashable(f"a resource ({placeholder.name})")

    def _attributes(self, node: Any) -> dict[str, Any]:
        return {k: self._attribute(v) for k, v in node.attr.items() if k not in _NO_MEANING}

    def _attribute(self, value: Any) -> Any:
        kind = value.WhichOneof("value")
        if kind == "func":
            return self._function(value.func.name)
        if kind == "list" and value.list.func:
            return [self._function(function.name) for function in value.list.func]
        return value.SerializeToString(deterministic=True).hex()

    def _function(self, name: str) -> Any:
        """A function of the graph's library, by what it does: its own name is made up anew by each trace."""
        if not name:
            return None
        if name not in self._functions:
            self._functions[name] = "itself"
            definition = self._graph._get_function(name)
            if definition is None:
                raise Unhashable(f"the function {name}")
            proto = definition.cached_definition
            nodes = [[n.name, n.op, list(n.input), self._attributes(n)] for n in proto.node_def]
            if any(node[1].startswith(("Var", "PyFunc", "EagerPyFunc", "Random")) for node in nodes):
                raise Unhashable(f"the function {name}")
            arguments = [arg.SerializeToString(deterministic=True).hex() for arg in proto.signature.input_arg]
            self._functions[name] = digest([nodes, arguments, dict(proto.ret), dict(proto.control_ret)])
        return self._functions[name]


def value_digest(binding: Any) -> str:
    """A hash of a result that TFT binds: of an array's bytes, or of an asset's."""
    if binding.is_asset_filepath:
        path = binding.value.item() if isinstance(binding.value, np.ndarray) else binding.value
        return file_sha256(path.decode() if isinstance(path, bytes) else str(path))
    return _array_digest(np.asarray(binding.value))


def _array_digest(array: np.ndarray) -> str:
    array = np.asarray(array)
    content = digest(_texts(array)) if array.dtype.hasobject else hash_bytes([np.ascontiguousarray(array).tobytes()])
    return digest([str(array.dtype), list(array.shape), content])


def _texts(array: np.ndarray) -> list[str]:
    return [value.hex() if isinstance(value, bytes) else str(value) for value in array.ravel().tolist()]


def parameters(value: Any) -> Any:
    """A combiner, or what it holds, as plain values: its class and all of its parameters.

    Raises Unhashable for what has no plain form.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return repr(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            return ["array", [parameters(item) for item in array.ravel().tolist()], list(array.shape)]
        return ["array", array.dtype.str, list(array.shape), hash_bytes([np.ascontiguousarray(array).tobytes()])]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(parameters, value)]
    if isinstance(value, dict):
        return [[parameters(k), parameters(v)] for k, v in sorted(value.items(), key=lambda item: repr(item[0]))]
    if isinstance(value, np.ufunc):
        return f"numpy.{value.__name__}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, np.dtype) or type(value).__name__ in ("DType", "TensorShape", "TensorSpec"):
        return repr(value)
    if callable(value) and hasattr(value, "__qualname__") and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(value, "__dict__") and not callable(value):
        return [parameters(type(value)), parameters(vars(value))]
    raise Unhashable(f"a parameter of type {type(value).__name__}")
