"""What init writes fits the data, loads, and builds as it stands."""

from __future__ import annotations

import ast
import bz2
import gzip
import json
from pathlib import Path

import pytest

from pipeline.build import build
from pipeline.config import load
from pipeline.init import write_config
from pipeline.starter import Column, preprocessing_text
from transforms.errors import BadRowsError, ConfigError, SourceError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


def csv_text(rows: int = 60) -> str:
    lines = [
        f"{i},{i % 3},{i / 7 if i % 5 else ''},{'abc'[i % 3]},{'' if i % 4 else 'o'},,{i % 2},user{i * 7919}"
        for i in range(rows)
    ]
    return "\n".join(["id,few,score,kind,maybe,nothing,label,user_id", *lines, ""])


def treatments(path: str) -> dict[str, str]:
    return {column.name: column.treatment for column in write_config([path], "c.yaml", force=True).columns}


def test_csv(folder: Path) -> None:
    (folder / "data" / "a.csv").write_text(csv_text())
    found = write_config(["data/a.csv"], "recordmill.yaml")
    assert {column.name: column.treatment for column in found.columns} == {
        "id": "z-score",
        "few": "as it is",
        "score": "z-score",
        "kind": "vocabulary",
        "maybe": "vocabulary",
        "nothing": "left out",
        "label": "label",
        "user_id": "vocabulary",
    }
    config = load("recordmill.yaml")
    assert config.name == "a"
    assert config.source.format == "csv"
    assert config.split_names == ("train", "eval", "test")
    code = (folder / "preprocessing.py").read_text()
    assert '"score": _fill_missing(tft.scale_to_z_score(inputs["score"]), 0.0)' in code
    assert '"few": inputs["few"]' in code
    ast.parse(code)


def test_many_different_texts_are_hashed(folder: Path) -> None:
    (folder / "data" / "a.csv").write_text(csv_text(1500))
    assert treatments("data/a.csv")["user_id"] == "hashed"


def test_formats_by_content_and_not_by_name(folder: Path) -> None:
    lines = "".join(json.dumps({"a": i, "tags": ["x"] * (i % 3), "s": {"b": i / 2}}) + "\n" for i in range(50))
    (folder / "data" / "packed.log").write_bytes(gzip.compress(lines.encode()))
    assert treatments("data/packed.log") == {"a": "z-score", "tags": "vocabulary", "s.b": "z-score"}
    assert load("c.yaml").source.format == "jsonl"
    (folder / "data" / "b.txt").write_bytes(bz2.compress(b"a;b\n1,5;x\n2,5;y\n"))
    treatments("data/b.txt")
    assert load("c.yaml").source.options == {"delimiter": ";"}
    (folder / "data" / "tabs").write_text("a\tb\n1\t2\n")
    assert treatments("data/tabs") == {"a": "as it is", "b": "as it is"}


def test_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1.5, None], "words": [["a"], []]}), folder / "data" / "a.dat")
    assert treatments("data/a.dat") == {"x": "z-score", "words": "vocabulary"}
    code = (folder / "preprocessing.py").read_text()
    assert '"words": tft.compute_and_apply_vocabulary(inputs["words"], num_oov_buckets=1)' in code


@pytest.mark.parametrize(
    ("config", "patterns", "written"),
    [
        ("c.yaml", ["data/*.csv"], ["data/*.csv"]),
        ("c.yaml", ["data/f-01.csv", "data/f-02.csv", "data/f-10.csv"], ["data/f-*.csv"]),
        ("c.yaml", ["data/f-01.csv", "data/f-02.csv"], ["data/f-01.csv", "data/f-02.csv"]),
        ("conf/c.yaml", ["data/*.csv"], ["../data/*.csv"]),
    ],
)
def test_how_files_are_named(folder: Path, config: str, patterns: list[str], written: list[str]) -> None:
    for name in ("f-01", "f-02", "f-10"):
        (folder / "data" / f"{name}.csv").write_text("a,b\n1,2\n")
    write_config(patterns, config)
    loaded = load(config)
    assert [pattern.text for pattern in loaded.source.files] == written
    assert loaded.name == "f"
    assert (Path(config).parent / "preprocessing.py").exists()


def test_nothing_is_written_over(folder: Path) -> None:
    (folder / "data" / "a.csv").write_text("a\n1\n")
    (folder / "preprocessing.py").write_text("mine")
    with pytest.raises(ConfigError, match="preprocessing.py: already there.*--force"):
        write_config(["data/a.csv"], "c.yaml")
    assert not (folder / "c.yaml").exists()
    write_config(["data/a.csv"], "c.yaml", force=True)
    assert (folder / "preprocessing.py").read_text() != "mine"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"[1, 2]", ConfigError, "JSON array"),
        (b"\x7fELF\0\0", ConfigError, "is of no format that can be read"),
        (b"", SourceError, "no columns"),
        (gzip.compress(b"a\n" * 9999, mtime=0)[:-20], SourceError, "x"),
        (b"a,b\n1,2\n3\n", BadRowsError, "row 2"),
    ],
)
def test_data_that_make_no_sense(folder: Path, content: bytes, error: type[Exception], message: str) -> None:
    (folder / "data" / "x").write_bytes(content)
    with pytest.raises(error, match=message):
        write_config(["data/x"], "c.yaml")
    assert not (folder / "c.yaml").exists()


def test_files_of_two_kinds(folder: Path) -> None:
    (folder / "data" / "a").write_text("a,b\n1,2\n")
    (folder / "data" / "b").write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match="data/a looks like csv, .*data/b like jsonl"):
        write_config(["data/*"], "c.yaml")


def test_odd_names_of_columns() -> None:
    columns = [Column(name, "float", False, False, False, 99) for name in ('a "b"', "c\\d", "größe", "e\nf", "{x}")]
    tree = ast.parse(preprocessing_text("t", columns))
    keys = next(node for node in ast.walk(tree) if isinstance(node, ast.Dict)).keys
    assert [ast.literal_eval(key) for key in keys if key] == [column.name for column in columns]


@pytest.mark.slow
def test_it_builds_as_it_stands(folder: Path) -> None:
    (folder / "data" / "a.csv").write_text(csv_text(1500))
    write_config(["data/a.csv"], "recordmill.yaml")
    result = build(load("recordmill.yaml", ["runner.workers=1"]))
    assert sum(split.rows for split in result.splits.values()) == 1500


def test_it_builds_without_preprocessing(folder: Path) -> None:
    (folder / "data" / "a.csv").write_text(csv_text())
    write_config(["data/a.csv"], "recordmill.yaml")
    result = build(load("recordmill.yaml", ["preprocess=", "runner.workers=1"]))
    assert result.rows_read == 60
