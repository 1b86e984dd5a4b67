"""CSV: the rows of Python's csv module, for any split size, and errors that name the row."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transforms.errors import SourceError
from transforms.partition import BadRow, Partition, Place
from transforms.sources import csv_text, open_source
from transforms.sources.csv import CsvSource
from transforms.sources.csv_text import Dialect, scan

TINY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(
    path: Path | str, *, target: int = 64 << 20, only: frozenset[str] | None = None, **options: Any
) -> tuple[list[dict[str, str | None]], list[int], list[BadRow]]:
    source = open_source("csv", options)
    rows: list[dict[str, str | None]] = []
    ordinals: list[int] = []
    bad: list[BadRow] = []
    for partition in source.partitions([str(path)], target_bytes=target):
        for batch in source.read(partition, columns=only, on_bad_row=bad.append):
            assert not batch.typed and len(batch.rows) == batch.data.num_rows
            rows += batch.data.to_pylist()
            ordinals += batch.rows.tolist()
    return rows, ordinals, bad


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "data.csv"
        path.write_bytes(content)
        return path

    return write


TEXT = ["plain", "two\nlines", "win\r\nbreak", "comma, inside", 'say "hi"', "7,decoy,1", "id,text", "\n", 'end"', ""]


@pytest.mark.parametrize("target", [1, 64, 4096, 64 << 20])
def test_quoted_line_breaks(file: Callable[[bytes], Path], target: int) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["id", "text"])
    writer.writerows([i, TEXT[i % len(TEXT)]] for i in range(600))
    rows, ordinals, bad = read(file(stream.getvalue().encode()), target=target)
    assert rows == [{"id": str(i), "text": TEXT[i % len(TEXT)]} for i in range(600)]
    assert ordinals == list(range(600)) and not bad


CELLS = st.text(st.sampled_from('ab,"\n\r é\u2028;0'), max_size=12)
ROWS = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=25))


def expected_rows(text: str, delimiter: str = ",") -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


@TINY
@given(
    rows=ROWS,
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    target=st.integers(1, 200),
    chunk=st.integers(4, 100),
    delimiter=st.sampled_from([",", ";", "\t"]),
    final=st.booleans(),
)
def test_any_csv_is_what_python_reads(
    tmp_path: Path,
    rows: list[list[str]],
    quoting: Any,
    end: str,
    target: int,
    chunk: int,
    delimiter: str,
    final: bool,
) -> None:
    stream = io.StringIO()
    csv.writer(stream, quoting=quoting, lineterminator=end, delimiter=delimiter).writerows(rows)
    text = stream.getvalue() if final else stream.getvalue().removesuffix(end)
    path = tmp_path / "any.csv"
    path.write_bytes(text.encode())
    names = [f"c{i}" for i in range(len(rows[0]))]
    with mock.patch.object(csv_text, "CHUNK_BYTES", chunk):
        found, ordinals, bad = read(path, target=target, delimiter=delimiter, columns=names)
    everything = expected_rows(text, delimiter)  # a cell with a CR is not always quoted: rows of another width
    expected = [(i, row) for i, row in enumerate(everything) if len(row) == len(names)]
    assert [(i, [row[name] or "" for name in names]) for i, row in zip(ordinals, found, strict=True)] == expected
    assert sorted([*ordinals, *(row.row for row in bad)]) == list(range(len(everything)))


@TINY
@given(
    pieces=st.lists(st.sampled_from(['"', ",", "\n", "\r\n", "\r", "a", "bc" * 20, '""', '",', '"\n']), max_size=120)
)
def test_quotes_anywhere_are_what_python_reads(tmp_path: Path, pieces: list[str]) -> None:
    """Wrong quotes too: rows of another width are bad rows, and a quote that is never closed is one."""
    text = "".join(["a,b\n", *pieces])
    path = tmp_path / "any.csv"
    path.write_bytes(text.encode())
    with mock.patch.object(csv_text, "CHUNK_BYTES", 64):
        found, ordinals, bad = read(path, target=50)
    everything = expected_rows(text)[1:]
    expected = {i: row for i, row in enumerate(everything) if len(row) == 2}
    if bad and bad[-1].reason.endswith("never closed; close it"):
        assert bad[-1].row == len(everything) - 1
        expected.pop(bad[-1].row, None)
    assert dict(zip(ordinals, ([row["a"] or "", row["b"] or ""] for row in found), strict=True)) == expected
    assert sorted([*ordinals, *(row.row for row in bad)]) == list(range(len(everything)))


@TINY
@given(pieces=st.lists(st.sampled_from(['"', ",", "\n", "\r", "a", "bcd" * 30, '""', '","', '"\n"']), max_size=60))
def test_scan_goes_on_where_it_stopped(pieces: list[str]) -> None:
    """In blocks of 64 bytes or byte by byte: the same records."""
    text = memoryview("".join(pieces).encode())
    whole = scan(text, Dialect())
    end = rows = state = 0
    for i in range(len(text)):
        one, count, state = scan(text[i : i + 1], Dialect(), state=state)
        end, rows = (i + 1 if one else end), rows + count
    assert (end, rows, state) == whole


@TINY
@given(
    pieces=st.lists(
        st.sampled_from(["'", ";", "\n", "\r", "a", "bcd" * 30, "''", "';'", "'\n'", "\\", "#", "\n#"]), max_size=60
    )
)
def test_scan_of_another_dialect_goes_on_where_it_stopped(pieces: list[str]) -> None:
    text, dialect = memoryview("".join(pieces).encode()), Dialect(";", "'", "\\", "#")
    end = rows = state = 0
    for i in range(len(text)):
        one, count, state = scan(text[i : i + 1], dialect, state=state)
        end, rows = (i + 1 if one else end), rows + count
    assert (end, rows, state) == scan(text, dialect)


DIALECTS = [
    ({"quote": "'"}, b"a,b\n'x,\ny',\"z\"\n'it''s',2\n", [("x,\ny", '"z"'), ("it's", "2")]),
    ({"quote": ""}, b'a,b\n"x,y"\n"1,2\n', [('"x', 'y"'), ('"1', "2")]),
    ({"escape": "\\"}, b'a,b\nx\\,y,"p\\"q\\\\"\n"2\\"\n",4\n', [("x,y", 'p"q\\'), ('2"\n', "4")]),
    (
        {"comment": "#"},
        b'# head, er\n#\na,b\n1,2\n# no "row\n3,#4\n"5\n#6",7\n#',
        [("1", "2"), ("3", "#4"), ("5\n#6", "7")],
    ),
    (
        {"delimiter": ";", "quote": "'", "escape": "\\", "comment": "%"},
        b"%x\na;b\n'\\'';2\n%\n\\%3;4",
        [("'", "2"), ("%3", "4")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "content", "expected"), DIALECTS)
@pytest.mark.parametrize("target", [1, 64 << 20])
def test_dialects(
    file: Callable[[bytes], Path], options: dict[str, str], content: bytes, expected: list[Any], target: int
) -> None:
    rows, ordinals, bad = read(file(content), target=target, **options)
    assert [(row["a"], row["b"]) for row in rows] == expected and not bad
    assert ordinals == list(range(len(expected)))


def test_a_bad_row_among_comments_is_found(file: Callable[[bytes], Path]) -> None:
    path = file(b"# one\na,b\n1,2\n# two\n\n# three\n1,2,3\n4,5\n")
    rows, ordinals, bad = read(path, comment="#")
    assert (ordinals, [row.row for row in bad]) == ([0, 2], [1])
    assert CsvSource(comment="#").locate(str(path), [0, 1, 2]) == [Place(3, 10), Place(7, 29), Place(8, 35)]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "cp1252", "shift-jis", "utf-32"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_encodings(file: Callable[[bytes], Path], encoding: str, pack: Callable[[bytes], bytes]) -> None:
    cell = "ソー,ス" if encoding == "shift-jis" else "é, ü"
    text = f'name,n\r\n"{cell}",1\r\n' + "x,2\r\n" * 300_000 + f'"{cell}",3\r\n'
    rows, ordinals, bad = read(file(pack(text.encode(encoding))), encoding=encoding)
    assert (rows[0], rows[-1], len(rows)) == ({"name": cell, "n": "1"}, {"name": cell, "n": "3"}, 300_002)
    assert not bad and ordinals == list(range(300_002))


@pytest.mark.parametrize(
    ("encoding", "content", "message"),
    [
        ("utf-16-le", "a,b\n1,2\n".encode("utf-16-le") + b"\x00\xd8a\x00", "data.csv: is not utf-16-le text.*byte 16"),
        ("cp1252", b"a\n" * 700_000 + b"\x81\n", r"is not cp1252 text: b'\\x81' \(.*at byte 1400000\); see what"),
        ("utf-16", "a,b\n1,2\n".encode("utf-16")[:-1], "is not utf-16.* text.*truncated"),
    ],
)  # fmt: skip
def test_text_that_is_not_of_the_encoding(
    file: Callable[[bytes], Path], encoding: str, content: bytes, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        read(file(content), encoding=encoding)


def test_only_an_unquoted_empty_cell_is_missing(file: Callable[[bytes], Path]) -> None:
    rows, *_ = read(file(b'a,b\n,""\nNA,"NA"\n'))
    assert rows == [{"a": None, "b": ""}, {"a": "NA", "b": "NA"}]
    rows, *_ = read(file(b'a,b\n,""\nNA,"NA"\n'), null_values=["NA"])
    assert rows == [{"a": None, "b": ""}, {"a": None, "b": "NA"}]


def test_line_ends_blank_lines_and_the_byte_order_mark(file: Callable[[bytes], Path]) -> None:
    expected = [{"a b": "1", "c": "2"}, {"a b": "3", "c": "4"}]
    for end in (b"\n", b"\r\n", b"\r"):
        for target in (1, 1000):
            content = end.join([b"", b'"a b",c', b"", b"1,2", b"", b"3,4"])
            assert read(file(content), target=target)[:2] == (expected, [0, 1])
            assert read(file(b"\xef\xbb\xbf" + content), target=target)[:2] == (expected, [0, 1])


def test_a_blank_line_at_the_cut(file: Callable[[bytes], Path]) -> None:
    for target in (1, 2, 3, 4):
        assert read(file(b'a,b\n\n,"\r\n"\n\n\n1,2'), target=target)[:2] == (
            [{"a": None, "b": "\r\n"}, {"a": "1", "b": "2"}],
            [0, 1],
        )


def test_a_byte_order_mark_inside_the_file_is_text(file: Callable[[bytes], Path]) -> None:
    rows, ordinals, _ = read(file("a\n1\n\ufeff2\n".encode()), target=1)
    assert rows == [{"a": "1"}, {"a": "\ufeff2"}] and ordinals == [0, 1]


def test_names_in_place_of_a_header(file: Callable[[bytes], Path]) -> None:
    rows, *_ = read(file(b"\xef\xbb\xbf1;2\n3;4\n"), columns=["p", "q"], delimiter=";")
    assert rows == [{"p": "1", "q": "2"}, {"p": "3", "q": "4"}]


def test_columns_without_a_name_are_left_out_aloud(
    file: Callable[[bytes], Path], caplog: pytest.LogCaptureFixture
) -> None:
    source, path = CsvSource(), str(file(b"b,,a\n1,2,3\n"))
    with caplog.at_level(logging.WARNING, "recordmill"):
        for _ in range(2):
            source.partitions([path], target_bytes=100)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: column 2 has no name in the header: it is left out; give it one to keep it"
    ]


def test_columns_are_chosen_by_name(file: Callable[[bytes], Path]) -> None:
    path = file(b"b,,a\n1,2,3\n")
    assert read(path)[0] == [{"b": "1", "a": "3"}]
    assert read(path, only=frozenset({"a", "zz"}))[0] == [{"a": "3"}]
    (partition,) = CsvSource().partitions([str(path)], target_bytes=100)
    batches = list(CsvSource().read(partition, columns=frozenset({"zz"}), on_bad_row=print))
    assert sum(batch.data.num_rows for batch in batches) == 1


def test_no_rows(file: Callable[[bytes], Path], caplog: pytest.LogCaptureFixture) -> None:
    path = file(b"id,name\n")
    (partition,) = CsvSource().partitions([str(path)], target_bytes=100)
    (batch,) = CsvSource().read(partition, on_bad_row=print)
    assert batch.data.num_rows == 0 and batch.data.schema.names == ["id", "name"]
    assert not caplog.records
    for content in (b"", b"\n\r\n", b"\xef\xbb\xbf", gzip.compress(b"")):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "recordmill"):
            assert read(file(content)) == ([], [], [])
        assert "data.csv: the file is empty" in caplog.text


PACKED = {
    "gzip": lambda parts: b"".join(map(gzip.compress, parts)),
    "bz2": lambda parts: b"".join(map(bz2.compress, parts)),
    "zstd": lambda parts: b"".join(pa.Codec("zstd").compress(part, asbytes=True) for part in parts if part),
}


@pytest.mark.parametrize("kind", PACKED)
def test_packed_files_are_told_by_content_and_read_whole(file: Callable[[bytes], Path], kind: str) -> None:
    text = "id,t\n" + "".join(f'{i},"x\n{i}"\n' for i in range(12))
    parts = [b"", text[:21].encode(), b"", text[21:40].encode(), text[40:].encode(), b""]
    path = file(PACKED[kind](parts))
    rows, ordinals, bad = read(path, target=1)
    assert rows == [{"id": str(i), "t": f"x\n{i}"} for i in range(12)] and not bad
    assert len(CsvSource().partitions([str(path)], target_bytes=1)) == 1


@pytest.mark.parametrize("kind", PACKED)
def test_a_packed_file_that_is_cut_or_damaged_is_named(file: Callable[[bytes], Path], kind: str) -> None:
    whole = PACKED[kind](["".join(f"{i},{i * 7919 % 1009}\n" for i in range(5000)).encode()])
    for content in (whole[:-9], whole[: len(whole) // 2]):
        with pytest.raises(SourceError, match=rf"data\.csv: the {kind} file is cut short or damaged"):
            read(file(content), columns=["a", "b"])


def test_rows_of_another_width_are_reported_with_their_place(file: Callable[[bytes], Path]) -> None:
    content = b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(50)) + b"\n50\n51,x\n52,x,y\n53,x\n"
    for target in (7, 10**6):
        rows, ordinals, bad = read(file(content), target=target)
        assert ordinals == [i for i in range(54) if i not in (50, 52)]
        assert [row["a"] for row in rows] == list(map(str, ordinals))
        assert [(row.row, row.value) for row in bad] == [(50, "'50'"), (52, "'52,x,y'")]
        assert "has 3 cells, and the header names 2" in str(bad[1]) and "data.csv, row 53" in str(bad[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b,a\n", "names 'a' twice, as columns 1 and 3"),
        (
            b"a,b\n1,2\n3,caf\xe9\n",
            r"row 2, column 'b' holds b'caf\\xe9'; if it is latin-1, set",
        ),
        (
            b'a,b\n1,2\n\n3,4,5\n"x\ny","caf\xe9",7\n',
            r"row 3, column 'b' holds b'caf\\xe9'; if it is latin-1, set",
        ),
        (b"a,b\n\xe9,2,3\n", r"row 1, column 'a' holds b'\\xe9'; if it is latin-1, set"),
        (b"a,b\n1,2\n1,2,3,\xe9", r"row 2, cell 4 holds b'\\xe9'; if it is latin-1, set"),
        (b"caf\xe9,b\n", "the header holds"),
        ("a,b\n1,2\n".encode("utf-16"), "if it is utf-16, set source.encoding: utf-16"),
        (b'a,"b\n1,2\n', "a quote begins a cell of the header and is never closed"),
    ],
)
def test_what_cannot_be_read_is_named(file: Callable[[bytes], Path], content: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message) as error:
        read(file(content))
    assert "data.csv" in str(error.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(SourceError, match="gone.csv: cannot be read: No such file"):
        CsvSource().partitions(["gone.csv"], target_bytes=1)


def partitions(paths: list[Path], target: int) -> list[Partition]:
    return CsvSource().partitions([str(path) for path in paths], target_bytes=target)


def test_partitions_are_of_about_the_size_asked_for(tmp_path: Path) -> None:
    for name, rows in (("a", 1000), ("b", 1), ("c", 1), ("d", 1000)):
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "12345,6789\n" * rows)
    found = partitions([tmp_path / f"{name}.csv" for name in "abcd"], 2000)
    assert [slice.first_row for partition in found for slice in partition.slices if slice.path.endswith("a.csv")] == [
        0, 182, 364, 546, 728, 910
    ]  # fmt: skip
    assert all(partition.num_bytes < 2020 for partition in found)
    assert [len({slice.path for slice in partition.slices}) for partition in found].count(3) == 1  # the small ones


def test_a_fingerprint_is_of_content_and_header_alone(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    a.write_text("x\n" + "1\n" * 50)
    b.write_text("x\n" + "1\n" * 50 + "2\n")
    c.write_text("y\n" + "1\n" * 50)
    prints = [[partition.fingerprint for partition in partitions([path], 20)] for path in (a, b, c)]
    assert prints[0] == prints[1][: len(prints[0])] and len(prints[1]) == len(prints[0]) + 1
    assert not set(prints[0]) & set(prints[2])
    os.utime(a, (1, 1))
    assert [partition.fingerprint for partition in partitions([a], 20)] == prints[0]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_changes_after_it_was_cut_is_noticed(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(pack(b"x,y\n" + b"1,2\n" * 50))
    stat = os.stat(path)
    (partition,) = partitions([path], 1000)
    for content in (b"x,y\n" + b"1,3\n" * 50, b"x,y\n" + b"1,2\n" * 49, b"y,x\n" + b"1,2\n" * 50, b""):
        path.write_bytes(pack(content))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with pytest.raises(SourceError, match="a.csv: the file changed while it was read"):
            list(CsvSource().read(partition, on_bad_row=print))


def test_a_cell_longer_than_a_chunk(file: Callable[[bytes], Path]) -> None:
    cell = "x\n" * 3_000_000
    rows, *_ = read(file(f'a,b\n1,"{cell}"\n2,z\n'.encode()), target=1 << 20)
    assert rows == [{"a": "1", "b": cell}, {"a": "2", "b": "z"}]


def test_batches_are_small(file: Callable[[bytes], Path]) -> None:
    (partition,) = partitions([file(b"a\n" + b"1\n" * 100_000)], 1 << 30)
    sizes = [batch.data.num_rows for batch in CsvSource().read(partition, on_bad_row=print)]
    assert sum(sizes) == 100_000 and max(sizes) == 16_384
