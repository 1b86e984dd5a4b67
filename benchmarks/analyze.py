"""The analysis and the transform graph, against stock TensorFlow Transform on the same rows.

    python benchmarks/analyze.py [--rows 20000] [--scores 13] [--vocabularies 26] [--tokens 50000] [--no-stock]

Each step runs in a process of its own, so that imports and loading are paid by each; times are wall seconds, imports
apart.  Compare the ratios of one run: the machine may have other work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from transforms.analyze import PhaseSpec, accumulate, analyze, analyze_stock  # noqa: E402
from transforms.analyze.tft_internals import internals  # noqa: E402
from transforms.preprocess import Preprocessing, TransformGraph  # noqa: E402
from transforms.schema import Schema  # noqa: E402

BATCH_ROWS = 16_384
MODULE = """
import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    outputs = {{"label": inputs["label"]}}
    for i in range({scores}):
        outputs[f"i{{i}}"] = tft.scale_to_z_score(tf.cast(inputs[f"i{{i}}"], tf.float32))
    for i in range({vocabularies}):
        outputs[f"c{{i}}"] = tft.compute_and_apply_vocabulary(inputs[f"c{{i}}"], top_k=20000, vocab_filename=f"c{{i}}")
    return outputs
"""


def make_batches(options: argparse.Namespace) -> list[pa.RecordBatch]:
    """A click log: a label, whole numbers of several magnitudes, and words of eight letters."""
    rng = np.random.default_rng(0)
    columns: dict[str, pa.Array] = {"label": pa.array(rng.integers(0, 2, options.rows))}
    for i in range(options.scores):
        columns[f"i{i}"] = pa.array(rng.integers(0, 10 ** rng.integers(1, 6), options.rows))
    words = pa.array([f"{i:08x}".encode() for i in range(options.tokens)], pa.binary())
    for i in range(options.vocabularies):
        columns[f"c{i}"] = words.take(pa.array(rng.integers(0, options.tokens, options.rows)))
    table = pa.table(columns)
    return [
        pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in batch.columns], schema=batch.schema)
        for batch in table.to_batches(max_chunksize=BATCH_ROWS)
    ]


def schema_of(options: argparse.Namespace) -> Schema:
    names = [("label", "INT")] + [(f"i{i}", "INT") for i in range(options.scores)]
    names += [(f"c{i}", "BYTES") for i in range(options.vocabularies)]
    text = "\n".join(f'feature {{ name: "{n}" type: {t} presence {{ min_fraction: 1 }} shape {{}} }}' for n, t in names)
    return Schema.from_text(text, path="schema.pbtxt")


def measure(step: str, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """The seconds of one step, in this process."""
    schema, batches = schema_of(options), make_batches(options)
    preprocessing = Preprocessing.load(str(folder / "preprocessing.py"))
    start = time.perf_counter()
    internals()
    seconds = {"import": time.perf_counter() - start}
    start = time.perf_counter()
    if step == "stock":
        analyze_stock(
            preprocessing,
            schema,
            partitions=[0],
            read=lambda _: batches,
            out_dir=str(folder / step),
            reason="benchmark",
        )
    elif step == "columnar":
        seconds["passes"] = _analyze(preprocessing, schema, batches, folder)
    else:
        graph = TransformGraph(str(folder / "columnar"), schema)
        graph.transform(batches[0])
        seconds["load"] = time.perf_counter() - start
        start = time.perf_counter()
        for batch in batches:
            graph.transform(batch)
    seconds["seconds"] = time.perf_counter() - start
    return seconds


def _analyze(preprocessing: Preprocessing, schema: Schema, batches: list[pa.RecordBatch], folder: Path) -> float:
    passes = 0.0

    def run_phase(spec: PhaseSpec) -> list[list[str]]:
        nonlocal passes
        start = time.perf_counter()
        path = str(folder / f"phase-{spec.number}")
        accumulate(spec, batches, path)
        passes += time.perf_counter() - start
        return [[path]]

    work_dir, out_dir = str(folder / "work"), str(folder / "columnar")
    analyze(preprocessing, schema, run_phase=run_phase, work_dir=work_dir, out_dir=out_dir)
    return passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"rows": 20_000, "scores": 13, "vocabularies": 26, "tokens": 50_000}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--no-stock", action="store_true", help="leave stock TensorFlow Transform out: it takes minutes"
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measure(options.step, options, Path(options.folder))))
        return
    figures: dict[str, Any] = {"options": {k: v for k, v in vars(options).items() if k in ("rows", "scores", "tokens")}}
    figures["options"]["vocabularies"] = options.vocabularies
    with tempfile.TemporaryDirectory() as folder:
        module = MODULE.format(scores=options.scores, vocabularies=options.vocabularies)
        (Path(folder) / "preprocessing.py").write_text(module)
        for step in ["columnar", "transform"] + ([] if options.no_stock else ["stock"]):
            command = [sys.executable, *sys.argv, "--step", step, "--folder", folder]
            result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            figures[step] = json.loads(result.stdout.splitlines()[-1])
            parts = "  ".join(f"{name} {value:.2f} s" for name, value in figures[step].items())
            print(f"{step:10s} {options.rows / figures[step]['seconds']:12,.0f} rows/s   {parts}", flush=True)
    if not options.no_stock:
        print(f"stock / columnar: {figures['stock']['seconds'] / figures['columnar']['seconds']:.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
