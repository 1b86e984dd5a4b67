"""JSON Lines: exact values whatever the blocks, bad lines by their number, mixtures by both places."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transforms.errors import SchemaError, SourceError
from transforms.infer import merge, profile, to_schema
from transforms.partition import BadRow
from transforms.prepare import Preparer
from transforms.schema import Feature, Schema
from transforms.sources import lines as line_files
from transforms.sources.jsonl import JsonlSource


def read(
    path: Path, *, target: int = 1 << 20, only: frozenset[str] | None = None, declared: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], list[int], list[BadRow]]:
    source, bad, rows, ordinals = JsonlSource(), list[BadRow](), list[dict[str, Any]](), list[int]()
    for part in source.partitions([str(path)], target_bytes=target):
        for batch in source.read(part, columns=only, declared=declared, on_bad_row=bad.append):
            batch.data.validate(full=True)
            rows += batch.data.to_pylist()
            ordinals += batch.rows.tolist()
    return rows, ordinals, bad


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "data.jsonl"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def features(path: Path, schema: Schema | None = None, *, target: int = 1 << 20) -> list[dict[str, Any]]:
    """What becomes of the file by its own schema or the given one."""
    source, found = JsonlSource(), list[dict[str, Any]]()
    parts = source.partitions([str(path)], target_bytes=target)
    if schema is None:
        schema = to_schema(merge(profile(source.read(part, on_bad_row=print)) for part in parts))
    declared = {".".join(feature.source): feature.kind for feature in schema.features}
    for part in parts:
        for batch in source.read(part, declared=declared, on_bad_row=pytest.fail):
            found += Preparer(schema).prepare(batch, on_bad_row=pytest.fail)[0].to_pylist()
    return found


def present(row: dict[str, Any]) -> dict[str, Any]:
    """Without nulls, at any depth: JSON's null and a missing name are one."""
    kept = {name: present(v) if isinstance(v, dict) else v for name, v in row.items() if v is not None}
    return {name: value for name, value in kept.items() if value != {}}


INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.one_of(st.text(), st.sampled_from(["2020-01-01", "2020-01-01T00:00:00Z", "00501", "1e5", '"\\']))
ROW = st.fixed_dictionaries(
    {},
    optional={
        "i": st.one_of(st.none(), INTEGERS),
        "f": st.floats(allow_nan=False, allow_infinity=False),
        "t": st.one_of(st.none(), TEXTS),
        "b": st.booleans(),
        "l": st.lists(INTEGERS),
        "lt": st.lists(TEXTS),
        "s": st.fixed_dictionaries({}, optional={"x": INTEGERS, "t": TEXTS}),
        "r": st.lists(st.lists(TEXTS)),
    },
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW, max_size=15), st.integers(1, 300), st.integers(4, 200), st.sampled_from(["\n", "\r\n", "\n \n"]))
def test_any_rows_for_any_blocks(tmp_path: Path, rows: list[Any], target: int, chunk: int, end: str) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes("".join(json.dumps(row) + end for row in rows).encode())
    with mock.patch.object(line_files, "CHUNK_BYTES", chunk):
        found, ordinals, bad = read(path, target=target)
    assert not bad
    assert list(map(present, found)) == list(map(present, rows))
    assert ordinals == [i * end.count("\n") for i in range(len(rows))]


def test_text_is_never_a_time_or_a_number(file: Callable[[str], Path]) -> None:
    rows = [{"t": "2021-01-01T00:00:00Z", "n": "00501"}, {"t": "2021-01-01", "n": "7"}, {"t": "x", "n": "1e5"}]
    for target in (1, 1 << 20):
        assert read(file(lines(*rows)), target=target)[0] == rows


def test_times_that_appear_block_by_block(file: Callable[[str], Path]) -> None:
    time = "2021-01-01T00:00:00Z"
    rows = [{"s": {"t": time}}, {"s": {"u": time, "n": 1}}, {"s": {"n": 0.5}, "l": [{"v": [time]}]}, {"t": time}] * 5
    with mock.patch.object(line_files, "CHUNK_BYTES", 60):
        assert list(map(present, read(file(lines(*rows)))[0])) == rows


