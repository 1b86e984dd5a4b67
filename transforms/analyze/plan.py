"""The analyzers of a ``preprocessing_fn``, phase by phase, read from TFT's own graph of operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transforms.analyze.graph_hash import GraphHash, Unhashable, parameters
from transforms.analyze.spec import AnalyzerSpec, Unsupported
from transforms.analyze.tft_internals import internals
from transforms.errors import ConfigError, SchemaError
from transforms.fingerprint import digest
from transforms.preprocess import Preprocessing
from transforms.tensors import no_collection, type_specs


@dataclass(frozen=True)
class Traced:
    """A ``preprocessing_fn`` as a graph.  ``operations``: the node whose value is the final SavedModel's folder."""

    function: Callable[[Any], Any]
    specs: Mapping[str, Any]
    graph: Any
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    fingerprint: Any
    operations: Any
    assets: Mapping[str, str]


@no_collection()
def trace(preprocessing: Preprocessing, proto: Any, temp_dir: str) -> Traced:
    """Raises ConfigError with the user's line when the function fails."""
    tft, specs = internals(), type_specs(proto)
    try:
        graph, inputs, outputs = tft.trace(preprocessing.function, specs, False, temp_dir)
    except (ConfigError, SchemaError):
        raise
    except Exception as error:
        raise ConfigError(f"{preprocessing.where(error)}: {type(error).__name__}: {error}") from error
    if not isinstance(outputs, dict) or not outputs:
        raise ConfigError(f"{preprocessing.path}: preprocessing_fn must return a dict of features, and at least one")
    for name, tensor in outputs.items():
        if tensor.shape.rank == 0:
            raise ConfigError(
                f"{preprocessing.path}: preprocessing_fn returns one value as {name!r}; a feature has one for each "
                "row: add it to tf.zeros_like of a column, for example"
            )
    assets = dict(tft.asset_annotations(graph))
    tft.clear_asset_annotations(graph)
    fingerprint = tft.fingerprint(graph, inputs)
    operations, _, _ = tft.build(graph, inputs, outputs)
    return Traced(preprocessing.function, specs, graph, inputs, outputs, fingerprint, operations, assets)


def evaluate(value: Any, visit: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]) -> Any:
    """The value of a node of TFT's graph: ``visit(operation, inputs)`` gives the outputs of one operation.

    Each operation is visited once, after those that it depends on.
    """
    done: dict[int, tuple[Any, ...]] = {}

    def outputs(node: Any) -> tuple[Any, ...]:
        if id(node) not in done:
            done[id(node)] = visit(node.operation_def, tuple(of(v) for v in node.inputs))
        return done[id(node)]

    def of(value_node: Any) -> Any:
        return outputs(value_node.parent_operation)[value_node.value_index]

    return of(value)


@dataclass(frozen=True)
class Source:
    """In place of data: tensors of a phase's graph."""

    phase: int
    graph: Any = None
    tensors: tuple[str, ...] = ()


# Operations that come after the accumulators, and those that only wire; each has a method in engine.py.
KNOWN = frozenset(
    {
        "AddKey",
        "ApplySavedModel",
        "CacheableCombineAccumulate",
        "CacheableCombineMerge",
        "CacheableCombinePerKeyAccumulate",
        "CacheableCombinePerKeyFormatKeys",
        "CacheableCombinePerKeyFormatLarge",
        "CacheableCombinePerKeyMerge",
        "CreateSavedModel",
        "CreateTensorBinding",
        "ExtractCombineMergeOutputs",
        "ExtractFromDict",
        "ExtractInputForSavedModel",
        "ExtractPackedCombineMergeOutputs",
        "ExtractVocabularyReservedTokens",
        "Flatten",
        "PackedCombineAccumulate",
        "PackedCombineMerge",
        "ScaleAndFlattenPerKeyBucketBouandaries",
        "VocabularyAccumulate",
        "VocabularyCount",
        "VocabularyMerge",
        "VocabularyOrderAndWrite",
        "VocabularyPrune",
    }
)


