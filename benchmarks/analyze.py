"""`recordmill build` with a `preprocessing_fn` against stock TensorFlow Transform: whole commands, the same result.

    python benchmarks/analyze.py [--rows 100000] [--workers 1] [--no-stock]

The Criteo-like table as Parquet, 13 z-scores and 26 vocabularies of the 20,000 most frequent tokens, out come TFRecord
files of transformed Examples.  Stock is `AnalyzeAndTransformDataset` on Beam's local runner, which reads the same row
groups.  Both are commands of their own, from Python's start to the last file; CPU is that of all their processes.  The
results are compared: vocabulary files byte for byte, whole numbers row for row in any order, floats by mean and
variance.  Read the ratios: the machine may have other work.  `benchmarks/analyze_parts.py` has the single steps.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import table  # noqa: E402

SCORES, VOCABULARIES = 13, 26
ROW_GROUP = 50_000
BATCH_ROWS = 1000  # what TFX makes of a source at most
MODULE = f"""
import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    outputs = {{"label": inputs["label"]}}
    for i in range({SCORES}):
        outputs[f"i{{i}}"] = tft.scale_to_z_score(tf.cast(inputs[f"i{{i}}"], tf.float32))
    for i in range({VOCABULARIES}):
        outputs[f"c{{i}}"] = tft.compute_and_apply_vocabulary(inputs[f"c{{i}}"], top_k=20000, vocab_filename=f"c{{i}}")
    return outputs
"""


def prepare(folder: Path, rows: int, workers: int) -> None:
    """The table, the module and the config of a benchmark."""
    schema = next(table.batches(1)).schema
    with pyarrow.parquet.ParquetWriter(folder / "source.parquet", schema) as writer:
        for batch in table.batches(rows):
            writer.write_batch(batch, row_group_size=ROW_GROUP)
    (folder / "preprocessing.py").write_text(MODULE)
    config = {
        "name": "clicks",
        "source": {"format": "parquet", "files": "source.parquet"},
        "preprocess": "preprocessing.py",
        "output": {"dir": "out"},
        "runner": {"workers": workers},
    }
    (folder / "config.yaml").write_text(json.dumps(config))


def read_group(group: int, path: str) -> list[pa.RecordBatch]:
    """A row group in the form of TFX: each value in a list."""
    made = []
    for batch in pyarrow.parquet.ParquetFile(path).read_row_group(group).to_batches(max_chunksize=BATCH_ROWS):
        offsets = pa.array(np.arange(len(batch) + 1, dtype=np.int32))
        columns = [c.cast(pa.binary()) if pa.types.is_string(c.type) else c for c in batch.columns]
        columns = [pa.concat_arrays([column]) for column in columns]
        lists = [pa.ListArray.from_arrays(offsets, column) for column in columns]
        made.append(pa.RecordBatch.from_arrays(lists, names=batch.schema.names))
    return made


def run_stock(folder: Path) -> None:
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig
    from tfx_bsl.tfxio.tensor_representation_util import InferTensorRepresentationsFromMixedSchema

    path = str(folder / "source.parquet")
    names: dict[str, Any] = {}
    exec(MODULE, names)  # noqa: S102
    schema = schema_pb2.Schema()
    kinds = {"l": schema_pb2.INT, "i": schema_pb2.INT, "c": schema_pb2.BYTES}
    for name in pyarrow.parquet.read_schema(path).names:
        feature = schema.feature.add(name=name, type=kinds[name[0]])
        feature.presence.min_fraction = 1
        feature.shape.SetInParent()
    arrow_schema = read_group(0, path)[0].schema
    config = TensorAdapterConfig(arrow_schema, InferTensorRepresentationsFromMixedSchema(schema))
    groups = range(pyarrow.parquet.ParquetFile(path).num_row_groups)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline, tft_beam.Context(temp_dir=str(folder / "tmp")):
        batches = pipeline | beam.Create(groups) | beam.FlatMap(read_group, path=path)
        (transformed, _), transform_fn = (batches, config) | tft_beam.AnalyzeAndTransformDataset(
            names["preprocessing_fn"], output_record_batches=True
        )
        _ = transform_fn | tft_beam.WriteTransformFn(str(folder / "stock"))
        _ = (
            transformed
            | beam.FlatMapTuple(lambda batch, _: RecordBatchToExamplesEncoder().encode(batch))
            | beam.io.WriteToTFRecord(str(folder / "stock" / "part"), file_name_suffix=".tfrecord.gz")
        )


def timed(command: list[str], folder: Path) -> dict[str, float]:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with open(folder / "log.txt", "w") as log:
        if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
            raise SystemExit((folder / "log.txt").read_text()[-2000:])
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1)}


def described(records: list[Path], assets: Path) -> dict[str, Any]:
    """What is compared of a result."""
    import tensorflow as tf

    from transforms.split import hash_rows

    spec = {f"i{i}": tf.io.FixedLenFeature([], tf.float32) for i in range(SCORES)}
    whole = ["label", *(f"c{i}" for i in range(VOCABULARIES))]
    spec |= {name: tf.io.FixedLenFeature([], tf.int64) for name in whole}
    rows, total, sums = 0, 0, np.zeros((2, SCORES))
    for batch in tf.data.TFRecordDataset([str(path) for path in records], "GZIP").batch(BATCH_ROWS):
        parsed = tf.io.parse_example(batch, spec)
        columns = pa.RecordBatch.from_pydict({name: parsed[name].numpy() for name in whole})
        floats = np.stack([parsed[f"i{i}"].numpy() for i in range(SCORES)]).astype(np.float64)
        rows, total = rows + len(columns), (total + int(hash_rows(columns).sum())) % 2**64
        sums += [floats.sum(1), (floats**2).sum(1)]
    vocabularies = {path.name: path.read_bytes() for path in assets.iterdir()}
    return {"rows": rows, "whole numbers": total, "floats": sums / rows, "vocabularies": vocabularies}


def compare(folder: Path) -> None:
    """Raises AssertionError where the results differ."""
    (version,) = (folder / "out" / "versions").iterdir()
    ours = described(sorted(version.glob("all/*.gz")), version / "transform_fn" / "assets")
    stock = described(sorted(folder.glob("stock/part*")), folder / "stock" / "transform_fn" / "assets")
    for name in ("rows", "whole numbers", "vocabularies"):
        assert ours[name] == stock[name], name
    np.testing.assert_allclose(ours["floats"], stock["floats"], atol=1e-5)
    print(f"the same {ours['rows']:,} rows and {len(ours['vocabularies'])} vocabulary files")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1, help="of recordmill; stock has one")
    parser.add_argument("--no-stock", action="store_true", help="leave stock out: it takes minutes")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--stock-in", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stock_in:
        run_stock(Path(options.stock_in))
        return
    figures: dict[str, Any] = {"rows": options.rows, "workers": options.workers}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as name:
        folder = Path(name)
        prepare(folder, options.rows, options.workers)
        recordmill = Path(sys.executable).with_name("recordmill")
        figures["recordmill"] = timed([str(recordmill), "build", str(folder / "config.yaml")], folder)
        print("recordmill", figures["recordmill"], flush=True)
        if not options.no_stock:
            figures["stock"] = timed([sys.executable, __file__, "--stock-in", name], folder)
            print("stock", figures["stock"], flush=True)
            compare(folder)
            for unit in ("seconds", "cpu_seconds"):
                figures[f"ratio of {unit}"] = round(figures["stock"][unit] / figures["recordmill"][unit], 1)
            print(f"stock / recordmill: {figures['ratio of seconds']}, CPU {figures['ratio of cpu_seconds']}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
