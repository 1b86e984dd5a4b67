"""WebDataset archives: what a sample is, where an archive may be cut, and what is damaged."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from transforms.errors import SourceError
from transforms.partition import BadRow
from transforms.sources import open_source

TARGET = 1 << 20


def archive(*members: tuple[str, bytes], format: int = tarfile.GNU_FORMAT) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format) as tar:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return sink.getvalue()


def samples(rows: int) -> list[tuple[str, bytes]]:
    return [
        member
        for i in range(rows)
        for member in (
            (f"train/{i:04}.jpg", bytes([i % 256]) * (100 * i % 3000)),
            (f"train/{i:04}.cls", str(i % 10).encode()),
            (f"train/{i:04}.json", json.dumps({"id": i, "box": [i, i + 0.5]}).encode()),
        )
    ]


def expected(rows: int) -> list[dict[str, Any]]:
    return [
        {
            "key": f"train/{i:04}",
            "cls": i % 10,
            "jpg": bytes([i % 256]) * (100 * i % 3000),
            "json": {"id": i, "box": [i, i + 0.5]},
        }
        for i in range(rows)
    ]


def read(path: Path, *, target: int = TARGET, **options: Any) -> tuple[list[dict[str, Any]], list[BadRow], int]:
    source, bad, rows, ordinals = open_source("webdataset", {}), list[BadRow](), list[dict[str, Any]](), list[int]()
    partitions = source.partitions([str(path)], target_bytes=target)
    for partition in partitions:
        for batch in source.read(partition, on_bad_row=bad.append, **options):
            rows += batch.data.to_pylist()
            ordinals += batch.rows.tolist()
    places = ordinals + [row.row for row in bad]
    assert sorted(places) == list(range(len(places)))
    return rows, bad, sum(len(partition.slices) for partition in partitions)


def write(tmp_path: Path, content: bytes, name: str = "a.tar") -> Path:
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


@pytest.mark.parametrize("target", [1, 5000, TARGET])
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_neighbours_of_one_name_are_a_row_wherever_an_archive_is_cut(tmp_path: Path, target: int, format: int) -> None:
    rows, bad, slices = read(write(tmp_path, archive(*samples(60), format=format)), target=target)
    assert rows == expected(60) and not bad
    assert slices == (60 if target == 1 else 1 if target == TARGET else slices)


def test_a_packed_archive_is_one_slice(tmp_path: Path) -> None:
    rows, _, slices = read(write(tmp_path, gzip.compress(archive(*samples(60))), "a.tar.gz"), target=1)
    assert rows == expected(60) and slices == 1


def test_columns_and_declared_ones(tmp_path: Path) -> None:
    path = write(tmp_path, archive(*samples(3)))
    assert read(path, columns=frozenset(["cls", "none"]))[0] == [{"cls": i, "none": None} for i in range(3)]
    assert read(path, columns=frozenset())[0] == [{}] * 3
    declared = {"key": "bytes", "json.id": "bytes", "png": "bytes"}
    rows = read(path, declared=declared)[0]
    assert rows[2]["json"]["id"] == "2" and rows[2]["png"] is None


def test_types_by_ending(tmp_path: Path) -> None:
    members = [("a.txt", "é".encode()), ("a.index", b" 7\n"), ("a.left.PNG", b"\xff"), ("a.meta.json", b'{"a": null}')]
    (row,), bad, _ = read(write(tmp_path, archive(*members)))
    assert row == {"key": "a", "txt": "é", "index": 7, "left.png": b"\xff", "meta.json": {"a": None}} and not bad


def test_samples_that_lack_a_member_have_none(tmp_path: Path) -> None:
    rows, _, _ = read(write(tmp_path, archive(("a.cls", b"1"), ("b.json", b'{"x": 1}'), ("c.jpg", b"c"))))
    assert rows == [
        {"key": "a", "cls": 1, "jpg": None, "json": None},
        {"key": "b", "cls": None, "jpg": None, "json": {"x": 1}},
        {"key": "c", "cls": None, "jpg": b"c", "json": None},
    ]


@pytest.mark.parametrize("target", [1, TARGET])
def test_what_is_no_sample_is_a_bad_row_beside_the_others(tmp_path: Path, target: int) -> None:
    members = [
        ("__index__/files.json", b"{}"),
        ("a.cls", b"1"),
        ("README", b"about"),
        ("a.txt", b"text"),
        ("b.cls", b"one"),
        ("c.txt", b"\xff"),
        ("d.json", b"{"),
        ("e.json", b"  "),
        ("f.cls", b"1"),
        ("f.cls", b"2"),
        ("g.cls", str(1 << 63).encode()),
        ("h.txt", b"last"),
    ]
    rows, bad, _ = read(write(tmp_path, archive(*members)), target=target)
    assert [(row["key"], row["txt"]) for row in rows] == [("a", "text"), ("h", "last")]
    assert [(row.row, row.column) for row in sorted(bad, key=lambda row: row.row)] == [
        (1, None), (2, "cls"), (3, "txt"), (4, "json"), (5, "json"), (6, None), (7, "cls")
    ]  # fmt: skip
    reasons = " ".join(row.reason for row in bad)
    for reason in ("no ending", "no 64-bit integer", "no UTF-8 text", "is there twice", "not JSON"):
        assert reason in reasons


def test_links_and_sparse_files_are_bad_rows(tmp_path: Path) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        about = tarfile.TarInfo("a.jpg")
        about.type, about.linkname = tarfile.SYMTYPE, "b.jpg"
        tar.addfile(about)
        tar.addfile(tarfile.TarInfo("b.cls"))
    rows, bad, _ = read(write(tmp_path, sink.getvalue()))
    assert not rows
    assert "'a.jpg' is a link or a device, and no file" in bad[0].reason and bad[1].column == "cls"


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_archive_is_an_error_and_never_a_shorter_one(tmp_path: Path, packed: bool) -> None:
    whole = archive(*samples(20))
    end = len(whole.rstrip(b"\0")) // 512 * 512 + 512
    headers = [at for at in range(0, end, 512) if whole[at + 257 : at + 262] == b"ustar"]
    assert len(headers) == 60
    damaged = {
        "cut behind a member": whole[: headers[30]],
        "cut within a header": whole[: headers[30] + 100],
        "cut within a member": whole[: headers[30] + 520],
        "a header that is damaged": whole[: headers[30]] + b"x" + whole[headers[30] + 1 :],
        "zeros in the middle": whole[: headers[30]] + bytes(1024) + whole[headers[30] :],
        "two archives": whole + whole,
        "no archive": b"PK\3\4" * 1000,
    }
    for what, content in damaged.items():
        path = write(tmp_path, gzip.compress(content) if packed else content)
        with pytest.raises(SourceError, match=r"a\.tar: cannot be read as tar: .*; get it again") as raised:
            read(path, target=5000)
        assert raised.value, what


def test_an_archive_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, archive(*samples(20)))
    source = open_source("webdataset", {})
    partitions = source.partitions([str(path)], target_bytes=5000)
    content = bytearray(path.read_bytes())
    content[600] ^= 1
    path.write_bytes(content)
    with pytest.raises(SourceError, match="changed while it was read"):
        for partition in partitions:
            for _ in source.read(partition, on_bad_row=lambda row: None):
                pass


def test_no_members_and_no_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(write(tmp_path, archive()))[0] == []
    assert read(write(tmp_path, b""))[0] == []
    assert "the file is empty" in caplog.text
