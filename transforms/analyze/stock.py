"""TensorFlow Transform's own analysis, as a Beam pipeline in this process: for what only that can analyze."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from transforms.analyze.plan import count_analyzers, trace
from transforms.analyze.spec import AnalysisReport
from transforms.errors import BuildError, RecordmillError
from transforms.preprocess import Preprocessing
from transforms.schema import ARROW_TYPES, Schema
from transforms.tensors import as_lists, representations

log = logging.getLogger("recordmill")

# Errors of ours by the run's folder: Beam makes its own exceptions of them, and both runners work in this process.
_errors: dict[str, RecordmillError] = {}


def analyze_stock(
    preprocessing: Preprocessing,
    schema: Schema,
    *,
    partitions: Sequence[Any],
    read: Callable[[Any], Iterable[pa.RecordBatch]],
    options: Any = None,
    out_dir: str,
    reason: str | None = None,
) -> AnalysisReport:
    """Runs ``tft_beam.AnalyzeDataset`` and writes ``out_dir`` as ``analyze`` does.

    ``partitions``: small values; ``read`` (picklable) makes the feature batches of one, inside the workers.
    ``options``: Beam PipelineOptions.  ``reason``: the construct that made this necessary.  Raises BuildError
    with the words of the failure.
    """
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.beam.tft_beam_io.transform_fn_io import WriteTransformFn
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    if reason:
        log.warning(
            "the analysis runs in TensorFlow Transform's own pipeline, because of %s: this takes longer", reason
        )
    config = TensorAdapterConfig(_listed_schema(schema), representations(schema.to_proto()))
    os.makedirs(out_dir, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="transform-tmp-", dir=out_dir) as temp_dir:
        operations = trace(preprocessing, schema.to_proto(), temp_dir).operations
        phases, analyzers = count_analyzers(operations)
        pipeline = beam.Pipeline(runner=_runner(phases), options=options)
        with tft_beam.Context(temp_dir=temp_dir):
            batches = (
                pipeline
                | "CreatePartitions" >> beam.Create(list(partitions), reshuffle=False)
                | "ReadBatches" >> beam.FlatMap(_read_listed, read=read, schema_text=schema.to_text(), run=temp_dir)
            )
            transform_fn = (batches, config) | "AnalyzeDataset" >> tft_beam.AnalyzeDataset(preprocessing.function)
            _ = transform_fn | "WriteTransformFn" >> WriteTransformFn(out_dir)
        _run(pipeline, preprocessing, run=temp_dir)
    return AnalysisReport("stock", phases, analyzers, len(partitions), reason or "as configured")


def _run(pipeline: Any, preprocessing: Preprocessing, *, run: str) -> None:
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        ours = _errors.pop(run, None)
        if ours is not None:
            raise ours from error
        raise BuildError(
            f"{preprocessing.path}: TensorFlow Transform's own analysis failed: {type(error).__name__}: {error}"
        ) from error


def _runner(phases: int) -> Any:
    """A runner in this process.  From three phases on the FnApiRunner of Beam 2.77 stops with bundles that it did not
    execute; the older runner takes twice the time, but gets through."""
    from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

    return FnApiRunner() if phases < 3 else BundleBasedDirectRunner()


def _listed_schema(schema: Schema) -> pa.Schema:
    """All columns as lists, which is how TFX holds them."""
    return pa.schema([pa.field(f.name, pa.list_(ARROW_TYPES[f.kind])) for f in schema.features])


def _read_listed(
    partition: Any, *, read: Callable[[Any], Iterable[pa.RecordBatch]], schema_text: str, run: str
) -> Iterable[pa.RecordBatch]:
    target = _listed_schema(Schema.from_text(schema_text, path="schema.pbtxt"))
    try:
        for batch in read(partition):
            columns = [as_lists(batch.column(field.name)).cast(field.type) for field in target]
            yield pa.RecordBatch.from_arrays(columns, schema=target)
    except RecordmillError as error:
        _errors[run] = error
        raise BuildError(str(error)) from error