def test_a_time_in_one_block_and_a_number_in_another(file: Callable[[str], Path]) -> None:
    path = file('{"a":"2021-01-01"}\n{"a":1}\n')
    schema = Schema((Feature("a", "bytes", ("a",)),))
    with mock.patch.object(line_files, "CHUNK_BYTES", 20):
        assert read(path)[0] == [{"a": "2021-01-01"}, {"a": 1}]
        with pytest.raises(SchemaError, match="'a' holds text .*row 1.* and int .*row 2"):
            features(path)
        assert features(path, schema) == [{"a": b"2021-01-01"}, {"a": b"1"}]


def test_integers_beside_nulls_and_floats(file: Callable[[str], Path]) -> None:
    values = [2**53 + 1, None, -(2**63), 2**63 - 1, 16777217]
    path = file(lines(*({"row": i, "id": value} for i, value in enumerate(values))))
    for target in (1, 1 << 20):
        assert [row["id"] for row in features(path, target=target)] == values
    assert features(file('{"a":1}\n{"a":0.5}\n{"a":null}\n'), target=1) == [{"a": 1.0}, {"a": 0.5}, {"a": None}]


def test_an_integer_beyond_64_bits_needs_a_declaration(file: Callable[[str], Path]) -> None:
    path = file('{"a": {"n": 1}}\n\n{"a": {"n": 12345678901234567890}}\n{"a": {"n": 1e300}}\n')
    with pytest.raises(
        SchemaError, match=r"data.jsonl, row 3, column 'a.n': the integer 12345678901234567890 does not"
    ):
        read(path)
    text = Schema((Feature("n", "bytes", ("a", "n")),))
    assert features(path, text) == [{"n": b"1"}, {"n": b"12345678901234567890"}, {"n": b"1e300"}]
    assert len(read(file('{"a": 1e300}\n'))[0]) == 1


def test_lists_that_are_full_empty_null_or_absent(file: Callable[[str], Path]) -> None:
    rows = [{"id": 1, "tags": [], "w": []}, {"id": 2, "tags": None, "w": None}, {"id": 3}]
    rows += [{"id": 4, "tags": ["a", "b"], "w": [0.5, 1.5]}, {"id": 5, "tags": [""], "w": [0.0]}, {"id": 6, "w": [2]}]
    for target in (1, 1 << 20):
        found = features(file(lines(*rows)), target=target)
        assert [(row["id"], row["tags"] or [], row["w"] or []) for row in found] == [
            (1, [], []),
            (2, [], []),
            (3, [], []),
            (4, [b"a", b"b"], [0.5, 1.5]),
            (5, [b""], [0.0]),
            (6, [], [2.0]),
        ]


@pytest.mark.parametrize("value", ["[null, 1.0, 2.0]", "[1.0, null]", '[null, "c"]', "[[null, 1]]", '[null, {"x": 1}]'])
def test_a_null_inside_a_list_is_a_bad_row(file: Callable[[str], Path], value: str) -> None:
    path = file(f'{{"id": 7, "w": {value}}}\n{{"id": 8}}\n')
    source, bad, kept = JsonlSource(), list[BadRow](), list[int]()
    (part,) = source.partitions([str(path)], target_bytes=1000)
    kind = "bytes" if "c" in value else "float"
    schema = Schema((Feature("id", "int", ("id",)), Feature("w", kind, ("w",), shape=None, ragged="[[" in value)))
    if "{" in value:
        schema = Schema((schema.features[0], Feature("w.x", "int", ("w", "x"), shape=None)))
    for batch in source.read(part, columns=frozenset({"id", "w"}), declared={}, on_bad_row=bad.append):
        kept += Preparer(schema).prepare(batch, on_bad_row=bad.append)[0].column(0).to_pylist()
    assert kept == [8]
    assert [(row.row, (row.column or "").split(".")[0]) for row in bad] == [(0, "w")]
    assert "a null inside the list" in bad[0].reason
    unused, _, none = read(path, only=frozenset({"id"}), declared={"id": "int"})
    assert unused == [{"id": 7}, {"id": 8}] and not none


