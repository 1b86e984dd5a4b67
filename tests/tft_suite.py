"""TensorFlow Transform's own integration tests, from its wheel, with the analysis replaced by ours.

    python tests/tft_suite.py [--stock] [--module NAME] [unittest's arguments, such as -k Vocabulary]

Whatever those tests analyze in TF 2 mode and without TFT's cache goes through ``transforms.analyze``, each batch cut in
two, so that there are two partitions to merge (``divided``).  ``--stock`` leaves the analysis as it is: a test that
fails then too says nothing about ours.  ``--module`` runs the tests of that one.  The last line counts the analyses.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from transforms.analyze import PhaseSpec, Unsupported, accumulate, analyze  # noqa: E402
from transforms.analyze.plan import find_analyzers  # noqa: E402
from transforms.preprocess import Preprocessing  # noqa: E402

MODULES = (
    "annotators_test",
    "bucketize_integration_test",
    "impl_output_record_batches_test",
    "impl_test",
    "tukey_hh_params_integration_test",
    "vocabulary_integration_test",
    "vocabulary_tfrecord_gzip_integration_test",
)
counts: Counter[str] = Counter()
_runs: dict[int, tuple[Any, Any, str]] = {}  # what cannot be pickled: the function, the proto, a folder


class Given(Preprocessing):
    """A function of a test's own in place of the one of a file."""

    def __init__(self, function: Any) -> None:
        super().__init__(__file__)
        self.__dict__["function"] = function


class Described:
    """A schema that is only a proto: with tensor representations that our own schemas do not have."""

    def __init__(self, proto: Any) -> None:
        self._proto = proto

    def to_proto(self) -> Any:
        return self._proto

    def to_text(self) -> str:
        return str(self._proto)


def describe(config: Any) -> Any:
    """The TFMD schema of a ``TensorAdapterConfig``; without the columns that no tensor is made of."""
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio.tensor_representation_util import GetSourceColumnsFromTensorRepresentation

    proto = schema_pb2.Schema()
    representations = config.tensor_representations
    used = {p.steps()[0] for r in representations.values() for p in GetSourceColumnsFromTensorRepresentation(r)}
    for field in config.arrow_schema:
        if field.name not in used:
            continue
        kind = field.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        is_whole = pa.types.is_integer(kind)
        number = schema_pb2.INT if is_whole else schema_pb2.FLOAT if pa.types.is_floating(kind) else schema_pb2.BYTES
        proto.feature.add(name=field.name, type=number)
    for name, representation in representations.items():
        proto.tensor_representation_group[""].tensor_representation[name].CopyFrom(representation)
    return proto


def divided(batches: list[pa.RecordBatch], spec: PhaseSpec) -> list[list[pa.RecordBatch]]:
    """Two partitions of halves of the batches.

    The sample L-moments of a batch depend on which rows it has, in the stock pipeline too: with them, batches stay
    whole, and the second partition is empty.
    """
    whole = [pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in b], schema=b.schema) for b in batches]
    if any(type(analyzer.combiner).__name__ == "_LMomentsCombiner" for analyzer in spec.analyzers):
        return [whole, []]
    return [[b.slice(0, b.num_rows // 2) for b in whole], [b.slice(b.num_rows // 2) for b in whole]]


def run_ours(batches: list[pa.RecordBatch], number: int) -> str:
    function, proto, folder = _runs[number]
    paths = itertools.count()

    def run_phase(spec: PhaseSpec) -> list[list[str]]:
        made = []
        for partition in divided(batches, spec):
            made.append([os.path.join(folder, f"states-{next(paths)}")])
            accumulate(spec, partition, made[-1][0])
        return made

    out, model = os.path.join(folder, "out"), tempfile.mkdtemp(dir=folder)
    analyze(Given(function), Described(proto), run_phase=run_phase, work_dir=folder, out_dir=out)  # type: ignore[arg-type]
    os.rename(os.path.join(out, "transform_fn"), os.path.join(model, "model"))
    os.rename(os.path.join(out, "transformed_metadata"), os.path.join(model, "model", ".tft_metadata"))
    return os.path.join(model, "model")


def replace_analysis() -> None:
    """Where TFT walks its graph of operations to make Beam stages, one stage of ours stands."""
    import apache_beam as beam
    from tensorflow_transform import nodes
    from tensorflow_transform.beam import impl

    class Traverser(nodes.Traverser):
        def __init__(self, visitor: Any) -> None:
            super().__init__(visitor)
            self._arguments = visitor._extra_args

        def visit_value_node(self, value_node: Any) -> Any:
            given = self._arguments
            if given.use_tf_compat_v1 or given.cache_pcoll_dict is not None:
                counts["by stock: TF 1 mode or TFT's cache"] += 1
                return super().visit_value_node(value_node)
            try:
                find_analyzers(value_node)
            except Unsupported:
                counts["by stock, since ours does not know their analyzers"] += 1
                return super().visit_value_node(value_node)
            folder = tempfile.mkdtemp(dir=given.base_temp_dir)
            number = len(_runs)
            _runs[number] = (
                given.preprocessing_fn,
                describe(given.input_tensor_adapter_config),
                folder,
            )
            counts["by ours"] += 1
            return (
                given.flat_pcollection | "Batches" >> beam.combiners.ToList() | "Columnar" >> beam.Map(run_ours, number)
            )

    impl.nodes = SimpleNamespace(**{**vars(nodes), "Traverser": Traverser})  # of that module alone


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--module", action="append", choices=MODULES)
    options, others = parser.parse_known_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    if not options.stock:
        replace_analysis()
    names = [f"tensorflow_transform.beam.{name}" for name in options.module or MODULES]
    # Not pytest: the functions of the tests hold their TestCase, which Beam cannot pickle when pytest runs it.
    program = unittest.main(None, argv=["tft_suite", *names, *others], exit=False)
    print(", ".join(f"{count} analyses {how}" for how, count in counts.items()))
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    import tft_suite  # by its name, so that Beam pickles what is in it by name

    sys.exit(tft_suite.main())
