"""The main job from a config to published shards, without preprocessing."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.inspect import inspect
from pipeline.layout import Layout
from pipeline.verify import verify
from transforms.errors import BadRowsError, BuildError, ConfigError, SchemaError


def run(folder: Path, *overrides: str, **config: Any) -> BuildResult:
    """Builds ``folder/data`` into ``folder/out``; the config is JSON, which is YAML."""
    content = {"name": "d", "source": {"format": "csv", "files": "data/*"}, "output": {"dir": "out"}} | config
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=1", *overrides]))


def source(folder: Path, **files: str | bytes) -> None:
    (folder / "data").mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / "data" / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def rows(folder: Path, split: str = "all") -> list[dict[str, Any]]:
    """All rows of the latest version's split, decoded: features with one value as that value."""
    found = inspect(str(folder / "out"), rows=10**6, split=split)
    return [{name: _scalar(value) for name, value in row.items()} for row in found.rows[split]]


def _scalar(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def shards(folder: Path) -> dict[str, bytes]:
    latest = Path(Layout(str(folder / "out")).version_dir(Layout(str(folder / "out")).latest() or ""))
    return {str(p.relative_to(latest)): p.read_bytes() for p in sorted(latest.glob("*/*.tfrecord*"))}


def leftovers(folder: Path) -> list[str]:
    return [os.path.join(parent, n) for parent, d, f in os.walk(folder) for n in [*d, *f] if ".tmp-" in n]


def ids(count: int, start: int = 0) -> str:
    return "id\n" + "".join(f"{i}\n" for i in range(start, start + count))


def test_a_csv_becomes_a_published_version(tmp_path: Path) -> None:
    source(tmp_path, a__csv="id,age,name\n1,31,ann\n2,,bob\n", b__csv="id,age,name\n3,45,\n")
    result = run(tmp_path)
    assert (result.rows_read, result.bad_rows, result.splits["all"].rows) == (3, 0, 3)
    assert not result.up_to_date
    assert sorted(os.listdir(result.path)) == ["all", "manifest.json", "schema.pbtxt", "stats.pb"]
    assert os.listdir(os.path.join(result.path, "all")) == ["d-all-00000-of-00001.tfrecord.gz"]
    found = sorted(rows(tmp_path), key=lambda row: row["id"])
    assert [row["id"] for row in found] == [1, 2, 3]
    assert [row.get("age") for row in found] == [31, None, 45]
    assert not verify(str(tmp_path / "out")).faults
    assert not leftovers(tmp_path)


def test_nothing_to_do_is_said(tmp_path: Path) -> None:
    source(tmp_path, a__csv=ids(10))
    first, second = run(tmp_path), run(tmp_path)
    assert second.up_to_date and second.version == first.version and second.rows_read == 10
    assert len(Layout(str(tmp_path / "out")).published()) == 1


def test_same_name_size_and_time_with_other_content_is_built_again(tmp_path: Path) -> None:
    for content, top in (("id,x\n1,10\n2,20\n", 20), ("id,x\n1,40\n2,90\n", 90), ("id,x\n1,10\n2,20\n", 20)):
        source(tmp_path, a__csv=content)
        os.utime(tmp_path / "data" / "a.csv", (1_700_000_000, 1_700_000_000))
        run(tmp_path)
        assert max(row["x"] for row in rows(tmp_path)) == top


@pytest.mark.parametrize("compression", ["gzip", "zlib", "none"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
def test_seven_rows_in_any_number_of_shards(tmp_path: Path, count: int, compression: str) -> None:
    source(tmp_path, seven__csv=ids(7))
    for workers in (1, 4):
        result = run(
            tmp_path, f"runner.workers={workers}", output={"dir": "out", "shards": count, "compression": compression}
        )
    assert result.splits["all"].shards == min(count, 7)
    found = shards(tmp_path)
    assert len(found) == min(count, 7)
    assert all(f"-of-{len(found):05d}." in name and content for name, content in found.items())
    assert sorted(row["id"] for row in rows(tmp_path)) == list(range(7))
    assert not verify(str(tmp_path / "out")).faults


def test_shards_are_of_one_size(tmp_path: Path) -> None:
    source(tmp_path, a__csv=ids(1000))
    run(tmp_path, output={"dir": "out", "shards": 5})
    manifest = inspect(str(tmp_path / "out")).manifest
    assert [shard.num_records for shard in manifest.splits["all"]] == [200] * 5


def test_a_smaller_rerun_leaves_no_stale_shards(tmp_path: Path) -> None:
    source(tmp_path, a__csv=ids(40))
    run(tmp_path, output={"dir": "out", "shards": 5})
    source(tmp_path, a__csv=ids(6, 100))
    run(tmp_path, output={"dir": "out", "shards": 2})
    assert len(shards(tmp_path)) == 2
    assert sorted(row["id"] for row in rows(tmp_path)) == list(range(100, 106))
    source(tmp_path, a__csv="id,x\n200,1\n201\n202,2\n")
    with pytest.raises(BadRowsError, match=r"a\.csv, row 2"):
        run(tmp_path, output={"dir": "out", "shards": 2})
    assert sorted(row["id"] for row in rows(tmp_path)) == list(range(100, 106))
    assert not leftovers(tmp_path)


SPLITS = {"train": 0.8, "eval": 0.1, "test": 0.1}


@pytest.mark.parametrize("shuffle", ["none", "blocks", "rows"])
def test_bytes_do_not_depend_on_workers(tmp_path: Path, shuffle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 4096)
    lines = "".join(f'{i},{i % 7 or ""},"text\n{i * 31 % 1000}"\n' for i in range(3000))
    built = []
    for name, workers in (("one", 1), ("two", 2), ("again", 2)):
        folder = tmp_path / name
        folder.mkdir()
        source(
            folder, a__csv=f"id,n,t\n{lines}", b__csv__gz=gzip.compress(b"t,id,n\nx,1,\n", mtime=0), c__csv="id,n,t\n"
        )
        run(folder, f"runner.workers={workers}", splits=SPLITS, output={"dir": "out", "shuffle": shuffle, "shards": 3})
        built.append(shards(folder))
        assert not verify(str(folder / "out")).faults
    assert built[0] == built[1] == built[2]
    assert len(built[0]) == 9
    everything = [row["id"] for split in SPLITS for row in rows(tmp_path / "two", split)]
    assert sorted(everything) == sorted([*range(3000), 1])
    in_order = sorted(rows(tmp_path / "two", "train"), key=lambda row: row["id"])
    assert (rows(tmp_path / "two", "train") == in_order) == (shuffle == "none") or shuffle == "none"


def test_only_changed_partitions_are_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 100)
    files = {f"f{i}__csv": "id\n" + f"{i}\n" * 60 for i in range(5)}
    source(tmp_path, **files)
    assert run(tmp_path).built_partitions == 5 * 2
    source(tmp_path, f2__csv="id\n" + "7\n" * 60)
    result = run(tmp_path)
    assert result.built_partitions == 2 and result.reused_partitions == 8
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    source(fresh, **(files | {"f2__csv": "id\n" + "7\n" * 60}))
    run(fresh)
    assert shards(fresh) == shards(tmp_path)


def test_splits_that_get_no_rows_are_reported_and_leave_no_files(tmp_path: Path) -> None:
    source(tmp_path, a__csv="user,x\nu1,1\nu1,2\n")
    result = run(tmp_path, splits={"train": 0.5, "eval": 0.5}, split_by=["user"])
    empty = next(name for name, split in result.splits.items() if split.rows == 0)
    assert any(f"{empty!r} has no rows" in warning for warning in result.warnings)
    assert not os.path.exists(os.path.join(result.path, empty))
    assert not verify(str(tmp_path / "out")).faults


def test_rows_without_a_key_are_counted(tmp_path: Path) -> None:
    source(tmp_path, a__csv="user,x\n,1\n,2\nu01,3\n")
    result = run(tmp_path, splits={"train": 0.8, "eval": 0.2}, split_by=["user"])
    assert any(warning.startswith("2 rows have no value in split_by (user)") for warning in result.warnings)
    assert sum(split.rows for split in result.splits.values()) == 3


def test_split_by_a_column_that_is_not_there(tmp_path: Path) -> None:
    source(tmp_path, a__csv="user,x\nu,1\n")
    with pytest.raises((ConfigError, SchemaError), match="usr"):
        run(tmp_path, splits={"train": 0.8, "eval": 0.2}, split_by=["usr"])


@pytest.mark.parametrize("content", ["id,name\n", ""])
def test_no_rows_at_all_fail_unless_allowed(tmp_path: Path, content: str) -> None:
    source(tmp_path, a__csv=content)
    with pytest.raises((BuildError, SchemaError), match="no rows|no columns"):
        run(tmp_path)
    assert Layout(str(tmp_path / "out")).latest() is None


def test_no_rows_when_allowed(tmp_path: Path) -> None:
    source(tmp_path, a__csv="id,name\n", b__csv="")
    result = run(tmp_path, allow_empty=True)
    assert result.splits["all"].rows == 0 and result.splits["all"].shards == 0
    assert any("b.csv" in warning for warning in result.warnings)
    assert not verify(str(tmp_path / "out")).faults


def test_an_output_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    source(tmp_path, a__csv=ids(1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="thesis.txt"):
        run(tmp_path)
    assert os.listdir(tmp_path / "out") == ["thesis.txt"]


def test_a_removed_or_changed_shard_is_found_and_mended(tmp_path: Path) -> None:
    source(tmp_path, a__csv=ids(100))
    result = run(tmp_path, output={"dir": "out", "shards": 4})
    good = shards(tmp_path)
    victim = Path(result.path, "all", "d-all-00002-of-00004.tfrecord.gz")
    victim.unlink()
    assert [fault for fault in verify(str(tmp_path / "out")).faults if "00002-of-00004" in str(fault)]
    result = run(tmp_path, output={"dir": "out", "shards": 4})
    assert not result.up_to_date and result.built_partitions == 0
    assert shards(tmp_path) == good


def test_a_damaged_cache_entry_is_reported_and_built_again(tmp_path: Path) -> None:
    source(tmp_path, a__csv=ids(100))
    run(tmp_path)
    good = shards(tmp_path)
    (entry,) = (tmp_path / "out" / "cache" / "blocks").iterdir()
    entry.write_bytes(entry.read_bytes()[:-5])
    result = run(tmp_path, output={"dir": "out", "shards": 2})
    assert result.built_partitions == 1 and any(entry.name in warning for warning in result.warnings)
    assert sorted(row["id"] for row in rows(tmp_path)) == list(range(100))
    assert len(good) == 1


def test_parquet_and_jsonl_give_the_same_examples(tmp_path: Path) -> None:
    values: list[Mapping[str, Any]] = [
        {"row": i, "id": v} for i, v in enumerate([2**53 + 1, None, -(2**63), 2**63 - 1])
    ]
    found = []
    for kind in ("csv", "jsonl", "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        source(folder)
        if kind == "csv":
            source(
                folder,
                a__csv="row,id\n" + "".join(f"{v['row']},{'' if v['id'] is None else v['id']}\n" for v in values),
            )
        elif kind == "jsonl":
            source(folder, a__jsonl="".join(json.dumps(v) + "\n" for v in values))
        else:
            pq.write_table(pa.Table.from_pylist([dict(v) for v in values]), folder / "data" / "a.parquet")
        run(folder, source={"format": kind, "files": "data/*"})
        found.append(sorted(rows(folder), key=lambda row: row["row"]))
    assert found[0] == found[1] == found[2]
    assert [row.get("id") for row in found[0]] == [v["id"] for v in values]


def test_shuffle_changes_the_order_and_the_seed_changes_it_again(tmp_path: Path) -> None:
    source(tmp_path, a__csv=ids(500))
    orders = []
    for shuffle, seed in (("none", 0), ("blocks", 0), ("blocks", 1), ("rows", 0)):
        run(tmp_path, output={"dir": "out", "shuffle": shuffle, "seed": seed})
        orders.append(tuple(row["id"] for row in rows(tmp_path)))
    assert orders[0] == tuple(range(500))
    assert len(set(orders)) == 4


def cpu_seconds(*arguments: str) -> float:
    """What a command takes of the processor: with nothing else to do on the machine, the time that passes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(Path(sys.executable).with_name("recordmill")), *arguments]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_a_tiny_build_takes_less_than_three_seconds(tmp_path: Path) -> None:
    """From the command to the published version, on the second run on a machine."""
    source(tmp_path, a__csv=ids(20))
    run(tmp_path)
    config = str(tmp_path / "config.yaml")
    assert min(cpu_seconds("build", config, "--set", f"output.seed={seed}") for seed in (1, 2, 3)) < 3


def test_columns_that_schema_and_data_do_not_share_are_told(tmp_path: Path) -> None:
    source(tmp_path, a__csv="id,Age,extra\n1,30,x\n")
    (tmp_path / "s.pbtxt").write_text('feature { name: "id" type: INT }\nfeature { name: "age" type: INT }\n')
    warnings = run(tmp_path, schema="s.pbtxt").warnings
    assert any("no file has 'age'" in warning for warning in warnings)
    assert any("leaves out columns of the data: 'Age, extra'" in warning for warning in warnings)
    source(tmp_path, b__csv="age,id\n31,2\n")
    warnings = run(tmp_path, schema="s.pbtxt").warnings
    assert not any("no file has" in warning for warning in warnings)