@pytest.mark.parametrize("line", ['{"a":NaN}', '{"a":-Infinity}', '{"a":[1,Inf]}', '{"a":"\udcff"}'])
def test_a_line_is_bad_whatever_stands_beside_it(file: Callable[[bytes], Path], line: str) -> None:
    bad_line = line.encode("utf-8", "surrogateescape")
    for others in (b"", b'{"b":"NaN Inf"}\n', b"nope\n"):
        rows, _, bad = read(file(others + bad_line + b'\n{"b":"\xc3\xa9"}\n'))
        assert len(rows) == (2 if b"NaN Inf" in others else 1)
        assert bad[-1].row == others.count(b"\n") and len(bad) == 1 + (others == b"nope\n")


def test_bad_lines_are_reported_and_the_others_read(file: Callable[[str | bytes], Path]) -> None:
    content = b'{"a":1}\nnope\n{"a":2}\n\n[3]\n{"a":1,"a":2}\n{"a":NaN}\n{"a":"\xff"}\n{"a":3'
    rows, ordinals, bad = read(file(content))
    assert rows == [{"a": 1}, {"a": 2}] and ordinals == [0, 2]
    assert [row.row for row in bad] == [1, 4, 5, 6, 7, 8]
    reasons = [
        "is not JSON",
        "is not a JSON object",
        "'a' is there twice",
        "NaN is no JSON value",
        "is not UTF-8",
        "JSON",
    ]
    assert all(reason in row.reason for reason, row in zip(reasons, bad, strict=True))
    assert "data.jsonl, row 2: is not JSON" in str(bad[0]) and bad[0].value == "'nope'"
    assert read(file(b"nope\n"))[0] == []


def test_what_arrow_alone_does_not_read(file: Callable[[str], Path]) -> None:
    rows, ordinals, bad = read(file('{"a":"x"}\n{"a":"\\ud800"}\n{"b":1e999}\n{"a":"y"}\n'))
    assert [row["a"] for row in rows] == ["x", "y"] and ordinals == [0, 3]
    assert [row.row for row in bad] == [1, 2] and "cannot be read" in bad[0].reason


def test_text_in_some_rows_and_a_number_in_others(file: Callable[[str], Path]) -> None:
    content = '{"id":1,"title":"x"}\n{"id":2,"title":1.50}\n{"id":3,"title":1984}\n'
    path = file(content)
    with pytest.raises(SchemaError) as error:
        read(path)
    assert "data.jsonl: column 'title' holds text in row 1 ('x') and a number in row 2 (1.5)" in str(error.value)
    with pytest.raises(SchemaError, match="'title' holds text .*row 1, 'x'.* and float .*row 2, 1.5"):
        features(path, target=1)
    schema = Schema((Feature("id", "int", ("id",), required=True), Feature("title", "bytes", ("title",))))
    for target in (1, 1 << 20):
        found = features(path, schema, target=target)
        assert found == [{"id": 1, "title": b"x"}, {"id": 2, "title": b"1.50"}, {"id": 3, "title": b"1984"}]


@pytest.mark.parametrize(
    ("one", "other", "kinds"),
    [
        ("1", "[1]", ("a number", "a list")),
        ("true", '"x"', ("true or false", "text")),
        ('{"k":1}', "2", ("an object",)),
    ],
)
def test_other_mixtures(file: Callable[[str], Path], one: str, other: str, kinds: tuple[str, ...]) -> None:
    path = file(f'{{"id":1,"a":{one}}}\n{{"id":2,"a":{other}}}\n')
    with pytest.raises(SchemaError, match=" and ".join(f"{kind} in row.*" for kind in kinds)):
        read(path)
    assert read(path, only=frozenset({"id"}), declared={"id": "int"})[0] == [{"id": 1}, {"id": 2}]


def test_numbers_keep_their_text_where_they_are_declared_bytes(file: Callable[[str], Path]) -> None:
    path = file('{"a":1.10,"b":-0,"s":{"k":[1e5,2]},"t":"1 \\" 2"}\n')
    declared = {"a": "bytes", "b": "int", "s.k": "bytes", "t": "bytes"}
    (row,), *_ = read(path, declared=declared)
    assert row == {"a": "1.10", "b": 0, "s": {"k": ["1e5", "2"]}, "t": '1 " 2'}


