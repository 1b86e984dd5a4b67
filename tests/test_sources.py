"""What all sources do: the same rows however files are cut, and one clear error for a file that is damaged."""

from __future__ import annotations

import datetime
import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, orc, parquet

from pipeline.build import build
from pipeline.config import load
from pipeline.init import write_config
from pipeline.inspect import inspect
from transforms.compression import Compression
from transforms.errors import ConfigError, RecordmillError, SourceError
from transforms.example import Encoder
from transforms.partition import BadRow, Partition, Place
from transforms.schema import Schema
from transforms.sources import FORMATS, Source, open_source
from transforms.tfrecord import frame

Found = tuple[list[dict[str, Any]], list[int], list[BadRow]]  # rows, their ordinals, bad rows
ROWS = 3000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "text": pa.array([f"text {i}" if i % 7 else None for i in range(ROWS)]),
        "size": pa.array([i / 4 for i in range(ROWS)], pa.float64()),
    }
)
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "size", "type": "double"},
    ],
}


def csv_bytes() -> bytes:
    sink = io.BytesIO()
    csv.write_csv(TABLE, sink)
    return sink.getvalue()


def avro_bytes(codec: str = "deflate") -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, AVRO, TABLE.to_pylist(), codec=codec, sync_interval=2000)
    return sink.getvalue()


def written(write: Callable[[str], object], folder: Path) -> bytes:
    path = folder / "written"
    write(str(path))
    content = path.read_bytes()
    path.unlink()
    return content


def arrow_file(path: str) -> None:
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=100)


def arrow_stream(path: str) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=100)


def tfrecord_bytes(kind: str) -> bytes:
    """As TensorFlow (one stream) or as we write it (blocks)."""
    columns = {name: TABLE[name].combine_chunks() for name in TABLE.column_names}
    columns |= {"text": columns["text"].cast(pa.binary()), "size": columns["size"].cast(pa.float32())}
    batch = pa.RecordBatch.from_pydict(columns)
    blocks = []
    for at in range(0, ROWS, 100):
        records = Encoder(batch.schema).encode(batch.slice(at, 100))
        blocks.append((bytes(records.data), 100))
    if kind == "ours":
        return b"".join(Compression("gzip").pack(raw, num_records=n).data for raw, n in blocks)
    raw = b"".join(raw for raw, _ in blocks)
    return gzip.compress(raw) if kind == "gzip" else raw


def libsvm_bytes() -> bytes:
    return "".join(f"{i % 2} qid:{i // 10} 1:{i / 4} {i % 5 + 2}:1\n" for i in range(ROWS)).encode()


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return make_contents(tmp_path_factory.mktemp("contents"))


def make_contents(folder: Path) -> dict[str, bytes]:
    """A valid file of each kind."""
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in TABLE.to_pylist())
    return {
        "csv": csv_bytes(),
        "jsonl": lines,
        "parquet": written(lambda path: parquet.write_table(TABLE, path, row_group_size=100), folder),
        "arrow": written(arrow_file, folder),
        "arrow stream": written(arrow_stream, folder),
        "arrow feather": written(lambda path: feather.write_feather(TABLE, path, chunksize=100), folder),
        "orc": written(lambda path: orc.write_table(TABLE, path, stripe_size=1 << 12, batch_size=100), folder),
        "avro": avro_bytes(),
        "avro null": avro_bytes("null"),
        "tfrecord": tfrecord_bytes("none"),
        "tfrecord gzip": tfrecord_bytes("gzip"),
        "tfrecord ours": tfrecord_bytes("ours"),
        "text": b"".join(b"text %d\n" % i for i in range(ROWS)),
        "libsvm": libsvm_bytes(),
    }


KINDS = ["csv", "jsonl", "parquet", "arrow", "arrow stream", "arrow feather", "orc", "avro", "avro null", "tfrecord"]
KINDS += ["tfrecord gzip", "tfrecord ours", "text", "libsvm"]
every_kind = pytest.mark.parametrize("kind", KINDS)
CHECKED = {"arrow", "arrow stream", "arrow feather", "csv", "jsonl", "text", "libsvm"}  # no checksum of their own


