"""What the analysis and the transform graph cost, step by step, on one core.

    python benchmarks/analyze_parts.py [passes] [transform] [fixed] [distinct] [stock] [--rows N] [--repeats 3]

passes     the analysis of 13 z-scores and 26 vocabularies over rows in memory, and its parts
transform  the finished graph on such rows: Arrow to tensors, the graph, tensors to Arrow, their encoding as Examples
fixed      an analysis of hardly any rows with more and more analyzers: what each of them costs
distinct   one vocabulary of 10 million different tokens, in 40 partitions: time and peak memory
stock      the whole analysis of rows in memory, after all imports, against that of stock TensorFlow Transform: minutes

Each runs in a process of its own, all but the last with one TensorFlow thread.  Rates are rows per second of CPU time,
the median of the repeats after a first run that warms up.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import table  # noqa: E402
from benchmarks.analyze import MODULE  # noqa: E402
from transforms.analyze import PhaseSpec, accumulate, analyze, analyze_stock  # noqa: E402
from transforms.analyze.tft_internals import internals  # noqa: E402
from transforms.example import Encoder  # noqa: E402
from transforms.preprocess import Preprocessing, TransformGraph  # noqa: E402
from transforms.schema import Schema  # noqa: E402

BATCH_ROWS = 16_384
PARTITIONS = 40


def batches(rows: int, *, batch_rows: int = BATCH_ROWS) -> list[pa.RecordBatch]:
    """Feature batches of the Criteo-like table."""
    whole = pa.Table.from_batches(table.batches(rows))
    columns = [c.cast(pa.binary()) if pa.types.is_string(c.type) else c for c in whole.columns]
    cut = pa.table(columns, names=whole.schema.names).combine_chunks().to_batches(max_chunksize=batch_rows)
    return [pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in b.columns], schema=b.schema) for b in cut]


def schema_of(batch: pa.RecordBatch) -> Schema:
    kinds = [(f.name, "INT" if pa.types.is_integer(f.type) else "BYTES") for f in batch.schema]
    text = "\n".join(f'feature {{ name: "{n}" type: {t} presence {{ min_fraction: 1 }} shape {{}} }}' for n, t in kinds)
    return Schema.from_text(text, path="schema.pbtxt")


Partitions = list[Callable[[], Iterable[pa.RecordBatch]]]


def analyzed(folder: Path, module: str, partitions: Partitions) -> tuple[PhaseSpec, float]:
    """Analyzes the partitions in one phase; returns its spec, and the seconds of it all."""
    folder.mkdir(exist_ok=True)
    (folder / "preprocessing.py").write_text(module)
    specs = []

    def run_phase(spec: PhaseSpec) -> list[list[str]]:
        specs.append(spec)
        paths = [str(folder / f"{spec.number}-{i}") for i in range(len(partitions))]
        for path, partition in zip(paths, partitions, strict=True):
            accumulate(spec, partition(), path)
        return [[path] for path in paths]

    preprocessing = Preprocessing.load(str(folder / "preprocessing.py"))
    schema = schema_of(next(iter(partitions[0]())))
    begin = time.perf_counter()
    analyze(preprocessing, schema, run_phase=run_phase, work_dir=str(folder / "work"), out_dir=str(folder / "out"))
    return specs[0], time.perf_counter() - begin


def cpu(function: Callable[[], Any], repeats: int) -> float:
    """The median of the CPU seconds of some calls, after one that is not counted."""
    function()
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


def passes(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    made = batches(options.rows)
    spec, _ = analyzed(folder / "graph", MODULE, [lambda: made[:1]])
    names = [
        [s for s, a in zip(spec.sections, spec.analyzers, strict=False) if (a.column is None) == n] for n in (0, 1)
    ]
    figures = {}
    for name, part in {
        "all": spec,
        "26 vocabularies from columns": spec.only(names[0]),
        "13 z-scores from the graph": spec.only(names[1]),
        "looking at 13 columns": spec.only([s for s in spec.sections if s.startswith("column ")]),
    }.items():
        seconds = cpu(lambda part=part: accumulate(part, made, str(folder / "states")), options.repeats)
        figures[f"{name}, rows/s"] = options.rows / seconds
    return figures


def transform(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    made = batches(options.rows)
    analyzed(folder / "graph", MODULE, [lambda: made])
    graph = TransformGraph(str(folder / "graph" / "out"), schema_of(made[0]))
    loaded = graph._graph
    steps = {"Arrow to tensors": 0.0, "graph": 0.0, "tensors to Arrow": 0.0, "encoding": 0.0}
    encoder, memory = Encoder(graph.output_schema()), np.empty(64 << 20, np.uint8)

    def timed(step: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        begin = time.process_time()
        result = function(*arguments, **named)
        steps[step] += time.process_time() - begin
        return result

    def run() -> None:
        for batch in made:
            tensors = timed("Arrow to tensors", loaded._reader.read, batch)
            outputs = timed("graph", loaded._loader.apply_transform_model, tensors)
            features = timed("tensors to Arrow", loaded.writer.write, outputs)
            timed("encoding", encoder.encode, features, out=memory)

    run()
    steps = dict.fromkeys(steps, 0.0)
    for _ in range(options.repeats):
        run()
    total = sum(steps.values())
    figures = {f"{step}, %": 100 * seconds / total for step, seconds in steps.items()}
    whole = cpu(lambda: [graph.transform(batch) for batch in made], options.repeats)
    return {
        "transform, rows/s": options.rows / whole,
        "transform and encoding, rows/s": options.rows * options.repeats / total,
        **figures,
    }


def fixed(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    made = batches(1000)
    figures, counts = {}, [1, 2, 4]
    analyzed(folder / "first", MODULE, [lambda: made])
    for times in counts:
        module = MODULE.replace("    return outputs", "").replace(
            "def preprocessing_fn(inputs):", "def one(inputs, n):"
        )
        module = module.replace('f"i{i}"]', 'f"i{i}-{n}"]', 1).replace('f"c{i}"]', 'f"c{i}-{n}"]', 1)
        module = module.replace('vocab_filename=f"c{i}"', 'vocab_filename=f"c{i}-{n}"') + "    return outputs\n"
        module += f"""

