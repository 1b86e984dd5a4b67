"""A refresh costs what changed, says why, and gives what a build from nothing gives."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.layout import Layout
from pipeline.verify import verify

SOURCE = {"format": "csv", "files": "data/*.csv"}


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 3500)


def run(folder: Path, **config: Any) -> BuildResult:
    output = {"dir": "out", **config.pop("output", {})}
    content = {"name": "d", "source": SOURCE, "output": output} | config
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=2"]))


def write(folder: Path, name: str, start: int, count: int = 150) -> None:
    path = folder / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("id,text\n" + "".join(f"{i},value {i}\n" for i in range(start, start + count)))


def files(result: BuildResult) -> dict[str, bytes]:
    return {
        os.path.relpath(os.path.join(parent, name), result.path): Path(parent, name).read_bytes()
        for parent, _, names in os.walk(result.path)
        for name in names
        if name != "manifest.json"
    }


def inodes(result: BuildResult) -> set[int]:
    return {os.stat(path).st_ino for path in Path(result.path).glob("*/*.tfrecord*")}


def from_nothing(folder: Path, **config: Any) -> dict[str, bytes]:
    """What the same build gives in an empty folder."""
    copy = folder.parent / "from nothing"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    shutil.copytree(folder / "data", copy / "data")
    return files(run(copy, **config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.mark.parametrize("shuffle", ["none", "blocks"])
def test_one_of_many_partitions_changed(folder: Path, shuffle: str) -> None:
    for i in range(100):
        write(folder, f"{i:03d}.csv", i * 1000)
    config: dict[str, Any] = {"splits": {"train": 0.8, "eval": 0.2}, "output": {"shuffle": shuffle, "shard_size": 4000}}
    first = run(folder, **config)
    shards = first.built_shards
    assert (first.built_partitions, first.reused_shards) == (100, 0)
    assert shards > 20
    write(folder, "050.csv", 7_000_000, count=140)
    second = run(folder, **config)
    assert (second.built_partitions, second.reused_partitions) == (1, 99)
    assert second.reasons == ("source: data/050.csv changed",)
    assert second.built_shards < shards / 3
    assert len(inodes(first) & inodes(second)) == second.reused_shards
    assert files(second) == from_nothing(folder, **config)
    assert not verify(str(folder / "out")).faults


def test_a_new_day_adds_shards_and_leaves_the_others_alone(folder: Path) -> None:
    source = {"format": "csv", "files": "data/day={DATE}/*.csv", "window": 3}
    for day in (1, 2, 3):
        write(folder, f"day=2026-01-0{day}/a.csv", day * 1000)
        write(folder, f"day=2026-01-0{day}/b.csv", day * 1000 + 500)
    first = run(folder, source=source, output={"shards": 2})
    assert sorted(files(first))[:3] == [
        "all/d-all-2026-01-01-00000-of-00002.tfrecord.gz",
        "all/d-all-2026-01-01-00001-of-00002.tfrecord.gz",
        "all/d-all-2026-01-02-00000-of-00002.tfrecord.gz",
    ]
    write(folder, "day=2026-01-04/a.csv", 4000)
    second = run(folder, source=source, output={"shards": 2})
    assert (second.built_partitions, second.built_shards, second.reused_shards) == (1, 2, 4)
    assert {name[10:20] for name in files(second) if name.startswith("all/")} == {
        f"2026-01-0{day}" for day in (2, 3, 4)
    }
    assert second.rows_read == 150 * 5
    assert second.reasons == (
        "source: data/day=2026-01-04/a.csv is new",
        "source: data/day=2026-01-01/a.csv, data/day=2026-01-01/b.csv are gone",
    )
    assert files(second) == from_nothing(folder, source=source, output={"shards": 2})


@pytest.mark.parametrize("shuffle", ["none", "blocks", "rows"])
def test_spans_are_shuffled_by_themselves(folder: Path, shuffle: str) -> None:
    source = {"format": "csv", "files": "data/{SPAN}.csv"}
    output = {"shuffle": shuffle}
    for span in range(4):
        write(folder, f"{span}.csv", span * 1000, count=300)
    run(folder, source=source, output=output)
    write(folder, "4.csv", 4000, count=500)
    second = run(folder, source=source, output=output)
    assert (second.built_shards, second.reused_shards) == (1, 4)
    assert files(second) == from_nothing(folder, source=source, output=output)


def test_an_earlier_shard_that_is_damaged_is_not_taken(folder: Path) -> None:
    source = {"format": "csv", "files": "data/{SPAN}.csv"}
    for span in (1, 2):
        write(folder, f"{span}.csv", span * 1000)
    first = run(folder, source=source)
    shard = next(Path(first.path).glob("all/*-1-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    write(folder, "3.csv", 3000)
    second = run(folder, source=source)
    assert any("is not as it was published" in warning and str(shard) in warning for warning in second.warnings)
    assert files(second) == from_nothing(folder, source=source)


@pytest.mark.parametrize("kind", ["profiles", "blocks", "buckets"])
@pytest.mark.parametrize("cut", [False, True])
def test_damaged_entries_of_the_cache_are_made_again(folder: Path, kind: str, cut: bool) -> None:
    for i in range(3):
        write(folder, f"{i}.csv", i * 1000)
    output = {"shuffle": "rows" if kind == "buckets" else "blocks"}
    whole = files(run(folder, output=output))
    for path in sorted((folder / "out" / "cache" / kind).iterdir()):
        content = bytearray(path.read_bytes())
        shutil.rmtree(folder / "out" / "versions")
        (folder / "out" / "LATEST").unlink()
        content[len(content) // 3] ^= 64
        path.write_bytes(content[: len(content) // 2] if cut else content)
        again = run(folder, output=output)
        assert any(str(path) in warning for warning in again.warnings)
        assert files(again) == whole


def test_why_a_build_is_another(folder: Path) -> None:
    write(folder, "a.csv", 0)
    run(folder)
    (folder / "data" / "b.csv").write_text("id,text,gate\n1,x,A7\n")
    assert run(folder).reasons == ("source: data/b.csv is new", "schema: column `gate` is new")
    (folder / "data" / "b.csv").write_text("id,text,gate\n1,x,7\n")
    assert run(folder).reasons == ("source: data/b.csv changed", "schema: column `gate` changed from bytes to int")
    changed = run(folder, output={"level": 6}, splits={"train": 0.5, "eval": 0.5})
    assert set(changed.reasons) == {"output.level: 1 → 6", 'splits: not given → {"train": 0.5, "eval": 0.5}'}


def test_the_order_of_files_is_part_of_the_result(folder: Path) -> None:
    write(folder, "a.csv", 0)
    write(folder, "b.csv", 1000)
    run(folder, source={"format": "csv", "files": ["data/a.csv", "data/b.csv"]}, output={"shuffle": "none"})
    config = {"source": {"format": "csv", "files": ["data/b.csv", "data/a.csv"]}, "output": {"shuffle": "none"}}
    second = run(folder, **config)
    assert second.built_partitions == 0
    assert "source: the files come in another order" in second.reasons
    assert files(second) == from_nothing(folder, **config)


def test_a_version_that_lost_a_file_is_built_again(folder: Path) -> None:
    write(folder, "a.csv", 0)
    first = run(folder)
    (Path(first.path) / "schema.pbtxt").unlink()
    second = run(folder)
    assert not second.up_to_date
    assert (second.built_partitions, second.version) == (0, Layout(str(folder / "out")).latest())
    assert run(folder).up_to_date


def test_a_file_among_many_small_ones_moves_few_partitions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 20_000)
    for i in range(0, 400, 2):
        write(folder, f"{i:03d}.csv", i * 1000, count=50)
    partitions = run(folder).built_partitions
    assert partitions > 8
    write(folder, "101.csv", 7_000_000, count=50)
    second = run(folder)
    assert second.built_partitions <= 3
    assert files(second) == from_nothing(folder)
