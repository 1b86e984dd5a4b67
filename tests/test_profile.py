"""What ``--profile`` says of builds that are slow for a known reason, and the files that it writes."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.table import write_csv
from pipeline import plan
from pipeline.bottleneck import bottlenecks
from pipeline.build import build
from pipeline.cli import app
from pipeline.config import load
from pipeline.times import by_stage, by_step
from pipeline.values import processors
from transforms.timing import measured, step, timed

ROWS = 120_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    write_csv(str(path), ROWS)
    return path


def write_config(folder: Path, table: Path, *, files: int = 4, more: str = "", runner: str = "") -> str:
    """A config of files of the same size."""
    lines = table.read_bytes().splitlines(keepends=True)
    head, rows = lines[0], lines[1:]
    for i in range(files):
        (folder / f"t-{i}.csv").write_bytes(head + b"".join(rows[i::files]))
    config = folder / "c.yaml"
    config.write_text(f"name: t\nsource: {{format: csv, files: 't-*.csv*'}}\noutput: {{dir: out}}\n{more}")
    if runner:
        config.write_text(config.read_text() + f"runner: {runner}\n")
    return str(config)


def said(config: str, *overrides: str) -> list[str]:
    loaded = load(config, overrides)
    return [finding.text for finding in bottlenecks(loaded, build(loaded))]


def test_level_9_is_named_with_what_level_1_would_bring(tmp_path: Path, table: Path) -> None:
    first = said(write_config(tmp_path, table), "output.level=9")[0]
    assert first.startswith("compression took ") and "output.level: 1 would be " in first
    assert "× faster than gzip, level 9, and " in first and first.endswith("% larger")


@pytest.mark.skipif(processors() < 2, reason="there is one processor")
def test_one_worker_is_named_with_what_two_would_take(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 4 << 20)
    first = said(write_config(tmp_path, table), "runner.workers=1")[0]
    assert first.startswith(f"runner.workers is 1, and this machine has {processors()} processors: with runner.workers")


def test_one_giant_file_is_named(tmp_path: Path, table: Path) -> None:
    config = write_config(tmp_path, table, files=1)
    with open(tmp_path / "t-0.csv", "rb") as plain, gzip.open(tmp_path / "t-0.csv.gz", "wb", 1) as packed:
        shutil.copyfileobj(plain, packed)
    (tmp_path / "t-0.csv").unlink()
    (tmp_path / "small.csv").write_bytes(table.read_bytes()[:100_000].rpartition(b"\n")[0] + b"\n")
    Path(config).write_text(Path(config).read_text().replace("'t-*.csv*'", "[t-0.csv.gz, small.csv]"))
    found = said(config, "runner.workers=2")
    assert any("waited for one task" in text and "t-0.csv.gz" in text for text in found), found
    assert any("a file that cannot be cut into parts is read by one" in text for text in found), found


COSTLY = """
import tensorflow as tf

def preprocessing_fn(inputs):
    found = {f"plain_{i}": inputs[f"i{i}"] for i in range(5)}
    x = tf.cast(inputs["i5"], tf.float32)[:, tf.newaxis] * tf.ones([1, 3000])
    for _ in range(12):
        x = tf.math.sin(x) + tf.math.cos(x)
    return found | {"costly": tf.reduce_sum(x, axis=1)}
"""


def test_a_costly_feature_is_named(tmp_path: Path, table: Path) -> None:
    (tmp_path / "preprocessing.py").write_text(COSTLY)
    config = write_config(tmp_path, table, more="preprocess: preprocessing.py\nanalyze: all\n")
    first = said(config)[0]
    assert first.startswith("the transform graph took ") and "`costly`" in first.split(",")[1], first


def test_the_command_writes_a_trace_and_a_flame_graph(tmp_path: Path, table: Path) -> None:
    result = CliRunner().invoke(app, ["build", write_config(tmp_path, table), "--profile"])
    assert result.exit_code == 0, result.output
    assert "of the workers' time" in result.output
    folder = next((tmp_path / "out" / "profiles").iterdir())
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    tasks = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in tasks} == {"InferSchema", "BuildBlocks", "AssembleShards"}
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in tasks)
    flames = json.loads((folder / "steps.speedscope.json").read_text())
    names = [frame["name"] for frame in flames["shared"]["frames"]]
    (profile,) = flames["profiles"]
    assert {"BuildBlocks", "encode", "compress"} <= set(names)
    assert len(profile["samples"]) == len(profile["weights"])
    assert all(0 <= frame < len(names) for stack in profile["samples"] for frame in stack)

    again = CliRunner().invoke(app, ["build", str(tmp_path / "c.yaml"), "--profile"])
    assert again.exit_code == 0 and "there is no profile" in again.output


def test_the_times_of_all_tasks_add_up(tmp_path: Path, table: Path) -> None:
    result = build(load(write_config(tmp_path, table)))
    assert {task.stage for task in result.tasks} == {stage.stage for stage in result.stages}
    for stage in result.stages:
        assert sum(stage.steps.values()) == pytest.approx(stage.busy, rel=0.02)
        assert stage.busy <= stage.seconds * stage.workers * 1.01
        assert stage.longest_seconds <= stage.seconds
    assert sum(by_step(result.stages).values()) == pytest.approx(sum(s.busy for s in result.stages), rel=0.02)
    assert by_stage([]) == []


def test_a_step_in_a_step_is_told_apart() -> None:
    with step("not measured"):
        pass
    with measured() as stopwatch:
        with step("outer"):
            assert list(timed("inner", range(3))) == [0, 1, 2]
        with pytest.raises(ValueError), step("failing"):
            raise ValueError
        with measured() as other, step("elsewhere"):
            pass
    assert set(stopwatch.seconds) == {"outer", "outer/inner", "failing"} and set(other.seconds) == {"elsewhere"}
    assert all(wall >= 0 and cpu >= 0 for wall, cpu in stopwatch.seconds.values())
