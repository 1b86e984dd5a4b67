"""Without a schema the source is read once, if it says everywhere what a few partitions say."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pipeline import build as pipeline_build
from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.inspect import inspect
from transforms.errors import BadRowsError, ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 1200)
    (tmp_path / "data").mkdir()
    for i in range(12):
        write(tmp_path, i)
    return tmp_path


def write(folder: Path, number: int, *odd: str, header: str = "id,n,text") -> None:
    lines = [f"{number * 100 + i},{i % 5},some text {i}" for i in range(40)]
    (folder / "data" / f"{number:02d}.csv").write_text("\n".join([header, *lines[: 40 - len(odd)], *odd]) + "\n")


def run(folder: Path, **options: Any) -> BuildResult:
    content = {"name": "d", "source": {"format": "csv", "files": "data/*"}, "output": {"dir": "out"}} | options
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=2"]))


def shards(result: BuildResult) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(result.path).rglob("*.*") if path.name != "manifest.json"}


def in_two_passes(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, bytes]:
    with monkeypatch.context() as patch:
        patch.setattr(pipeline_build, "BUILT_AHEAD", ())
        return shards(run(folder, **options, output={"dir": "again"}))


@pytest.mark.parametrize("shuffle", ["none", "blocks", "rows"])
def test_the_result_is_that_of_two_passes(folder: Path, monkeypatch: pytest.MonkeyPatch, shuffle: str) -> None:
    result = run(folder, output={"dir": "out", "shuffle": shuffle})
    assert (result.built_partitions, result.reused_partitions) == (12, 0)
    assert result.steps["build"] > 0
    with monkeypatch.context() as patch:
        patch.setattr(pipeline_build, "BUILT_AHEAD", ())
        assert shards(run(folder, output={"dir": "again", "shuffle": shuffle})) == shards(result)


@pytest.mark.parametrize(
    "odd",
    [
        ["9900,,none here"],  # a missing value
        ["9900,7.5,a float"],
        ["9900,seven,a word"],
        ["9900,99999999999999999999,too long"],
    ],
)
def test_a_partition_that_says_otherwise(folder: Path, monkeypatch: pytest.MonkeyPatch, odd: list[str]) -> None:
    write(folder, 7, *odd)
    result = run(folder)
    assert result.splits["all"].rows == 480
    assert result.bad_rows == 0
    assert shards(result) == in_two_passes(folder, monkeypatch)
    row = next(row for row in inspect(str(folder / "out"), rows=1000).rows["all"] if row["id"] == 9900)
    assert str(row.get("n", "")) == odd[0].split(",")[1] or row["n"] == odd[0].split(",")[1].encode()


def test_a_column_that_one_file_alone_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "data" / "05.csv").write_text("id,n,text,more\n5,5,five,x\n")
    result = run(folder)
    assert "more" in (Path(result.path) / "schema.pbtxt").read_text()
    assert shards(result) == in_two_passes(folder, monkeypatch)


def test_rows_with_too_many_cells_are_bad_in_either_way(folder: Path) -> None:
    write(folder, 7, "9900,1,a,b")
    with pytest.raises(BadRowsError, match="07.csv, row 40: has 4 cells"):
        run(folder)
    assert run(folder, max_bad_rows=1).bad_rows == 1


def test_a_key_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ConfigError, match="split_by names the column 'nothing'"):
        run(folder, splits={"train": 0.5, "eval": 0.5}, split_by="nothing")


def test_new_files_are_guessed_from_what_is_known(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(folder)
    for i in range(20, 26):
        write(folder, i)
    caplog.set_level(logging.INFO, "recordmill")
    second = run(folder)
    assert (second.built_partitions, second.reused_partitions) == (6, 12)
