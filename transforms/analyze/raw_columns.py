"""Vocabularies whose tokens are a column as it stands: they are counted from Arrow, and no graph runs for them.

The proof: the operations between the input and what the analyzer is fed with are the same, attribute by attribute, as
those that ``tft.vocabulary`` itself puts on an input of that type.  Anything else (``tf.strings.lower`` before it, a
vocabulary in TFRecord format, which keeps empty tokens) differs and goes through TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Mapping
from typing import Any

from transforms.analyze.graph_hash import GraphHash, Unhashable
from transforms.analyze.plan import Traced, find_analyzers
from transforms.analyze.spec import AnalyzerSpec
from transforms.analyze.tft_internals import internals
from transforms.tensors import representations, value_column


def mark_raw_columns(analyzers: tuple[AnalyzerSpec, ...], traced: Traced, proto: Any) -> tuple[AnalyzerSpec, ...]:
    """The analyzers of phase 0, with ``column`` set where the proof holds."""
    candidates = [a for a in analyzers if a.kind == "vocabulary" and a.is_text and not a.weighted]
    described = representations(proto)
    plain = {name: spec for name, spec in traced.specs.items() if _is_plain(name, spec, described[name])}
    if not candidates or not plain:
        return analyzers
    describe = GraphHash(traced.graph, {name: traced.inputs[name] for name in traced.specs}, anonymous=True)
    marked = {a.label: name for a in candidates if (name := _column(describe, a, plain)) is not None}
    dense = {name for name in plain if described[name].WhichOneof("kind") == "dense_tensor"}
    return tuple(
        dataclasses.replace(a, column=marked[a.label], is_required=marked[a.label] in dense) if a.label in marked else a
        for a in analyzers
    )


def _is_plain(name: str, spec: Any, representation: Any) -> bool:
    """Text that is one value a row, or a list: what can be read off the column of that name without a graph."""
    if spec.dtype.name != "string":
        return False
    if value_column(representation) != name or representation.WhichOneof("kind") == "sparse_tensor":
        return False
    tensor = representation.dense_tensor  # empty when it is of another kind
    return not tensor.shape.dim and not tensor.HasField("default_value")


def _column(describe: GraphHash, analyzer: AnalyzerSpec, plain: Mapping[str, Any]) -> str | None:
    try:
        text, inputs = describe(analyzer.tensors[0])
    except Unhashable:
        return None
    if len(inputs) != 1:
        return None
    (name,) = inputs
    return name if name in plain and text == _reference(plain[name]) else None


@functools.cache
def _reference(spec: Any) -> str:
    """The description of what feeds ``tft.vocabulary`` of an input of that type."""
    import tensorflow_transform as tft

    def preprocessing_fn(inputs: Any) -> Any:
        tft.vocabulary(inputs["input"], vocab_filename="reference")
        return inputs

    with tempfile.TemporaryDirectory() as temp_dir:
        graph, inputs, outputs = internals().trace(preprocessing_fn, {"input": spec}, False, temp_dir)
        operations, _, _ = internals().build(graph, inputs, outputs)
    ((analyzer,),) = find_analyzers(operations).values()
    return GraphHash(graph, inputs, anonymous=True)(analyzer.tensors[0])[0]
