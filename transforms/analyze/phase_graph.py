"""The file of a phase's graph: a pruned GraphDef where possible, as a SavedModel takes seconds to write and read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from transforms.analyze.phase import tensor_name
from transforms.analyze.plan import Traced
from transforms.analyze.spec import GraphFile
from transforms.analyze.tft_internals import internals
from transforms.files import write_committed
from transforms.tensors import ancestors, import_tensorflow, no_collection


def write_phase_graph(
    traced: Traced, bindings: Sequence[Any], fetches: Sequence[str], work_dir: str, number: int
) -> GraphFile:
    """Writes the graph that computes ``fetches``, with the results of earlier phases (TFT's bindings) in place."""
    if not fetches:
        return GraphFile("", False, ())
    tf = import_tensorflow()
    used = ancestors([traced.graph.get_tensor_by_name(tensor_name(name)).op for name in fetches])
    feeds = {name: tf.nest.flatten(value, expand_composites=True) for name, value in traced.inputs.items()}
    feeds = {name: parts for name, parts in feeds.items() if any(part.op.name in used for part in parts)}
    bound = {binding.tensor_name.partition(":")[0]: binding for binding in bindings}
    if not _is_pure(traced.graph, used, bound, {part.op.name for parts in feeds.values() for part in parts}):
        return _write_saved_model(traced, bindings, fetches, tuple(feeds), work_dir)
    path = os.path.join(work_dir, f"phase-{number}.graph.pb")
    write_committed(path, _graph_def(traced.graph, used, bound).SerializeToString(deterministic=True))
    names = {name: tuple(p.name if p.op.name in used else None for p in parts) for name, parts in feeds.items()}
    return GraphFile(path, False, tuple(sorted(names.items())), tuple(sorted(used & bound.keys())))


def _is_pure(graph: Any, used: set[str], bound: Mapping[str, Any], fed: set[str]) -> bool:
    """Whether the operations need nothing but what is fed and bound: no table, variable or asset."""
    tf = import_tensorflow()
    for name in used - bound.keys():
        operation = graph.get_operation_by_name(name)
        if operation.type == "Placeholder" and name not in fed:
            return False
        if any(tensor.dtype in (tf.resource, tf.variant) for tensor in operation.outputs):
            return False
    return not any(bound[name].is_asset_filepath for name in used & bound.keys())


def _graph_def(graph: Any, used: set[str], bound: Mapping[str, Any]) -> Any:
    tf = import_tensorflow()
    everything = graph.as_graph_def()
    graph_def = tf.compat.v1.GraphDef(versions=everything.versions, library=everything.library)
    graph_def.node.extend(node for node in everything.node if node.name in used)
    for node in graph_def.node:
        if node.name in bound:
            binding = bound[node.name]
            del node.input[:]
            node.op = "Const"
            node.attr.clear()
            node.attr["dtype"].type = binding.dtype_enum
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(binding.value, dtype=binding.dtype_enum))
    return graph_def


def _write_saved_model(
    traced: Traced, bindings: Sequence[Any], fetches: Sequence[str], inputs: Sequence[str], work_dir: str
) -> GraphFile:
    outputs = {name: tensor_name(name) for name in fetches}
    path = save_model(traced, bindings, outputs, work_dir)
    return GraphFile(path, True, tuple((name, ()) for name in sorted(inputs)))


@no_collection()
def save_model(traced: Traced, bindings: Sequence[Any], outputs: Mapping[str, str], work_dir: str) -> str:
    """TFT's SavedModel with the bindings in place.  ``outputs``: key -> tensor; when empty, what the function returns.

    A model of what the function returns comes with the schema of its outputs.
    """
    tft = internals()
    replacements = tft.replacements(None, *bindings) if bindings else None
    return str(
        tft.create_saved_model(
            replacements, work_dir, traced.function, traced.specs, traced.fingerprint, dict(outputs), None
        )
    )
