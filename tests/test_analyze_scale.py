"""What must not grow: Beam stages with analyzers, memory with tokens; and what stock cannot do on the local runner."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

import pipeline.analysis
import pipeline.plan
import pipeline.stages
from pipeline.build import build
from pipeline.config import load
from pipeline.inspect import inspect
from transforms.analyze import PhaseSpec, accumulate, analyze
from transforms.preprocess import Preprocessing
from transforms.schema import Schema

HEAD = "import tensorflow as tf\nimport tensorflow_transform as tft\n\n\ndef preprocessing_fn(x):\n    out = {}\n"
MANY = """    for i in range({count}):
        if i % 3:
            out[f"z{{i}}"] = tft.scale_to_z_score(x["a"] + i)
        else:
            tft.vocabulary(x["s"], vocab_filename=f"v{{i}}", top_k=i + 1)
"""
SCHEMA = Schema.from_text(
    'feature { name: "a" type: FLOAT presence { min_fraction: 1 } shape {} }'
    'feature { name: "s" type: BYTES presence { min_fraction: 1 } shape {} }',
    path="schema.pbtxt",
)


def module(folder: Path, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "preprocessing.py").write_text(f"{HEAD}{body}    return out\n")


def config(folder: Path, body: str) -> Any:
    module(folder, body)
    lines = "".join(f"{i}.5,token {i % 7}\n" for i in range(40))
    (folder / "data.csv").write_text("a,s\n" + lines)
    content = {
        "name": "d",
        "source": {"format": "csv", "files": "data.csv"},
        "preprocess": "preprocessing.py",
        "output": {"dir": "out"},
    }
    (folder / "config.yaml").write_text(json.dumps(content))
    return load(str(folder / "config.yaml"), ["runner.workers=1"])


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of transforms of each Beam pipeline that runs."""
    counts: list[int] = []
    run = beam.Pipeline.run

    def counted(job: beam.Pipeline, *arguments: Any, **named: Any) -> Any:
        counts.append(len(job.to_runner_api().components.transforms))
        return run(job, *arguments, **named)

    monkeypatch.setattr(beam.Pipeline, "run", counted)
    return counts


def test_beam_stages_do_not_depend_on_analyzers(
    tmp_path: Path, stages: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "recordmill")
    build(config(tmp_path / "few", MANY.format(count=10)))
    few = stages.copy()
    stages.clear()
    build(config(tmp_path / "many", MANY.format(count=60)))
    assert stages == few
    assert few
    assert "analysis: 10 analyzers in 1 passes" in caplog.text
    assert "analysis: 60 analyzers in 1 passes" in caplog.text


def test_three_phases_on_the_local_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job for each phase; stock TensorFlow Transform stops here with bundles that were not executed."""
    labels = []

    def noted(label: str, *arguments: Any, **options: Any) -> None:
        labels.append(label)
        pipeline.stages.run_stage(label, *arguments, **options)

    monkeypatch.setattr(pipeline.plan, "PARTITION_BYTES", 100)
    monkeypatch.setattr(pipeline.analysis, "run_stage", noted)
    body = "    out['p'] = tft.scale_to_0_1(tft.scale_to_z_score(tft.scale_to_z_score(x['a']) * 3.0))\n"
    build(config(tmp_path, body))
    assert labels == ["Accumulate0", "Accumulate1", "Accumulate2"]
    found = sorted(row["p"] for row in inspect(str(tmp_path / "out"), rows=1000).rows["all"])
    np.testing.assert_allclose(found, np.arange(40) / 39, atol=1e-6)


def run(folder: Path, body: str, partitions: list[list[pa.RecordBatch]]) -> Path:
    module(folder, body)

    def run_phase(spec: PhaseSpec) -> list[list[str]]:
        paths = [str(folder / f"{spec.number}-{i}") for i in range(len(partitions))]
        for path, batches in zip(paths, partitions, strict=True):
            accumulate(spec, batches, path)
        return [[path] for path in paths]

    out = folder / "out"
    preprocessing = Preprocessing.load(str(folder / "preprocessing.py"))
    analyze(preprocessing, SCHEMA, run_phase=run_phase, work_dir=str(folder / "work"), out_dir=str(out))
    return out / "transform_fn"


def rows(count: int) -> pa.RecordBatch:
    tokens = pa.array([b"token %d" % i for i in range(count)])
    return pa.RecordBatch.from_pydict({"a": pa.array(np.arange(count, dtype=np.float32)), "s": tokens})


@pytest.mark.slow
def test_a_thousand_analyzers(tmp_path: Path) -> None:
    """They work, and each costs as much as in a small analysis: nothing is done for each pair of them."""
    seconds = []
    for count in (100, 1000):
        begin = time.process_time()
        model = run(tmp_path / str(count), MANY.format(count=count), [[rows(50)]])
        seconds.append(time.process_time() - begin)
        assert len(list((model / "assets").iterdir())) == -(-count // 3)
    assert seconds[1] < 15 * seconds[0]


MEMORY = """
import sys
sys.path[:0] = {path!r}
import test_analyze_scale as scale
from pathlib import Path
scale.run(Path({folder!r}) / "first", scale.VOCABULARY, [[scale.rows(100)]])
with scale.Memory() as memory:
    scale.run(Path({folder!r}) / "all", scale.VOCABULARY, scale.Distinct({count}, 10))
print(memory.grown)
"""
VOCABULARY = "    tft.vocabulary(x['s'], vocab_filename='s')\n    out['a'] = x['a']\n"


class Distinct(list[Any]):
    """Partitions of tokens that all differ, made when they are asked for."""

    def __init__(self, count: int, partitions: int) -> None:
        self._size = count // partitions
        super().__init__(range(partitions))

    def __iter__(self) -> Any:
        return (self._batches(number) for number in range(len(self)))

    def _batches(self, number: int) -> Any:
        for start in range(0, self._size, 10_000):
            values = np.arange(start, start + 10_000, dtype=np.uint64) + np.uint64(number * self._size)
            values = values * np.uint64(0x9E3779B97F4A7C15)  # odd, so that they stay different
            tokens = pa.array(values).cast(pa.string()).cast(pa.binary())
            yield pa.RecordBatch.from_pydict({"a": pa.array(np.zeros(10_000, np.float32)), "s": tokens})


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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_does_not_grow_with_tokens(tmp_path: Path) -> None:
    """3 million tokens of 20 digits, 110 MB as columns, in 10 partitions; to sort them all at once takes 350 MB."""
    path = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    code = MEMORY.format(path=path, folder=str(tmp_path), count=3_000_000)
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    with open(tmp_path / "all" / "out" / "transform_fn" / "assets" / "s", "rb") as stream:
        tokens = stream.read().splitlines()
    assert len(tokens) == 3_000_000
    assert tokens == sorted(tokens, reverse=True)
    assert int(result.stdout) < 230_000  # kB


def test_batches_without_rows_of_the_split_are_left_out(tmp_path: Path) -> None:
    body = """    tft.vocabulary(x['s'], labels=tf.cast(x['a'], tf.int64), vocab_filename='s')
    out['a'] = x['a']
"""
    made = run(tmp_path / "without", body, [[rows(20)]])
    empty = run(tmp_path / "with", body, [[rows(20).slice(0, 0), rows(20), rows(20).slice(20)], [rows(0)]])
    name = "assets/s"
    assert (empty / name).read_bytes() == (made / name).read_bytes()
