"""A wipe-out request: the rows go from what is built, from every other version, and from the cache."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.cli import app
from pipeline.config import load
from pipeline.forecast import forecast
from pipeline.inspect import inspect
from pipeline.layout import Layout
from pipeline.verify import verify
from transforms.drop import key_hashes
from transforms.errors import BuildError, ConfigError, SchemaError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 3500)
    folder = tmp_path / "here"
    (folder / "data").mkdir(parents=True)
    for i in range(12):
        write(folder, i)
    return folder


def write(folder: Path, number: int, count: int = 150) -> None:
    lines = "".join(f"{i},user {i % 50}\n" for i in range(number * 1000, number * 1000 + count))
    (folder / "data" / f"{number:02d}.csv").write_text("id,user\n" + lines)


def run(folder: Path, *keys: object, header: str = "id", **options: Any) -> BuildResult:
    output = {"dir": "out", "shard_size": 3000, **options.pop("output", {})}
    content = {"name": "d", "source": {"format": "csv", "files": "data/*"}, "output": output} | options
    if keys:
        (folder / "drop.csv").write_text("\n".join([header, *map(str, keys)]) + "\n")
        content["drop_rows"] = "drop.csv"
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=2"]))


def ids(folder: Path, version: str | None = None) -> list[int]:
    return sorted(row["id"] for row in inspect(str(folder / "out"), version=version, rows=10**6).rows["all"])


def files(result: BuildResult) -> dict[str, bytes]:
    found = Path(result.path)
    return {str(p.relative_to(found)): p.read_bytes() for p in sorted(found.rglob("*.*")) if p.name != "manifest.json"}


def cached(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted((folder / "out" / "cache").rglob("*")) if p.is_file())


@pytest.mark.parametrize("shuffle", ["none", "blocks", "rows"])
def test_only_the_partitions_that_hold_them_are_built(folder: Path, shuffle: str) -> None:
    run(folder, output={"shuffle": shuffle})
    result = run(folder, 3007, 3008, 9000, output={"shuffle": shuffle})
    assert result.built_partitions == 2
    assert (result.rows_read, result.dropped_rows, result.splits["all"].rows) == (1800, 3, 1797)
    assert not {3007, 3008, 9000} & set(ids(folder))
    other = folder.parent / "other"
    shutil.copytree(folder / "data", other / "data")
    assert files(run(other, 3007, 3008, 9000, output={"shuffle": shuffle})) == files(result)


def test_every_other_version_is_made_again(folder: Path) -> None:
    first = run(folder)
    write(folder, 12)
    second = run(folder)
    (folder / "data" / "12.csv").unlink()
    third = run(folder, output={"level": 9})
    write(folder, 12)
    again = run(folder, 3007, output={"level": 9})
    layout = Layout(str(folder / "out"))
    names = [f"{result.version}-r1" for result in (first, second, third)]
    assert sorted(again.versions_made_again) == sorted(names)
    assert layout.published() == sorted([*names, again.version])
    assert layout.latest() == again.version
    for version in layout.published():
        found = ids(folder, version)
        assert 3007 not in found
        assert len(found) == (1799 if version in (names[0], names[2]) else 1949)
        assert not verify(layout.dir, version=version).faults
    assert run(folder, 3007, output={"level": 9}).versions_made_again == ()


def test_the_cache_forgets_the_rows(folder: Path) -> None:
    (folder / "data" / "05.csv").write_text("id,user\n" + "".join(f"{i},secret-{i}\n" for i in range(5000, 5150)))
    run(folder, output={"compression": "none"})
    assert b"secret-5033" in cached(folder)
    run(folder, 5033, output={"compression": "none"})
    everywhere = cached(folder) + b"".join(p.read_bytes() for p in (folder / "out" / "versions").rglob("*.tfrecord"))
    assert b"secret-5033" not in everywhere
    assert b"secret-5034" in everywhere


def test_a_version_whose_source_changed_cannot_be_made_again(folder: Path) -> None:
    first = run(folder)
    write(folder, 7, count=10)
    with pytest.raises(BuildError, match=f"{first.version} .its source data/07.csv changed.*gc"):
        run(folder, 3007)
    assert 3007 not in ids(folder)
    assert first.version in Layout(str(folder / "out")).published()


def test_a_list_that_no_row_is_on_makes_nothing_again(folder: Path) -> None:
    first = run(folder)
    second = run(folder, 77_000_000)
    assert second.up_to_date
    assert (second.version, second.versions_made_again) == (first.version, ())
    assert any("1 of 1 keys are in no row, for example '77000000'" in warning for warning in second.warnings)


def test_a_stop_between_the_new_version_and_the_removal_of_the_old(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline import purge

    first = run(folder)

    def stop(path: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(purge, "remove_folder", stop)
        with pytest.raises(KeyboardInterrupt):
            run(folder, 3007)
    layout = Layout(str(folder / "out"))
    assert first.version in layout.published() and f"{first.version}-r1" in layout.published()
    result = run(folder, 3007)
    assert layout.published() == sorted([f"{first.version}-r1", result.version])


def test_keys_of_two_columns(folder: Path) -> None:
    result = run(folder, "3007,user 7", "3008,user 7", header="id,user")
    assert result.dropped_rows == 1
    assert 3007 not in ids(folder) and 3008 in ids(folder)


def test_typed_columns_and_fields_of_structs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    table = pa.table(
        {
            "id": [1, 2, None, 4],
            "who": pa.array([{"name": "ann"}, {"name": "bob"}, {"name": "ann"}, None]),
            "x": [0.5, 1.5, 2.5, 3.5],
        }
    )
    pq.write_table(table, tmp_path / "data" / "a.parquet")
    source = {"format": "parquet", "files": "data/*"}
    assert run(tmp_path, "ann", header="who.name", source=source).dropped_rows == 2
    shutil.rmtree(tmp_path / "out")
    assert run(tmp_path, 2, 4, header="id", source=source).dropped_rows == 2
    with pytest.raises(SchemaError, match="drop_rows names the column 'x', which holds double values"):
        run(tmp_path, 0.5, header="x", source=source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as CSV"),
        ("id\n7\n\n", None),
        ("id,user\n7,\n", "row 1: the column 'user' is empty"),
        ("id,id\n7,7\n", "names 'id' twice"),
        ("nothing\n7\n", "names the column 'nothing', which no row of the source has"),
        ("id\n7,8\n", "cannot be read as CSV"),
    ],
)
def test_lists_that_make_no_sense(folder: Path, text: str, message: str | None) -> None:
    run(folder, 1)
    (folder / "drop.csv").write_text(text)
    config = load(str(folder / "config.yaml"))
    if message is None:
        build(config)
        return
    with pytest.raises(ConfigError, match=message):
        build(config)


def test_a_damaged_index_is_made_again(folder: Path) -> None:
    run(folder, 3007)
    for path in (folder / "out" / "cache" / "keys").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    result = run(folder, 3008)
    assert sum("checksum" in warning for warning in result.warnings) == 12
    assert 3008 not in ids(folder) and 3007 in ids(folder)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_and_their_text_have_the_same_hash(values: list[int]) -> None:
    numbers = pa.record_batch([pa.array(values, pa.int64())], names=["k"])
    texts = pa.record_batch([pa.array(list(map(str, values)))], names=["k"])
    assert key_hashes(numbers).tolist() == key_hashes(texts).tolist()


def test_a_folder_that_only_holds_what_it_should(folder: Path) -> None:
    run(folder)
    run(folder, 3007)
    assert not [name for _, d, f in os.walk(folder / "out") for name in [*d, *f] if ".tmp-" in name]


def test_the_proof(folder: Path) -> None:
    first = run(folder)
    (folder / "drop.csv").write_text("id\n3007\n5\n77000000\n")
    command = ["verify", str(folder / "out"), "--absent", str(folder / "drop.csv")]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 1
    assert "3 keys, 1,800 records searched: 2 found" in shown.stdout
    result = run(folder, 3007, 5, 77_000_000)
    shown = CliRunner().invoke(app, [*command, "--json"])
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert (found["searched"], found["found"], found["not_searched"]) == (2 * 1798, [], {})
    names = {record["id"]: i for i, record in enumerate(inspect(str(folder / "out"), rows=10**6).rows["all"])}
    assert len(names) == 1798 and first.version != result.version


def test_a_version_without_the_key_cannot_be_searched(folder: Path) -> None:
    (folder / "schema.pbtxt").write_text('feature { name: "user" type: BYTES shape {} presence { min_fraction: 1 } }')
    run(folder, 3007, schema="schema.pbtxt")
    shown = CliRunner().invoke(app, ["verify", str(folder / "out"), "--absent", str(folder / "drop.csv")])
    assert shown.exit_code == 1
    assert "not searched" in shown.stdout and "'id' is not a feature of it" in shown.stdout
    assert shown.stdout.endswith("1 keys, 0 records searched: none found\n")


def test_a_plan_knows_the_rows(folder: Path) -> None:
    run(folder)
    (folder / "drop.csv").write_text("id\n3007\n")
    content = json.loads((folder / "config.yaml").read_text()) | {"drop_rows": "drop.csv"}
    (folder / "config.yaml").write_text(json.dumps(content))
    config = load(str(folder / "config.yaml"))
    before = sorted(str(path) for path in (folder / "out").rglob("*"))
    told = forecast(config)
    assert sorted(str(path) for path in (folder / "out").rglob("*")) == before
    assert told.up_to_date  # as far as it is known
    assert "keys are not known yet" in told.assumed[0]
    build(config)
    (folder / "drop.csv").write_text("id\n3007\n9001\n")
    told = forecast(config)
    steps = {step.name: (step.todo, step.reused) for step in told.steps}
    assert steps["keys"] == (0, 12)
    assert steps["build"] == (1, 11)
    assert build(config).built_partitions == 1
