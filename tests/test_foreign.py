"""TFRecord files of any writer: counted, shown, given an index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.foreign import count, decoded, reindex
from transforms.errors import ConfigError, CorruptError

ROWS = 5000


def example(i: int) -> bytes:
    features = {
        "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
        "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"text %d" % i * 20, b"\xff"])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


@pytest.fixture(params=["", "GZIP", "ZLIB"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "data.tfrecord"
    with tf.io.TFRecordWriter(str(path), request.param) as writer:
        for i in range(ROWS):
            writer.write(example(i))
    return path


def test_files_of_others_get_an_index_and_keep_their_records(written: Path) -> None:
    (before,) = count([str(written)])
    assert (before.num_records, before.indexed) == (ROWS, False)
    found = reindex(str(written), level=6)
    assert found.num_records == ROWS and found.bytes_now == written.stat().st_size
    (after,) = count([str(written)])
    assert (after.num_records, after.indexed) == (ROWS, True)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(written), "GZIP")]
    assert records == [example(i) for i in range(ROWS)]


@pytest.mark.parametrize("number", [0, 1, 2345, ROWS - 1])
def test_a_record_by_its_number(written: Path, number: int) -> None:
    for _ in range(2):
        (row,) = decoded(str(written), first=number, limit=1)
        assert row["id"] == [number]
        reindex(str(written))
    with pytest.raises(ConfigError, match=f"has {ROWS} records, counted from 0, and no record {ROWS}"):
        list(decoded(str(written), first=ROWS, limit=1))


def test_all_records(written: Path) -> None:
    assert [row["id"] for row in decoded(str(written))] == [[i] for i in range(ROWS)]
    assert len(list(decoded(str(written), first=10, limit=2000))) == 2000


def test_what_is_damaged_stays_as_it_is(written: Path) -> None:
    content = written.read_bytes()[:-30]
    written.write_bytes(content)
    with pytest.raises(CorruptError, match="data.tfrecord"):
        reindex(str(written))
    with pytest.raises(CorruptError, match="data.tfrecord"):
        count([str(written)])
    assert written.read_bytes() == content and [p.name for p in written.parent.iterdir()] == ["data.tfrecord"]


def test_the_commands(written: Path) -> None:
    path = str(written)
    assert f"{ROWS:,} records" in CliRunner().invoke(app, ["count", path]).output
    assert json.loads(CliRunner().invoke(app, ["count", path, "--json"]).output)[0]["num_records"] == ROWS
    assert f"{ROWS:,} records" in CliRunner().invoke(app, ["reindex", path]).output
    shown = CliRunner().invoke(app, ["cat", path, "--record", "7"]).output
    assert "record 7" in shown and "id: [7]" in shown
    lines = CliRunner().invoke(app, ["cat", path, "--json"]).output.splitlines()
    assert len(lines) == ROWS and json.loads(lines[3])["text"] == ["text 3" * 20, "\\xff"]
    missing = CliRunner().invoke(app, ["cat", path + "x"])
    assert missing.exit_code == 2 and "cannot be read: No such file" in missing.output


def test_sequence_examples(tmp_path: Path) -> None:
    steps = tf.train.FeatureList(feature=[tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a", b"b"]))])
    record = tf.train.SequenceExample(feature_lists=tf.train.FeatureLists(feature_list={"clicks": steps}))
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(record.SerializeToString())
    output = CliRunner().invoke(app, ["cat", path, "--sequence", "--json"]).output
    assert json.loads(output) == {"clicks": [["a", "b"]]}
