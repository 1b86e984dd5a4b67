"""Rows that cannot become Examples: allowed or not, counted, written down, and hidden where they must be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.inspect import inspect
from pipeline.verify import verify
from transforms.errors import BadRowsError, ConfigError

SCHEMA = """
feature { name: "id" type: INT shape {} presence { min_fraction: 1 } }
feature { name: "name" type: BYTES }
"""
SPOILED = 'id,name\n1,ann\n\ntwo,"b\no\nb"\n3,"x\ny"\n,zoe\n5,eve,extra\n6,f\n'


def run(folder: Path, source_format: str = "csv", **options: Any) -> BuildResult:
    (folder / "schema.pbtxt").write_text(SCHEMA)
    source = {"format": source_format, "files": "data/*"}
    content = {"name": "d", "source": source, "output": {"dir": "out"}, "schema": "schema.pbtxt"} | options
    (folder / "config.yaml").write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return build(load(str(folder / "config.yaml"), ["runner.workers=1"]))


def write(folder: Path, name: str, content: str | bytes) -> None:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def written(result: BuildResult) -> list[dict[str, Any]]:
    assert result.bad_rows_file is not None
    return [json.loads(line) for line in Path(result.bad_rows_file).read_text().splitlines()]


@pytest.mark.parametrize("packed", [False, True])
def test_bad_rows_are_counted_and_written_down(tmp_path: Path, packed: bool) -> None:
    text = SPOILED.encode()
    write(tmp_path, "a.csv.gz" if packed else "a.csv", gzip.compress(text) if packed else text)
    result = run(tmp_path, max_bad_rows=3)
    assert (result.rows_read, result.bad_rows, result.splits["all"].rows) == (6, 3, 3)
    assert sorted(row["id"] for row in inspect(str(tmp_path / "out"), rows=10).rows["all"]) == [1, 3, 6]
    found = written(result)
    assert [(row["row"], row["line"], row["column"]) for row in found] == [(2, 4, "id"), (4, 9, "id"), (5, 10, None)]
    for row, start in zip(found, (b"two", b",zoe", b"5,eve"), strict=True):
        assert text[row["offset"] :].startswith(start)
    assert "'two'" in found[0]["value"]
    assert found[2]["reason"].startswith("has 3 cells")
    assert {row["file"] for row in found} == {"data/a.csv.gz" if packed else "data/a.csv"}
    assert not verify(str(tmp_path / "out")).faults


def test_one_more_than_allowed_fails_and_publishes_nothing(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", SPOILED)
    with pytest.raises(BadRowsError, match=r"3 bad rows, and max_bad_rows allows 2:\n.*a.csv, row 2, column 'id'"):
        run(tmp_path, max_bad_rows=2)
    with pytest.raises(BadRowsError, match="3 bad rows, and none is allowed"):
        run(tmp_path)
    assert not list((tmp_path / "out" / "versions").iterdir())


def test_a_fraction_is_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 50)
    write(tmp_path, "a.csv", SPOILED)
    write(tmp_path, "b.csv", "id,name\n" + "".join(f"{i},x\n" for i in range(294)))
    with pytest.raises(BadRowsError, match="3 bad rows, and max_bad_rows allows 0.9% of the rows"):
        run(tmp_path, max_bad_rows="0.9%")
    result = run(tmp_path, max_bad_rows=0.01)
    assert (result.bad_rows, result.rows_read) == (3, 300)
    assert result.reused_partitions == result.reused_partitions > 0


def test_rows_keep_their_names_when_the_file_is_cut_or_grows_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 60)
    lines = [f"{i},x" for i in range(60)]
    lines[33] = "bad,x"
    write(tmp_path, "b.csv", "id,name\n" + "\n".join(lines))
    result = run(tmp_path, max_bad_rows=1)
    assert [(row["row"], row["line"]) for row in written(result)] == [(34, 35)]
    write(tmp_path, "b.csv", "id,name\n" + "\n".join([f"{i + 100},y" for i in range(30)] + lines))
    assert [(row["row"], row["line"]) for row in written(run(tmp_path, max_bad_rows=1))] == [(64, 65)]


def test_jsonl(tmp_path: Path) -> None:
    lines = ['{"id": 1}', "", '{"id": "x", "name": "é"}', "not json", '{"id": 4}', '{"id": null}']
    text = "\n".join(lines).encode()
    write(tmp_path, "a.jsonl", text)
    result = run(tmp_path, "jsonl", max_bad_rows=10)
    found = written(result)
    assert [row["line"] for row in found] == [3, 4, 6]
    assert [text[row["offset"] :].decode().split("\n")[0] for row in found] == [lines[2], lines[3], lines[5]]
    assert result.rows_read == result.bad_rows + result.splits["all"].rows


def test_parquet_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": [1, None, 3]}), tmp_path / "data" / "a.parquet")
    found = written(run(tmp_path, "parquet", max_bad_rows=1))
    assert [(row["row"], row["line"], row["offset"]) for row in found] == [(2, None, None)]


def test_redacted_columns_are_shown_nowhere(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", SPOILED)
    with pytest.raises(BadRowsError) as raised:
        run(tmp_path, redact="id")
    assert "two" not in str(raised.value) and "eve" not in str(raised.value)
    text = json.dumps(written(run(tmp_path, redact="id", max_bad_rows=9)))
    assert "two" not in text and "eve" not in text


def test_without_a_schema_bad_rows_have_no_say_in_it(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "id,name\n1,x\n2,y,z\n3,w\n")
    result = run(tmp_path, schema=None, max_bad_rows=1)
    assert (result.bad_rows, result.splits["all"].rows) == (1, 2)


def test_rows_on_which_preprocessing_fails(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "id,name\n" + "".join(f"{i},{'x' if i % 40 else 'bad'}\n" for i in range(100)))
    (tmp_path / "preprocessing.py").write_text(
        "import tensorflow as tf\n"
        "def preprocessing_fn(inputs):\n"
        "    text = inputs['name'].values\n"
        "    with tf.control_dependencies([tf.debugging.assert_none_equal(text, 'bad', message='no good')]):\n"
        "        return {'id': tf.identity(inputs['id'])}\n"
    )
    with pytest.raises(BadRowsError, match=r"3 bad rows, and none is allowed:\n.*row 1: preprocessing_fn fails on it"):
        run(tmp_path, preprocess="preprocessing.py")
    result = run(tmp_path, preprocess="preprocessing.py", max_bad_rows=3)
    assert (result.bad_rows, result.splits["all"].rows) == (3, 97)
    found = written(result)
    assert [row["row"] for row in found] == [1, 41, 81]
    assert "no good" in found[0]["reason"] and "bad" in found[0]["value"]


@pytest.mark.parametrize("value", [-1, 1.5, "many", True, "200 rows"])
def test_limits_that_make_no_sense(tmp_path: Path, value: Any) -> None:
    write(tmp_path, "a.csv", SPOILED)
    with pytest.raises(ConfigError, match="max_bad_rows.*must be a number of rows"):
        run(tmp_path, max_bad_rows=value)