def source_of(kind: str) -> Source:
    return open_source(kind.split()[0], {})


def read(
    source: Source, partitions: list[Partition], **options: Any
) -> tuple[list[dict[str, Any]], list[int], list[BadRow]]:
    rows: list[dict[str, Any]] = []
    ordinals: list[int] = []
    bad: list[BadRow] = []
    for partition in partitions:
        for batch in source.read(partition, on_bad_row=bad.append, **options):
            assert len(batch.rows) == batch.data.num_rows
            rows += batch.data.to_pylist()
            ordinals += batch.rows.tolist()
    return rows, ordinals, bad


def test_all_formats_are_here() -> None:
    assert {kind.split()[0] for kind in KINDS} == set(FORMATS) - {
        "images",
        "webdataset",
        "sql",
        "bigquery",
    }  # tests of their own


@every_kind
@pytest.mark.parametrize("target", [1, 5000, 1 << 30])
def test_the_same_rows_however_files_are_cut(
    contents: dict[str, bytes], tmp_path: Path, kind: str, target: int
) -> None:
    path = tmp_path / "data"
    path.write_bytes(contents[kind])
    source = source_of(kind)
    partitions = source.partitions([str(path)], target_bytes=target)
    rows, ordinals, bad = read(source, partitions)
    whole, *_ = read(source, source.partitions([str(path)], target_bytes=1 << 40))
    assert (len(rows), ordinals, bad) == (ROWS, list(range(ROWS)), [])
    assert rows == whole
    splits = kind not in ("arrow stream", "tfrecord gzip", "tfrecord")  # the last: one read is one part
    assert len(partitions) == 1 if target == 1 << 30 or not splits else len(partitions) > (10 if target == 1 else 0)
    assert len({partition.fingerprint for partition in partitions}) == len(partitions)
    assert source.partitions([str(path)], target_bytes=target) == partitions