def preprocessing_fn(inputs):
    outputs = {{}}
    for n in range({times}):
        outputs.update(one(inputs, n))
    return outputs
"""
        begin = time.process_time()
        _, seconds = analyzed(folder / str(times), module, [lambda: made])
        figures[f"{39 * times} analyzers, s"] = seconds
        figures[f"{39 * times} analyzers, CPU s"] = time.process_time() - begin
    more = 39 * (counts[-1] - counts[0])
    slope = figures[f"{39 * counts[-1]} analyzers, CPU s"] - figures["39 analyzers, CPU s"]
    return figures | {"each further analyzer, CPU s": slope / more}


class Memory:
    """By how many kB the memory of this process grows at most, without pages of files, which the system can drop."""

    def __enter__(self) -> Memory:
        self.grown, self._is_over, self._first = 0, threading.Event(), self._now()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.005):
            self.grown = max(self.grown, self._now() - self._first)

    def _now(self) -> int:
        (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
        return int(line.split()[1])


def distinct(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Each token of the partitions stands in two of them, or in one."""
    size = options.distinct // PARTITIONS

    def partition(number: int) -> Iterator[pa.RecordBatch]:
        for start in range(number * size, (number + 1) * size, BATCH_ROWS):
            values = np.arange(start, min(start + BATCH_ROWS, (number + 1) * size), dtype=np.uint64)
            values = np.concatenate([values, values[::3] // 2]) * np.uint64(0x9E3779B97F4A7C15)
            yield pa.RecordBatch.from_pydict({"s": pa.array(values).cast(pa.string()).cast(pa.binary())})

    module = """import tensorflow_transform as tft


def preprocessing_fn(inputs):
    tft.vocabulary(inputs["s"], vocab_filename="s")
    return inputs
"""
    analyzed(
        folder / "first", module, [lambda: partition(0)] if options.distinct < 1000 else [lambda: [next(partition(0))]]
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    partitions: Partitions = [functools.partial(partition, number) for number in range(PARTITIONS)]
    begin = time.process_time()
    with Memory() as memory:
        _, seconds = analyzed(folder / "all", module, partitions)
    vocabulary = folder / "all" / "out" / "transform_fn" / "assets" / "s"
    with open(vocabulary, "rb") as stream:
        tokens = sum(1 for _ in stream)
    return {
        "distinct tokens": tokens,
        "file, MB": vocabulary.stat().st_size / 1e6,
        "seconds": seconds,
        "CPU s": time.process_time() - begin,
        "TensorFlow alone, MB": before / 1e3,
        "grown at most by, MB": memory.grown / 1e3,
        "and with mapped pages of files, MB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
    }


def stock(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Both analyses after all imports; stock gets batches of 1,000 rows, as TFX makes them at most."""
    made = batches(options.rows)
    small = batches(options.rows, batch_rows=1000)
    internals()
    begin_cpu = time.process_time()
    _, ours = analyzed(folder / "ours", MODULE, [lambda: made])
    ours_cpu = time.process_time() - begin_cpu
    preprocessing = Preprocessing.load(str(folder / "ours" / "preprocessing.py"))
    begin, begin_cpu, out = time.perf_counter(), time.process_time(), str(folder / "stock")
    analyze_stock(preprocessing, schema_of(made[0]), partitions=[0], read=lambda _: small, out_dir=out)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
    for name in (folder / "stock" / "transform_fn" / "assets").iterdir():
        assert name.read_bytes() == (folder / "ours" / "out" / "transform_fn" / "assets" / name.name).read_bytes()
    return {
        "ours, s": ours,
        "ours, CPU s": ours_cpu,
        "stock, s": seconds,
        "stock, CPU s": cpu_seconds,
        "ratio": seconds / ours,
        "ratio of CPU": cpu_seconds / ours_cpu,
    }


STEPS = {step.__name__: step for step in (passes, transform, fixed, distinct, stock)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", nargs="*", choices=[[], *STEPS], help="which; all but stock when there is none")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--distinct", type=int, default=10_000_000)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
            print(json.dumps(STEPS[options.step[0]](options, Path(folder))))
        return
    one_thread = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    figures: dict[str, Any] = {}
    for step in options.step or [step for step in STEPS if step != "stock"]:
        sizes = [f"--{name}={getattr(options, name)}" for name in ("rows", "repeats", "distinct")]
        command = [sys.executable, __file__, step, "--alone", *sizes]
        threads = {} if step == "stock" else one_thread
        result = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | threads)
        figures[step] = json.loads(result.stdout.splitlines()[-1])
        print(step)
        for name, value in figures[step].items():
            print(f"  {name:45s} {value:15,.{0 if value > 1000 else 3}f}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