def find_analyzers(operations: Any) -> dict[int, tuple[AnalyzerSpec, ...]]:
    """The accumulators of each phase, before anything runs.  Raises Unsupported, which names the operation."""
    phases: dict[int, list[AnalyzerSpec]] = {}

    def visit(operation: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        kind = type(operation).__name__
        if kind not in KNOWN:
            raise Unsupported(f"{kind} ({operation.label})")
        if kind == "ApplySavedModel":
            return (Source(operation.phase),)
        if kind == "ExtractFromDict" and isinstance(inputs[0], Source):
            keys = operation.keys if isinstance(operation.keys, tuple) else (operation.keys,)
            return (Source(inputs[0].phase, tensors=keys),)
        found = []
        if kind == "PackedCombineAccumulate":
            found = [_combine(c.label, tuple(c.keys), c.combiner) for c in operation.combiners]
        elif kind == "CacheableCombineAccumulate":
            found = [_combine(operation.label, inputs[0].tensors, operation.combiner)]
        elif kind == "CacheableCombinePerKeyAccumulate":
            found = [_combine(operation.label, inputs[0].tensors, operation.combiner, per_key=True)]
        elif kind == "VocabularyAccumulate":
            found = [_vocabulary(operation, inputs[0].tensors)]
        if found:
            phases.setdefault(inputs[0].phase, []).extend(found)
        return (None,) * int(operation.num_outputs)

    evaluate(operations, visit)
    return {number: tuple(analyzers) for number, analyzers in sorted(phases.items())}


def with_keys(analyzers: tuple[AnalyzerSpec, ...], traced: Traced, bindings: Sequence[Any]) -> tuple[AnalyzerSpec, ...]:
    """The analyzers with their keys, where they can have one; ``bindings``: the results of earlier phases."""
    describe = GraphHash(traced.graph, traced.inputs, bindings)
    return tuple(dataclasses.replace(analyzer, key=_key(analyzer, describe)) for analyzer in analyzers)


def _key(analyzer: AnalyzerSpec, describe: GraphHash) -> str:
    try:
        tensors = [] if analyzer.column is not None else [describe(name)[0] for name in analyzer.tensors]
        combiner = parameters(analyzer.combiner)
    except Unhashable:
        return ""
    how = [analyzer.kind, analyzer.weighted, analyzer.is_text, analyzer.column, analyzer.is_required]
    return digest([how, tensors, combiner])


def count_analyzers(operations: Any) -> tuple[int, int]:
    """The numbers of phases and of analyzers, of any kind."""
    phases, analyzers = 0, 0

    def visit(operation: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        nonlocal phases, analyzers
        kind = type(operation).__name__
        phases += kind == "ApplySavedModel"
        if kind == "PackedCombineAccumulate":
            analyzers += len(operation.combiners)
        else:
            analyzers += kind.endswith("Accumulate") or kind == "PTransform"
        return (None,) * int(operation.num_outputs)

    evaluate(operations, visit)
    return phases, analyzers


def _combine(label: str, tensors: tuple[str, ...], combiner: Any, *, per_key: bool = False) -> AnalyzerSpec:
    if type(combiner) not in internals().combiners.values():
        raise Unsupported(f"the combiner {type(combiner).__name__} ({label})")
    return AnalyzerSpec(label, "combine_per_key" if per_key else "combine", tensors, combiner=combiner)


def _vocabulary(operation: Any, tensors: tuple[str, ...]) -> AnalyzerSpec:
    order = internals().ordering
    is_text = operation.input_dtype == "string"
    if operation.vocab_ordering_type == order.FREQUENCY:
        return AnalyzerSpec(operation.label, "vocabulary", tensors, is_text=is_text)
    if operation.vocab_ordering_type == order.WEIGHTED_FREQUENCY:
        return AnalyzerSpec(operation.label, "vocabulary", tensors, is_text=is_text, weighted=True)
    if operation.vocab_ordering_type == order.MUTUAL_INFORMATION:
        return AnalyzerSpec(operation.label, "mutual_information", tensors, is_text=is_text)
    if operation.vocab_ordering_type == order.WEIGHTED_MUTUAL_INFORMATION:
        return AnalyzerSpec(operation.label, "mutual_information", tensors, is_text=is_text, weighted=True)
    raise Unsupported(f"a vocabulary ordered by labels' weights ({operation.label})")