def test_a_column_that_a_whole_block_lacks_is_missing_there(file: Callable[[str], Path]) -> None:
    path = file('{"id":1,"s":{"x":1}}\n{"id":2,"s":null}\n{"other":{}}\n')
    schema = Schema((Feature("id", "int", ("id",), required=True), Feature("x", "int", ("s", "x"), required=True)))
    source, declared = JsonlSource(), {"id": "int", "s.x": "int"}
    for target in (1, 1 << 20):
        for columns in (None, frozenset({"id", "s"})):
            bad: list[BadRow] = []
            for part in source.partitions([str(path)], target_bytes=target):
                for batch in source.read(part, columns=columns, declared=declared, on_bad_row=bad.append):
                    Preparer(schema).prepare(batch, on_bad_row=bad.append)
            assert [(row.row, row.column) for row in bad] == [(1, "s.x"), (2, "id")]


def test_slices_end_at_lines(file: Callable[[str], Path]) -> None:
    path = file(lines(*({"id": i} for i in range(1000))))
    found = JsonlSource().partitions([str(path)], target_bytes=1000)
    assert all(1000 <= part.num_bytes < 1020 for part in found[:-1]) and len(found) > 5
    rows, ordinals, _ = read(path, target=1000)
    assert [row["id"] for row in rows] == ordinals == list(range(1000))


def test_packed_and_marked_files(file: Callable[[bytes], Path]) -> None:
    content = lines({"id": 1}).encode()
    packed = gzip.compress(content) + gzip.compress(b"") + gzip.compress(lines({"id": 2}).encode())
    assert read(file(packed))[0] == [{"id": 1}, {"id": 2}]
    assert read(file(b"\xef\xbb\xbf" + content))[0] == [{"id": 1}]
    with pytest.raises(SourceError, match="data.jsonl: the gzip file is cut short or damaged"):
        read(file(packed[:-5]))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_a_flipped_byte_is_damage_wherever_it_is(file: Callable[[bytes], Path], pack: Callable[[bytes], bytes]) -> None:
    packed = pack("".join(lines({"id": i * 7919 % 1000}) for i in range(500)).encode())
    for at in range(12, len(packed), 41):
        path = file(packed[:at] + bytes([packed[at] ^ 255]) + packed[at + 1 :])
        with pytest.raises(SourceError, match="data.jsonl: the (gzip|bz2) file is cut short or damaged"):
            read(path)


def test_no_rows(file: Callable[[bytes], Path], caplog: pytest.LogCaptureFixture) -> None:
    for content in (b"", gzip.compress(b"")):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "recordmill"):
            assert read(file(content)) == ([], [], [])
        assert "data.jsonl: the file is empty" in caplog.text
    assert read(file(b"\n\n")) == ([], [], [])


def test_a_file_that_changes_after_it_was_cut_is_noticed(file: Callable[[str], Path]) -> None:
    source = JsonlSource()
    (part,) = source.partitions([str(file(lines({"id": 1})))], target_bytes=100)
    file(lines({"id": 2}))
    with pytest.raises(SourceError, match="data.jsonl: the file changed while it was read"):
        list(source.read(part, on_bad_row=print))


@pytest.mark.parametrize(
    ("line", "reason"),
    [(b'{"a": "x', "is not JSON"), (b'{"a": 1}{"a": 2}', "is not JSON"), (b'{"a": 5, "', "is not JSON")],
)
def test_what_a_line_lacks_is_not_taken_from_the_next(tmp_path: Path, line: bytes, reason: str) -> None:
    """Arrow lets a string go on over the end of its line."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": "0"}\n' + line + b'\n"}\n{"a": "3"}\n')
    bad: list[BadRow] = []
    source = JsonlSource()
    found = [
        (row["a"], int(ordinal))
        for partition in source.partitions([str(path)], target_bytes=1 << 20)
        for batch in source.read(partition, on_bad_row=bad.append)
        for row, ordinal in zip(batch.data.to_pylist(), batch.rows, strict=True)
    ]
    assert found == [("0", 0), ("3", 3)]
    assert [row.row for row in bad] == [1, 2] and bad[0].reason.startswith(reason)
