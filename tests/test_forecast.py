"""What a build would do, held against what it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.cli import app
from pipeline.config import Config, load
from pipeline.forecast import Forecast, forecast


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 3500)
    (tmp_path / "data").mkdir()
    for i in range(60):
        write(tmp_path, i)
    return tmp_path


def write(folder: Path, number: int, count: int = 150) -> None:
    lines = "".join(f"{i},value {i}\n" for i in range(number * 1000, number * 1000 + count))
    (folder / "data" / f"{number:03d}.csv").write_text("id,text\n" + lines)


def config(folder: Path, **options: Any) -> Config:
    output = {"dir": "out", "shard_size": 4000, **options.pop("output", {})}
    content = {"name": "d", "source": {"format": "csv", "files": "data/*"}, "output": output} | options
    (folder / "config.yaml").write_text(json.dumps(content))
    return load(str(folder / "config.yaml"), ["runner.workers=1"])


def todo(found: Forecast) -> dict[str, tuple[int, int]]:
    return {step.name: (step.todo, step.reused) for step in found.steps}


def done(result: BuildResult) -> dict[str, tuple[int, int]]:
    return {
        "build": (result.built_partitions, result.reused_partitions),
        "assemble": (result.built_shards, result.reused_shards),
    }


def test_before_the_first_build_a_sample_is_measured(folder: Path) -> None:
    found = forecast(config(folder))
    assert todo(found)["schema"] == todo(found)["build"] == (60, 0)
    assert "alone" in found.rates
    assert found.seconds is not None and found.seconds > 0
    result = build(config(folder))
    assert found.output_bytes == pytest.approx(result.num_bytes, rel=0.2)


@pytest.mark.parametrize("shuffle", ["none", "blocks", "rows"])
def test_a_refresh_does_what_was_told(folder: Path, shuffle: str) -> None:
    options: dict[str, Any] = {"output": {"shuffle": shuffle}, "splits": {"train": 0.8, "eval": 0.2}}
    build(config(folder, **options))
    write(folder, 30, count=140)
    before = listing(folder / "out")
    found = forecast(config(folder, **options))
    assert listing(folder / "out") == before
    assert found.reasons == ("source: data/030.csv changed",)
    assert "the schema stays" in found.assumed[0]
    result = build(config(folder, **options))
    assert todo(found)["build"] == done(result)["build"] == (1, 59)
    assert found.output_bytes == pytest.approx(result.num_bytes, rel=0.1)
    if shuffle == "rows":
        assert done(result)["assemble"][1] == 0
    else:
        assert todo(found)["assemble"] == pytest.approx(done(result)["assemble"], abs=4)
        assert todo(found)["assemble"][1] > todo(found)["assemble"][0]


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_nothing_to_do(folder: Path) -> None:
    result = build(config(folder))
    found = forecast(config(folder))
    assert found.up_to_date and not found.steps
    assert found.output_bytes == result.num_bytes


def test_options_alone(folder: Path) -> None:
    build(config(folder))
    found = forecast(config(folder, output={"level": 9}))
    assert todo(found)["schema"] == (0, 60)
    assert todo(found)["build"] == (60, 0)
    assert found.reasons == ("output.level: 1 → 9",)


def test_the_command(folder: Path) -> None:
    build(config(folder))
    write(folder, 7, count=10)
    run = CliRunner().invoke(app, ["plan", str(folder / "config.yaml"), "--json"])
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert {step["name"]: step["todo"] for step in told["steps"]}["build"] == 1
    assert told["reasons"] == ["source: data/007.csv changed"]
    text = CliRunner().invoke(app, ["plan", str(folder / "config.yaml")]).stdout
    assert "because source: data/007.csv changed" in text
    assert "at the rates of the last builds" in text
