"""One pass of an analysis over one partition: feature batches in, a file of accumulators out."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from transforms.analyze.combine import Combine, SketchPerKey
from transforms.analyze.keyed import KeyedStates, is_keyed
from transforms.analyze.observe import Observer
from transforms.analyze.sections import write_sections
from transforms.analyze.spec import AnalyzerSpec, GraphFile, PhaseSpec
from transforms.analyze.tft_internals import no_numpy_warnings
from transforms.analyze.vocabulary import VocabularyCounts
from transforms.errors import SchemaError
from transforms.files import committed
from transforms.tensors import TensorReader, graph_error, import_tensorflow, missing_value
from transforms.timing import ANALYZER, step

_loading = threading.Lock()


class Accumulator(Protocol):
    def add(self, values: tuple[np.ndarray, ...]) -> None: ...

    def batches(self) -> list[pa.RecordBatch]: ...


def accumulate(spec: PhaseSpec, batches: Iterable[pa.RecordBatch], path: str) -> None:
    """Feeds all analyzers of a phase with a partition's feature batches, in one pass, and commits their states.

    Memory holds one batch and the accumulators.  Raises SchemaError when a value does not fit the schema or the
    ``preprocessing_fn`` fails on the data.
    """
    no_numpy_warnings()
    accumulators = [make_accumulator(analyzer) for analyzer in spec.analyzers]
    observer = Observer(spec.watched)
    run = _phase_graph(spec.graph, spec.schema_text, spec.fetches) if spec.fetches else None
    for batch in batches:
        if not batch.num_rows:  # no rows of a split, say; a maximum of nothing may fail in the graph
            continue
        observer.add(batch)
        with step("graph"):
            tensors = run(batch) if run else {}
        for analyzer, accumulator in zip(spec.analyzers, accumulators, strict=True):
            with step(f"{ANALYZER}{analyzer.label.replace('/', '.')}"):
                if analyzer.column is None:
                    accumulator.add(tuple(tensors[name] for name in analyzer.tensors))
                elif isinstance(accumulator, VocabularyCounts):
                    accumulator.add_tokens(_tokens(batch, analyzer.column, is_required=analyzer.is_required))
    with committed(path, durable=False) as output:  # its sections have checksums
        contents = itertools.chain((a.batches() for a in accumulators), ([batch] for batch in observer.batches()))
        write_sections(output, zip(spec.sections, contents, strict=True))


def make_accumulator(analyzer: AnalyzerSpec) -> Accumulator:
    if analyzer.kind == "combine":
        return Combine(analyzer.combiner)
    if analyzer.kind == "combine_per_key":
        return KeyedStates(analyzer.combiner) if is_keyed(analyzer.combiner) else SketchPerKey(analyzer.combiner)
    if analyzer.kind == "vocabulary":
        return VocabularyCounts(is_text=analyzer.is_text, weighted=analyzer.weighted)
    from transforms.analyze.mutual_information import LabelCounts

    return LabelCounts(weighted=analyzer.weighted)


def _tokens(batch: pa.RecordBatch, name: str, *, is_required: bool) -> pa.Array:
    """All values of a column, lists flattened."""
    column = batch.column(name)
    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        column = column.flatten()
    if is_required and (column.null_count or len(column) != batch.num_rows):
        raise missing_value(name, batch.column(name))
    return column.drop_null() if column.null_count else column


PhaseGraph = Callable[[pa.RecordBatch], Mapping[str, np.ndarray]]


def _phase_graph(graph: GraphFile, schema_text: str, fetches: tuple[str, ...]) -> PhaseGraph:
    with _loading:
        return _load_graph(graph, schema_text, fetches)


@functools.lru_cache(maxsize=4)
def _load_graph(graph: GraphFile, schema_text: str, fetches: tuple[str, ...]) -> PhaseGraph:
    """Feature batch -> the fetched tensors as numpy arrays.  Loaded once a process."""
    tf = import_tensorflow()
    inputs, function = _load_saved_model(graph, fetches) if graph.is_saved_model else _load_graph_def(graph, fetches)
    reader = TensorReader(text_format.Parse(schema_text, schema_pb2.Schema()), inputs)

    def run(batch: pa.RecordBatch) -> Mapping[str, np.ndarray]:
        try:
            outputs = function(reader.read(batch))
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            raise SchemaError(f"preprocessing_fn fails before an analyzer: {graph_error(error)}") from error
        return {name: np.asarray(value) for name, value in outputs.items()}

    return run


TensorFunction = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def _load_graph_def(graph: GraphFile, fetches: tuple[str, ...]) -> tuple[Iterable[str], TensorFunction]:
    tf = import_tensorflow()
    graph_def = tf.compat.v1.GraphDef.FromString(Path(graph.path).read_bytes())
    wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph_def, name=""), [])
    fed = [(name, i, tensor) for name, tensors in graph.feeds for i, tensor in enumerate(tensors) if tensor]
    # Fed, not left as constants: TensorFlow would turn x / constant into a product, which rounds in another way than in
    # the graph that transforms the data.
    values = {node.name: node.attr["value"].tensor for node in graph_def.node if node.name in graph.bound}
    bound = [tf.constant(tf.make_ndarray(values[name])) for name in graph.bound]
    feeds, results = (
        [wrapped.graph.get_tensor_by_name(tensor_name(name)) for name in names]
        for names in ([*(tensor for _, _, tensor in fed), *graph.bound], fetches)
    )
    # With no signature, each call would first fail to bind its arguments, and put their values into the message.
    signature: tuple[Any, dict[str, Any]] = (tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in feeds), {})
    function = wrapped.prune(feeds, results, input_signature=signature)

    def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        components = {name: tf.nest.flatten(value, expand_composites=True) for name, value in inputs.items()}
        return dict(zip(fetches, function(*[components[name][i] for name, i, _ in fed], *bound), strict=True))

    return [name for name, _ in graph.feeds], run


def _load_saved_model(graph: GraphFile, fetches: tuple[str, ...]) -> tuple[Iterable[str], TensorFunction]:
    from tensorflow_transform.saved.saved_transform_io_v2 import SavedModelLoader

    loader = SavedModelLoader(graph.path)
    inputs = [name for name, _ in graph.feeds]
    loader.finalize(set(inputs), set(fetches))
    return inputs, loader.apply_transform_model


def tensor_name(name: str) -> str:
    """TFT leaves the ``:0`` of a tensor's name out."""
    return name if ":" in name else f"{name}:0"
