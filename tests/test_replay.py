"""Bad rows that people put right, and that a build takes in."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from PIL import Image
from typer.testing import CliRunner

from pipeline.build import BuildResult, build
from pipeline.cli import app
from pipeline.config import load
from pipeline.replay import Replayed, write_corrections
from transforms.errors import BadRowsError, ConfigError, SourceError

SCHEMA = """
feature { name: "id" type: INT presence { min_fraction: 1 min_count: 1 } shape {} }
feature { name: "price" type: FLOAT value_count { min: 0 max: 1 } }
feature { name: "name" type: BYTES presence { min_fraction: 1 } shape {} }
"""
LINES = ["id,price,name", "0,0.5,a", "1,abc,b", "2,2.5", "3,3.5,d", "4,4.5,e,f", "5,,g"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.csv").write_text("\n".join(LINES) + "\n")
    (tmp_path / "other.csv").write_text("id,price,name\n10,10,k\n")
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    write_config(tmp_path)
    return tmp_path


def write_config(folder: Path, **config: Any) -> None:
    content = {
        "name": "d",
        "source": {"format": "csv", "files": ["data.csv", "other.csv"]},
        "schema": "schema.pbtxt",
        "max_bad_rows": 3,
        "output": {"dir": "out", "shuffle": "none"},
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(content | config))


def run(folder: Path, *overrides: str) -> BuildResult:
    return build(load(str(folder / "c.yaml"), list(overrides)))


def replay(folder: Path, *overrides: str) -> tuple[Replayed, list[dict[str, Any]]]:
    found = write_corrections(load(str(folder / "c.yaml"), list(overrides)))
    return found, [json.loads(line) for line in Path(found.path).read_text().splitlines()]


def correct(folder: Path, lines: list[dict[str, Any]], **values: Any) -> None:
    """Puts the values into the lines of these rows."""
    for line in lines:
        line["values"] = values.get(f"row{line['row']}", line["values"])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "corrections.jsonl").write_text(text)


def examples(result: BuildResult) -> list[dict[str, Any]]:
    paths = [str(path) for path in sorted(Path(result.path).glob("*/*.tfrecord.gz"))]
    found = []
    for record in tf.data.TFRecordDataset(paths, "GZIP"):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        values = {name: f.bytes_list.value or f.int64_list.value or f.float_list.value for name, f in features.items()}
        found.append({name: value[0] if value else None for name, value in values.items()})
    return sorted(found, key=lambda row: row["id"])


def test_rows_that_are_put_right_are_written_in_their_place(folder: Path) -> None:
    before = run(folder)
    assert (before.bad_rows, before.rows_read) == (3, 7)
    found, lines = replay(folder)
    assert (found.added, found.kept, found.gone) == (3, 0, 0)
    assert [(line["file"], line["row"], line["line"], line["values"]) for line in lines] == [
        ("data.csv", 2, 3, {"price": "abc"}),
        ("data.csv", 3, 4, None),
        ("data.csv", 5, 6, None),
    ]
    correct(folder, lines, row2={"price": 1.5}, row3={"id": 2, "price": "2.5", "name": "c"})
    write_config(folder, corrections="corrections.jsonl", max_bad_rows=1)
    after = run(folder)
    assert (after.bad_rows, after.rows_read) == (1, 7)
    assert examples(after) == [
        {"id": 0, "price": 0.5, "name": b"a"},
        {"id": 1, "price": 1.5, "name": b"b"},
        {"id": 2, "price": 2.5, "name": b"c"},
        {"id": 3, "price": 3.5, "name": b"d"},
        {"id": 5, "name": b"g"},
        {"id": 10, "price": 10.0, "name": b"k"},
    ]
    assert run(folder).up_to_date


def test_what_was_put_right_stays_when_bad_rows_are_added(folder: Path) -> None:
    run(folder)
    _, lines = replay(folder)
    correct(folder, lines, row2={"price": 1.5})
    write_config(folder, corrections="corrections.jsonl")
    (folder / "other.csv").write_text("id,price,name\nx,10,k\n")
    assert run(folder).bad_rows == 3
    found, lines = replay(folder)
    assert (found.added, found.kept) == (1, 3)
    assert [line["values"] for line in lines] == [{"price": 1.5}, None, None, {"id": "x"}]


def test_a_row_that_is_still_wrong_is_still_bad(folder: Path) -> None:
    run(folder)
    _, lines = replay(folder)
    correct(folder, lines, row2={"price": "cheap"})
    write_config(folder, corrections="corrections.jsonl", max_bad_rows=0)
    with pytest.raises(BadRowsError, match=r"data.csv, row 2, column 'price': .*'cheap'"):
        run(folder)


def test_a_correction_of_another_content_is_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(folder)
    _, lines = replay(folder)
    correct(folder, lines, row2={"price": 1.5})
    write_config(folder, corrections="corrections.jsonl")
    (folder / "data.csv").write_text("\n".join([LINES[0], "9,9.5,i", *LINES[1:]]) + "\n")
    assert run(folder).bad_rows == 3
    assert "corrections.jsonl, line 1: corrects row 2 of" in caplog.text and "content is another now" in caplog.text


def test_nested_rows_and_lines_that_are_no_json(tmp_path: Path) -> None:
    rows = [{"id": 0, "at": {"x": 1}}, {"id": 1, "at": {"x": "two"}}, {"id": 2, "at": {"x": 3}}]
    text = "".join(json.dumps(row) + "\n" for row in rows) + "{broken\n"
    (tmp_path / "data.jsonl").write_text(text)
    (tmp_path / "schema.pbtxt").write_text(
        'feature { name: "id" type: INT presence { min_fraction: 1 } shape {} }'
        'feature { name: "at.x" type: INT presence { min_fraction: 1 } shape {} annotation { TAG } }'.replace(
            "TAG", 'tag: "source: [\\"at\\", \\"x\\"]"'
        )
    )
    source = {"format": "jsonl", "files": "data.jsonl"}
    write_config(tmp_path, source=source)
    run(tmp_path)
    _, lines = replay(tmp_path)
    correct(tmp_path, lines, row2={"at": {"x": 2}}, row4={"id": 3, "at": {"x": 4}})
    write_config(tmp_path, source=source, corrections="corrections.jsonl", max_bad_rows=0)
    assert examples(run(tmp_path)) == [{"id": i, "at.x": i + 1} for i in range(4)]


def test_an_image_that_is_named_wrongly(tmp_path: Path) -> None:
    sink = io.BytesIO()
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(sink, format="png")
    (tmp_path / "a.png").write_bytes(sink.getvalue())
    (tmp_path / "data.csv").write_text("id,uri\n1,a.png\n2,b.png\n")
    source = {"format": "csv", "files": "data.csv", "load": {"uri": "image"}}
    write_config(tmp_path, source=source, schema=None)
    assert run(tmp_path).bad_rows == 1
    _, lines = replay(tmp_path)
    assert lines[0]["values"] == {"uri": "b.png"}
    correct(tmp_path, lines, row2={"uri": "a.png"})
    write_config(tmp_path, source=source, schema=None, corrections="corrections.jsonl", max_bad_rows=0)
    assert [row["image"] for row in examples(run(tmp_path))] == [sink.getvalue()] * 2


def test_typed_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"id": pa.array([1, 2], pa.int32()), "name": pa.array(["a", "b"])})
    parquet.write_table(table, tmp_path / "data.parquet")
    (tmp_path / "schema.pbtxt").write_text(
        'feature { name: "id" type: INT presence { min_fraction: 1 } shape {} int_domain { max: 1 } }'
        'feature { name: "name" type: BYTES presence { min_fraction: 1 } shape {} }'
    )
    source = {"format": "parquet", "files": "data.parquet"}
    write_config(tmp_path, source=source, on_schema_drift="warn")
    run(tmp_path)
    content = load(str(tmp_path / "c.yaml")).source_spec.open().partitions(
        [str(tmp_path / "data.parquet")], target_bytes=1 << 26
    )[0].slices[0].fingerprint  # fmt: skip
    line = {"file": "data.parquet", "row": 2, "content": content, "values": {"id": "1", "name": "c"}}
    (tmp_path / "corrections.jsonl").write_text(json.dumps(line) + "\n")
    write_config(tmp_path, source=source, on_schema_drift="warn", corrections="corrections.jsonl")
    assert examples(run(tmp_path)) == [{"id": 1, "name": b"a"}, {"id": 1, "name": b"c"}]
    (tmp_path / "corrections.jsonl").write_text(json.dumps(line | {"values": {"id": [1]}}) + "\n")
    with pytest.raises(SourceError, match=r"corrections.jsonl, line 1, column 'id': \[1\] is no int32"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: is not JSON"),
        ("[]", "line 1: has no 'file'; a correction has file, row, content, values"),
        ('{"file": "a", "row": "1", "content": "", "values": {}}', "line 1: row is '1'; it must be of type int"),
        ('{"file": "a", "row": 1, "content": "", "values": []}', r"line 1: values is \[\]; it must be of type dict"),
        ('{"file": "a", "row": 1, "content": "", "values": {}}\n' * 2, "line 2: corrects the row of .*, line 1 again"),
    ],
)
def test_what_is_refused(folder: Path, line: str, message: str) -> None:
    (folder / "corrections.jsonl").write_text(line)
    write_config(folder, corrections="corrections.jsonl")
    with pytest.raises(ConfigError, match=message):
        run(folder)


def test_the_command(folder: Path) -> None:
    command = ["replay", str(folder / "c.yaml")]
    failed = CliRunner().invoke(app, command)
    assert failed.exit_code == 2 and "has no version yet" in failed.output
    run(folder)
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and "3 bad rows added to" in done.output and "corrections: " in done.output
    assert "0 bad rows added to" in CliRunner().invoke(app, command).output