@every_kind
def test_values(contents: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(contents[kind])
    source = source_of(kind)
    rows, *_ = read(source, source.partitions([str(path)], target_bytes=1 << 30))
    expected: dict[str, Any] = {"id": 5, "text": "text 5", "size": 1.25}
    if kind == "text":
        expected = {"text": "text 5"}
    elif kind == "libsvm":
        expected = {"label": 1.0, "qid": 0, "index": [1, 2], "value": [1.25, 1.0]}
    elif kind.startswith("tfrecord"):
        expected = {"id": [5], "text": [b"text 5"], "size": [1.25]}
    elif kind == "csv":
        expected = {name: str(value) for name, value in expected.items()}
    assert rows[5] == expected
    if "text" in rows[7] and kind != "text":
        assert rows[7]["text"] is None


@every_kind
def test_some_columns(contents: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(contents[kind])
    source = source_of(kind)
    partitions = source.partitions([str(path)], target_bytes=1 << 30)
    name = {"text": "text", "libsvm": "qid"}.get(kind, "size")
    rows, *_ = read(source, partitions, columns=frozenset({name, "gone"}))
    assert len(rows) == ROWS and {name} <= set(rows[0]) <= {name, "gone"}
    rows, *_ = read(source, partitions, columns=frozenset())
    assert len(rows) == ROWS


@every_kind
def test_an_empty_file_has_no_rows(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "data"
    path.touch()
    source = source_of(kind)
    rows, _, bad = read(source, source.partitions([str(path)], target_bytes=1000))
    assert not rows and not bad
    assert "data: the file is empty; it gives no rows" in caplog.text


@every_kind
def test_a_file_that_changes_is_noticed(contents: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(contents[kind])
    source = source_of(kind)
    partitions = source.partitions([str(path)], target_bytes=1 << 30)
    changed = bytearray(contents[kind])
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)
    with pytest.raises(RecordmillError):
        read(source, partitions)


@every_kind
def test_a_cut_file_never_loses_rows_in_silence(contents: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    """Text that is cut between lines is whole text; all else says so, and names the file."""
    path = tmp_path / "data"
    source = source_of(kind)
    content = contents[kind]
    for size in (len(content) - 1, len(content) // 2, 20, 5):
        path.write_bytes(content[:size])
        try:
            rows, _, bad = read(source, source.partitions([str(path)], target_bytes=3000))
        except RecordmillError as error:
            assert str(path) in str(error)
        else:
            assert kind in ("csv", "jsonl", "text", "libsvm", "tfrecord ours", "avro", "avro null") or len(rows) == ROWS
            assert len(rows) + len(bad) >= content[:size].count(b"\n") - 1 or kind.startswith(("avro", "tfrecord"))


@every_kind
def test_something_else_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"<!DOCTYPE html>\n<html>\n" + bytes(range(256)))
    source = source_of(kind)
    try:
        _, _, bad = read(source, source.partitions([str(path)], target_bytes=3000))
    except RecordmillError as error:
        assert str(path) in str(error)
    else:
        assert bad


@every_kind
def test_a_build_and_its_rows(contents: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    (tmp_path / "data").write_bytes(contents[kind])
    config = {"name": "t", "source": {"format": kind.split()[0], "files": "data"}, "output": {"dir": "out"}}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    result = build(load(str(tmp_path / "c.yaml")))
    assert (result.rows_read, result.bad_rows, result.splits["all"].rows) == (ROWS, 0, ROWS)
    (rows,) = inspect(str(tmp_path / "out"), rows=6).rows.values()
    assert len(rows) == 6
    if kind not in ("text", "libsvm"):
        ids = {row["id"] for row in rows}
        assert all(
            row["size"] == row["id"] / 4 and row.get("text", b"") in (b"", b"text %d" % row["id"]) for row in rows
        )
        assert len(ids) == 6


def test_our_own_shards_are_sharded_anew(tmp_path: Path) -> None:
    """The same Examples come out, whatever they are compressed with."""
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    config: dict[str, Any] = {"name": "t", "source": {"format": "parquet", "files": "t.parquet"}}
    (tmp_path / "a.yaml").write_text(json.dumps(config | {"output": {"dir": "a", "shards": 3, "shuffle": "none"}}))
    first = build(load(str(tmp_path / "a.yaml")))
    config["source"] = {"format": "tfrecord", "files": f"{os.path.relpath(first.path, tmp_path)}/all/*"}
    output = {"dir": "b", "compression": "none", "shards": 1, "shuffle": "none"}
    (tmp_path / "b.yaml").write_text(json.dumps(config | {"output": output}))
    second = build(load(str(tmp_path / "b.yaml")))
    examples = [inspect(str(tmp_path / name), rows=ROWS).rows["all"] for name in ("a", "b")]
    assert sorted(examples[0], key=lambda row: row["id"]) == sorted(examples[1], key=lambda row: row["id"])
    paths = [Path(result.path) / "schema.pbtxt" for result in (first, second)]
    schemas = [Schema.from_text(path.read_text(), path=str(path)) for path in paths]
    assert set(schemas[0].features) == set(schemas[1].features)


@every_kind
def test_init_knows_the_format_by_the_content(contents: dict[str, bytes], tmp_path: Path, kind: str) -> None:
    if kind == "text":
        return  # is CSV with one column to anyone who does not know
    (tmp_path / "data").write_bytes(contents[kind])
    write_config([str(tmp_path / "data")], str(tmp_path / "c.yaml"))
    assert load(str(tmp_path / "c.yaml")).source.format == kind.split()[0]


# ---- Avro ------------------------------------------------------------------------------------------------------------


def avro(path: Path, fields: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    with path.open("wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "r", "fields": fields}, rows)


def test_avro_types_are_exact(tmp_path: Path) -> None:
    utc = datetime.timezone.utc
    when = datetime.datetime(2024, 10, 27, 1, 30, 0, 123000, tzinfo=utc)
    fields = [
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "big", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "user", "type": {"type": "record", "name": "u", "fields": [{"name": "k2", "type": ["k", "null"]}]}},
        {"name": "number", "type": ["int", "double", "null"]},
    ]
    row = {
        "at": when, "day": datetime.date(1969, 12, 31), "price": Decimal("123456789012345678.90"), "big": 2**53 + 1,
        "kind": "B", "tags": ["x", "é"], "user": {"k2": "A"}, "number": 7,
    }  # fmt: skip
    other = row | {"at": None, "tags": [], "user": {"k2": None}, "number": 0.5}
    avro(tmp_path / "a.avro", fields, [row, other])
    source = open_source("avro", {})
    rows, *_ = read(source, source.partitions([str(tmp_path / "a.avro")], target_bytes=1))
    assert rows == [row, other]
    (tmp_path / "c.yaml").write_text(
        json.dumps({"name": "t", "source": {"format": "avro", "files": "a.avro"}, "output": {"dir": "out"}})
    )
    result = build(load(str(tmp_path / "c.yaml")))
    schema = (Path(result.path) / "schema.pbtxt").read_text()
    assert "UNIX_MILLISECONDS" in schema and "UNIX_DAYS" in schema
    found = inspect(str(tmp_path / "out"), rows=2).rows["all"]
    assert {row["at"] for row in found if "at" in row} == {int(when.timestamp() * 1000)}
    assert {row["price"] for row in found} == {b"123456789012345678.90"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (["int", "string"], "field 'a' is a union of \\['int', 'string'\\]; a column has values of one kind"),
        (["null", "r"], "field 'a' is of the recursive type 'r'"),
    ],
)
def test_avro_types_without_a_form_are_refused(tmp_path: Path, kind: Any, message: str) -> None:
    avro(tmp_path / "a.avro", [{"name": "a", "type": kind}], [])
    source = open_source("avro", {})
    with pytest.raises(SourceError, match=message):
        read(source, source.partitions([str(tmp_path / "a.avro")], target_bytes=1))


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.avro").write_bytes(avro_bytes())
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"need the package fastavro.*pip install 'recordmill\[avro\]'"):
        open_source("avro", {}).partitions([str(tmp_path / "a.avro")], target_bytes=1)


# ---- text, LIBSVM, TFRecord ------------------------------------------------------------------------------------------


def read_file(format: str, path: Path, **options: Any) -> Found:
    source = open_source(format, options)
    return read(source, source.partitions([str(path)], target_bytes=1 << 20))


def test_lines_and_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\ntwo\rhalf\nbad \xff\n  last")
    rows, ordinals, bad = read_file("text", path)
    assert [row["text"] for row in rows] == ["one", "", "two\rhalf", "  last"]
    assert ordinals == [0, 1, 2, 4] and [(b.row, b.column, b.value) for b in bad] == [(3, "text", "b'bad \\xff'")]
    assert open_source("text", {}).locate(str(path), [3]) == [Place(4, 18)]  # type: ignore[attr-defined]
    rows, *_ = read_file("text", path, whole_files=True)
    assert rows == [{"file": "a.txt", "content": path.read_bytes()}]
    source = open_source("text", {"whole_files": True})
    (before,) = source.partitions([str(path)], target_bytes=1)
    path = path.rename(tmp_path / "b.txt")
    (after,) = source.partitions([str(path)], target_bytes=1)
    assert before.fingerprint != after.fingerprint  # its name is in the row
    path.write_bytes(gzip.compress("é\nü".encode("latin-1")))
    rows, *_ = read_file("text", path, encoding="latin-1")
    assert [row["text"] for row in rows] == ["é", "ü"]


def test_lines_of_libsvm(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text("1 1:0.5 3:-2e3 # note\n\n# only a note\n-1\n+1 qid:7 2:1\n1 2\nx 1:2\n0 1:2 qid:3\n2 qid:8\n")
    rows, ordinals, bad = read_file("libsvm", path)
    assert [tuple(row.values()) for row in rows] == [
        (1.0, None, [1, 3], [0.5, -2000.0]),
        (-1.0, None, [], []),
        (1.0, 7, [2], [1.0]),
        (2.0, 8, [], []),
    ]
    assert ordinals == [0, 3, 4, 8]
    assert [b.row for b in bad] == [5, 6, 7] and all("is no line of LIBSVM" in b.reason for b in bad)


def test_damage_in_a_tfrecord_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    content = bytearray(tfrecord_bytes("none"))
    content[50_000] ^= 1
    path.write_bytes(gzip.compress(content))
    with pytest.raises(SourceError, match=r"a.tfrecord: checksum wrong in record \d+ \(from 0\), at byte \d+"):
        read_file("tfrecord", path)


def test_records_that_are_no_examples_are_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    offsets = np.array([0, 4, 8])
    good = tfrecord_bytes("none")
    path.write_bytes(good + frame(b"\xff\xff\xff\xff\x01\x02\x03\x04", offsets).data.tobytes() + good)
    rows, ordinals, bad = read_file("tfrecord", path)
    assert (len(rows), [b.row for b in bad]) == (2 * ROWS, [ROWS, ROWS + 1])
    assert ordinals == [i for i in range(2 * ROWS + 2) if i not in (ROWS, ROWS + 1)]


def test_sequence_examples_stay_what_they_are(tmp_path: Path) -> None:
    schema = """
feature { name: "user" type: INT presence { min_fraction: 1 } shape {} }
feature { name: "##SEQUENCE##" type: STRUCT struct_domain { feature { name: "clicks" type: INT } } }
"""
    (tmp_path / "s.pbtxt").write_text(schema)
    (tmp_path / "a.jsonl").write_text('{"user": 1, "clicks": [[1, 2], [], [3]]}\n{"user": 2, "clicks": [[4]]}\n')
    config: dict[str, Any] = {"name": "t", "schema": "s.pbtxt"}
    source = {"source": {"format": "jsonl", "files": "a.jsonl"}, "output": {"dir": "a"}}
    (tmp_path / "a.yaml").write_text(json.dumps(config | source))
    first = build(load(str(tmp_path / "a.yaml")))
    files = f"{os.path.relpath(first.path, tmp_path)}/all/*"
    source = {"source": {"format": "tfrecord", "files": files, "sequence": True}, "output": {"dir": "b"}}
    (tmp_path / "b.yaml").write_text(json.dumps(config | source))
    build(load(str(tmp_path / "b.yaml")))
    before, after = (inspect(str(tmp_path / name), rows=2).rows["all"] for name in ("a", "b"))
    assert sorted(map(str, before)) == sorted(map(str, after)) and "[[1, 2]" in str(before)


@pytest.mark.parametrize(("count", "message"), [(18, "holds more than its 9 records"), (1, "has -1 records")])
def test_an_avro_block_that_does_not_hold_what_it_says(tmp_path: Path, count: int, message: str) -> None:
    """The number of a block's records is in no checksum; 10 is written as 20."""
    path = tmp_path / "a.avro"
    avro(path, [{"name": "x", "type": "long"}], [{"x": i} for i in range(10)])
    content = bytearray(path.read_bytes())
    at = content.rindex(content[-16:], 0, len(content) - 16) + 16  # behind the header's sync marker
    assert content[at] == 20
    content[at] = count
    path.write_bytes(content)
    source = open_source("avro", {})
    with pytest.raises(SourceError, match=message):
        for partition in source.partitions([str(path)], target_bytes=1000):
            list(source.read(partition, on_bad_row=print))


def test_an_index_that_does_not_hold_what_it_says(tmp_path: Path) -> None:
    from dataclasses import replace

    path = tmp_path / "a.tfrecord"
    path.write_bytes(make_contents(tmp_path)["tfrecord ours"])
    source = open_source("tfrecord", {})
    (partition,) = source.partitions([str(path)], target_bytes=1 << 30)
    wrong = replace(partition.slices[0], num_rows=7)
    with pytest.raises(SourceError, match="a.tfrecord: the bytes 0 to .* hold 3000 records, and their index says 7"):
        list(source.read(replace(partition, slices=(wrong,)), on_bad_row=print))
