"""The driver of an analysis: runs TFT's graph of operations, with each phase as one pass over the data."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.analyze import combine, mutual_information, vocabulary, vocabulary_file
from transforms.analyze.graph_hash import GraphHash, Unhashable, value_digest
from transforms.analyze.observe import warn_of_spoiled_columns
from transforms.analyze.phase import tensor_name
from transforms.analyze.phase_graph import save_model, write_phase_graph
from transforms.analyze.plan import Source, Traced, evaluate, find_analyzers, trace, with_keys
from transforms.analyze.raw_columns import mark_raw_columns
from transforms.analyze.sections import SectionFiles
from transforms.analyze.spec import AnalysisReport, AnalyzerSpec, GraphFile, PhaseSpec
from transforms.analyze.tft_internals import internals
from transforms.errors import BuildError
from transforms.files import write_committed
from transforms.fingerprint import digest
from transforms.preprocess import Preprocessing
from transforms.schema import Schema
from transforms.tensors import ancestors, import_tensorflow, representations, value_column

RunPhase = Callable[[PhaseSpec], Sequence[Sequence[str]]]


def analyze(
    preprocessing: Preprocessing, schema: Schema, *, run_phase: RunPhase, work_dir: str, out_dir: str
) -> AnalysisReport:
    """Analyzes the data; writes ``transform_fn`` and ``transformed_metadata`` into ``out_dir``, as TFT lays them out.

    ``run_phase`` gets the spec of a phase, and has ``accumulate`` of it, or of parts of it (``PhaseSpec.only``), run
    for each partition, anywhere that sees ``work_dir``; it returns for each partition, in order, the files that
    together hold the phase's sections.  Results depend on that order alone.

    Raises ConfigError when the ``preprocessing_fn`` fails, and Unsupported, which names the construct, before any pass
    when only stock TFT can analyze it.
    """
    os.makedirs(work_dir, exist_ok=True)
    traced = trace(preprocessing, schema.to_proto(), work_dir)
    phases = find_analyzers(traced.operations)
    if 0 in phases:
        phases[0] = mark_raw_columns(phases[0], traced, schema.to_proto())
    columns = {name: value_column(r) for name, r in representations(schema.to_proto()).items()}
    run = _Run(traced, phases, schema.to_text(), columns, run_phase=run_phase, work_dir=work_dir)
    model = evaluate(traced.operations, run.visit)
    _publish(model, traced.assets, out_dir)
    return AnalysisReport(
        "columnar",
        len(phases),
        sum(map(len, phases.values())),
        run.num_partitions,
        digest=run.digest,
        results=run.results,
    )


def _publish(model: str, assets: Mapping[str, str], out_dir: str) -> None:
    """The layout of ``tft_beam.WriteTransformFn``."""
    import tensorflow_transform as tft

    metadata_folder = internals().metadata_folder
    metadata = os.path.join(out_dir, tft.TFTransformOutput.TRANSFORMED_METADATA_DIR)
    graph = os.path.join(out_dir, tft.TFTransformOutput.TRANSFORM_FN_DIR)
    shutil.copytree(os.path.join(model, metadata_folder), metadata)
    shutil.copytree(model, graph, ignore=shutil.ignore_patterns(metadata_folder))
    if assets:
        write_committed(os.path.join(metadata, tft.TFTransformOutput.ASSET_MAP), json.dumps(dict(assets)))


class _Phase:
    """A phase that has run: its analyzers, and the files of all partitions."""

    def __init__(self, spec: PhaseSpec, paths: Sequence[Sequence[str]]) -> None:
        self.number = spec.number
        self._index = {analyzer.label: i for i, analyzer in enumerate(spec.analyzers)}
        self.analyzers = spec.analyzers
        self._sections = spec.sections
        self._files = [SectionFiles(files) for files in paths]
        if not self._files:
            raise BuildError(
                f"phase {spec.number} of the analysis returned no files; there must be one partition at least"
            )
        observed = self._sections[len(self.analyzers) :]
        warn_of_spoiled_columns(file.open(name).get_batch(0) for file in self._files for name in observed)

    def states(self, label: str) -> _States:
        index = self._index[label]
        parts = [file.open(self._sections[index]) for file in self._files]
        return _States(self.analyzers[index], parts, f"{self.number}-{index}")


class _States:
    """What all partitions accumulated for one analyzer, in partition order."""

    def __init__(self, analyzer: AnalyzerSpec, parts: Sequence[pa.ipc.RecordBatchFileReader], name: str) -> None:
        self.analyzer = analyzer
        self.parts = parts
        self.name = name


class _Run:
    """Each method ``_<name>`` is what TFT's operation of that name does; ``visit`` finds it."""

    def __init__(
        self,
        traced: Traced,
        analyzers: Mapping[int, tuple[AnalyzerSpec, ...]],
        schema_text: str,
        columns: Mapping[str, str],
        *,
        run_phase: RunPhase,
        work_dir: str,
    ) -> None:
        self._traced = traced
        self._analyzers = analyzers
        self._schema_text = schema_text
        self._columns = columns
        self._run_phase = run_phase
        self._work_dir = work_dir
        self._phases: dict[int, _Phase] = {}
        self._models = 0
        self._seen: set[str] = set()
        self._bindings: dict[int, tuple[Any, ...]] = {}
        self.num_partitions = 0
        self.digest: str | None = None
        self.results: dict[str, str] = {}

    def visit(self, operation: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        result = getattr(self, "_" + type(operation).__name__)(operation, *inputs)
        return result if operation.num_outputs != 1 else (result,)

    # -- graphs and passes

    def _CreateSavedModel(self, operation: Any, *bindings: Any) -> Any:
        if operation.label == "CreateSavedModel":
            self.results = {binding.tensor_name: value_digest(binding) for binding in bindings}
            self.digest = self._graph_digest(bindings)
            return save_model(self._traced, bindings, {}, self._work_dir)
        number, self._models = self._models, self._models + 1
        self._bindings[number] = bindings
        fetches = self._spec(number, GraphFile("", False, ())).fetches
        return write_phase_graph(self._traced, bindings, fetches, self._work_dir, number)

    def _ExtractInputForSavedModel(self, operation: Any) -> None:
        return None

    def _ApplySavedModel(self, operation: Any, graph: GraphFile, _: None) -> Source:
        return Source(operation.phase, graph)

    def _ExtractFromDict(self, operation: Any, source: Any) -> Any:
        return source if isinstance(source, Source) else source[operation.keys]

    def _spec(self, number: int, graph: GraphFile) -> PhaseSpec:
        analyzers = with_keys(self._analyzers.get(number, ()), self._traced, self._bindings[number])
        return PhaseSpec(number, graph, self._schema_text, analyzers, self._watched(analyzers) if graph.path else ())

    def _graph_digest(self, bindings: Sequence[Any]) -> str | None:
        """A hash of all that the finished graph computes, and of the names of its vocabularies."""
        flatten = import_tensorflow().nest.flatten
        describe = GraphHash(self._traced.graph, self._traced.inputs, bindings)
        try:
            outputs = {
                name: [describe(part.name)[0] for part in flatten(value, expand_composites=True)]
                for name, value in self._traced.outputs.items()
            }
        except Unhashable:
            return None
        return digest([outputs, dict(self._traced.assets)])

    def _watched(self, analyzers: Sequence[AnalyzerSpec]) -> tuple[str, ...]:
        """The numeric columns behind the numeric analyzers."""
        graph = self._traced.graph
        names = {name for a in analyzers if a.kind.startswith("combine") for name in a.tensors}
        used = ancestors([graph.get_tensor_by_name(tensor_name(name)).op for name in names])
        numeric = [name for name, spec in self._traced.specs.items() if spec.dtype.is_integer or spec.dtype.is_floating]
        tf = import_tensorflow()
        flat = {name: tf.nest.flatten(self._traced.inputs[name], expand_composites=True) for name in numeric}
        fed = {self._columns[name] for name, parts in flat.items() if any(part.op.name in used for part in parts)}
        watched = fed - self._seen
        self._seen |= watched  # a column is looked at in one phase
        return tuple(sorted(watched))

    def _states(self, source: Source, label: str) -> _States:
        if source.phase not in self._phases:
            spec = self._spec(source.phase, source.graph)
            paths = self._run_phase(spec)
            self.num_partitions = len(paths)
            self._phases[source.phase] = _Phase(spec, paths)
        return self._phases[source.phase].states(label)

    # -- combiners

    def _CacheableCombineAccumulate(self, operation: Any, source: Source) -> _States:
        return self._states(source, operation.label)

    _CacheableCombinePerKeyAccumulate = _VocabularyAccumulate = _CacheableCombineAccumulate

    def _PackedCombineAccumulate(self, operation: Any, source: Source) -> dict[str, _States]:
        return {c.label: self._states(source, c.label) for c in operation.combiners}

    def _CacheableCombineMerge(self, operation: Any, states: _States) -> Any:
        return operation.combiner.extract_output(combine.merge_combined(operation.combiner, states.parts))

    def _AddKey(self, operation: Any, states: _States) -> tuple[str, _States]:
        return operation.key, states

    def _Flatten(self, operation: Any, *pairs: tuple[str, _States]) -> list[tuple[str, _States]]:
        return list(pairs)

    def _PackedCombineMerge(self, operation: Any, pairs: Any) -> dict[str, Any]:
        by_key = dict(pairs if isinstance(pairs, list) else [pairs])
        return {c.label: self._CacheableCombineMerge(c, by_key[c.keys[0]]) for c in operation.combiners}

    def _ExtractCombineMergeOutputs(self, operation: Any, outputs: Any) -> Any:
        return tuple(outputs) if operation.num_outputs != 1 else next(iter(outputs))

    _ExtractPackedCombineMergeOutputs = _ExtractCombineMergeOutputs

    def _CacheableCombinePerKeyMerge(self, operation: Any, states: _States) -> list[tuple[Any, Any]]:
        return combine.merge_per_key(operation.combiner, states.parts)

    def _CacheableCombinePerKeyFormatKeys(self, operation: Any, pairs: Any) -> tuple[Any, ...]:
        infos = operation.combiner.output_tensor_infos()
        outputs = {o.tag: o.value for o in internals().merge_outputs_by_key(pairs, [info.dtype for info in infos])}
        return tuple(outputs[tag] for tag in ["key", *map(str, range(len(infos)))])

    def _CacheableCombinePerKeyFormatLarge(self, operation: Any, pairs: Any) -> vocabulary.SmallVocabulary:
        values = [",".join(_as_text(v) for v in outputs) for _, outputs in pairs]
        return vocabulary.SmallVocabulary(vocabulary_file.entries([key for key, _ in pairs], values, pa.string()))

    def _ScaleAndFlattenPerKeyBucketBouandaries(self, operation: Any, boundaries: np.ndarray) -> Any:
        return internals().join_boundary_rows(boundaries)

    # -- vocabularies

    def _VocabularyMerge(self, operation: Any, states: _States) -> vocabulary.MergedVocabulary:
        analyzer = states.analyzer
        path = os.path.join(self._work_dir, "vocabularies", f"{states.name}.arrow")
        if analyzer.kind == "mutual_information":
            return mutual_information.merge_label_counts(
                operation, states.parts, path, weighted=analyzer.weighted, is_text=analyzer.is_text
            )
        filter_tokens = vocabulary.without_line_breaks if analyzer.column is not None else None
        return vocabulary.merge_counts(states.parts, path, filter_tokens=filter_tokens)

    def _VocabularyCount(self, operation: Any, entries: vocabulary.Vocabulary) -> np.int64:
        return np.int64(max(entries.num_tokens, 1))

    def _VocabularyPrune(self, operation: Any, merged: vocabulary.MergedVocabulary) -> vocabulary.Vocabulary:
        return vocabulary_file.prune(operation, merged, internals().empty_vocabulary_entry(operation.input_dtype))

    def _VocabularyOrderAndWrite(
        self, operation: Any, entries: vocabulary.Vocabulary, reserved: Any = None
    ) -> np.ndarray:
        empty = internals().empty_vocabulary_entry(operation.input_dtype)
        tokens = None if reserved is None else [t if isinstance(t, bytes) else str(t).encode() for t in reserved]
        path = vocabulary_file.write_vocabulary(
            operation, entries, reserved=tokens, empty_entry=empty, folder=os.path.join(self._work_dir, "assets")
        )
        return np.array(path)

    def _ExtractVocabularyReservedTokens(self, operation: Any) -> Any:
        return internals().reserved_tokens(self._traced.graph, operation.name)

    def _CreateTensorBinding(self, operation: Any, value: Any) -> Any:
        return internals().binding(value, operation.tensor_name, operation.dtype_enum, operation.is_asset_filepath)


def _as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
