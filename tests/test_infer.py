"""Types from all the data, whatever the cut; text that numbers would change stays text."""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.errors import SchemaError
from transforms.infer import Profile, merge, profile, to_schema
from transforms.partition import RawBatch
from transforms.schema import Feature, Schema
from transforms.sources import open_source


def cells(*values: str | None, path: str = "a.csv") -> RawBatch:
    data = pa.RecordBatch.from_pydict({"c": pa.array(values, pa.string())})
    return RawBatch(data, path, np.arange(len(values)), typed=False)


def typed(path: str = "a.parquet", **columns: pa.Array) -> RawBatch:
    data = pa.RecordBatch.from_pydict(columns)
    return RawBatch(data, path, np.arange(data.num_rows))


def only(*batches: RawBatch) -> Feature:
    (feature,) = to_schema(profile(batches)).features
    return feature


def files(tmp_path: Path, format: str, *contents: str, target: int = 1 << 20) -> Schema:
    paths = []
    for i, content in enumerate(contents):
        paths.append(str(tmp_path / f"part-{i}.{format}"))
        Path(paths[-1]).write_text(content)
    source = open_source(format, {})
    partitions = source.partitions(paths, target_bytes=target)
    return to_schema(merge(profile(source.read(partition, on_bad_row=print)) for partition in partitions))


def summary(schema: Schema) -> dict[str, tuple[Any, ...]]:
    return {f.name: (f.kind, f.required, f.shape) for f in schema.features}


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("int", ["0", "-1", "42", str(2**63 - 1), str(-(2**63)), str(2**53 + 1)]),
        ("float", ["0.5", "-0.0", "1.", ".5", "-.5", "1.5e5", "1e-05", "1E+20", "1.0E9", "-0", "12.50", "1.e3"]),
        (
            "bytes",
            ["007", "00501", "-01", "01.5", "1e5", "2E3", str(2**63), str(-(2**63) - 1), "1_000", "+1", " 1", "1 ", "",
             ".", "-", "-.", "e5", "1e", "1.5e", "1.5e+", "0x10", "1,5", "true", "٣", "1.2.3", "--1", "NaNs"],
        ),
    ],
)  # fmt: skip
def test_each_text(kind: str, texts: list[str]) -> None:
    for text in texts:
        assert only(cells(text)).kind == kind, text


def oracle(text: str) -> str:
    """What the rules say, by a regular expression."""
    if re.fullmatch(r"-?(NaN|nan|inf|Inf|Infinity)", text):
        return "not finite"
    match = re.fullmatch(r"-?(\d*)(\.\d*)?([eE]([+-]?)\d+)?", text, re.ASCII)
    if not match or not re.search(r"^-?\.?\d", text, re.ASCII) or re.match(r"-?0\d", text):
        return "text"
    whole, point, exponent, sign = match.groups()
    if not point and not exponent:
        return "decimal" if text == "-0" else "integer" if -(2**63) <= int(text) < 2**63 else "text"
    return "decimal" if not exponent or point or sign else "text"


NUMBERISH = st.one_of(
    st.text("0123456789.-+eE", max_size=8),
    st.from_regex(r"-?[0-9:/]{5,20}(\.[0-9:]{5,20})?", fullmatch=True),
    st.integers(-(2**64), 2**64).map(str),
    st.floats(width=64).map(repr),
    st.sampled_from(["NaN", "nan", "inf", "-inf", "Infinity", "-Infinity", "00501", "1e5", ""]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(NUMBERISH, st.none()), min_size=1, max_size=8), st.integers(0, 8))
def test_columns_of_text_against_a_regular_expression(values: list[str | None], cut: int) -> None:
    kinds = {oracle(value) for value in values if value is not None}
    if "text" in kinds or not kinds & {"integer", "decimal"}:
        expected = "bytes"
    else:
        expected = "int" if kinds == {"integer"} else "float"
    found = only(cells(*values))
    assert found.kind == expected
    assert found.required == (None not in values) and found.shape == ()
    parts = [Profile.from_json(profile([cells(*part)]).to_json()) for part in (values[:cut], values[cut:])]
    assert to_schema(merge(parts)) == Schema((found,))


def test_a_late_change_of_type(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 90},{i % 1000},\n" for i in range(18_000))
    content = f"id,reading,code,remark\n{rows}18000,7.5,A12,replaced\n"
    expected = {
        "id": ("int", True, ()),
        "reading": ("float", True, ()),
        "code": ("bytes", True, ()),
        "remark": ("bytes", False, ()),
    }
    for target in (1000, 70_000, 1 << 30):
        assert summary(files(tmp_path, "csv", content, target=target)) == expected


def test_codes_with_leading_zeros(tmp_path: Path) -> None:
    rows = '00501,"007",1.10,1e5\n02134,"010",1.9,2e3\n90210,"100",1.2,3e1\n'
    kinds = {f.name: f.kind for f in files(tmp_path, "csv", f"zip,shop,version,sku\n{rows}").features}
    assert kinds == {"zip": "bytes", "shop": "bytes", "version": "float", "sku": "bytes"}


def test_columns_by_name_in_the_order_of_their_first_appearance(tmp_path: Path) -> None:
    schema = files(tmp_path, "csv", "id,age\n1,31\n", "age,new,id\n28,x,3\n", "id\n5\n")
    assert summary(schema) == {"id": ("int", True, ()), "age": ("int", False, ()), "new": ("bytes", False, ())}


def test_big_integers_beside_nulls(tmp_path: Path) -> None:
    values = [2**53 + 1, None, 4873214862074861313, -(2**63), 2**63 - 1]
    text = "row,id\n" + "".join(f"{i},{'' if v is None else v}\n" for i, v in enumerate(values))
    lines = "".join(json.dumps({"row": i, "id": v}) + "\n" for i, v in enumerate(values))
    for format, content in (("csv", text), ("jsonl", lines)):
        assert summary(files(tmp_path, format, content)) == {"row": ("int", True, ()), "id": ("int", False, ())}


def test_columns_without_any_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "recordmill"):
        assert only(cells(None, None)) == Feature("c", "bytes", ("c",))
        assert only(typed(c=pa.nulls(2))) == Feature("c", "bytes", ("c",))
    assert [record.getMessage() for record in caplog.records] == 2 * [
        "column 'c' has no value in any row: taken as optional bytes"
    ]
    assert only(typed(c=pa.array([None], pa.int64()))).kind == "int"


UTC = datetime.timezone.utc


@pytest.mark.parametrize(
    ("column", "kind", "unit"),
    [
        (pa.array([True]), "int", None),
        (pa.array([1], pa.uint64()), "int", None),
        (pa.array([1], pa.int8()), "int", None),
        (pa.array([1], pa.float16()), "float", None),
        (pa.array([1.0]), "float", None),
        (pa.array(["1"]), "bytes", None),
        (pa.array(["1"], pa.large_string()), "bytes", None),
        (pa.array(["1"], pa.string_view()), "bytes", None),
        (pa.array([b"1"], pa.binary(1)), "bytes", None),
        (pa.array(["1", "1"]).dictionary_encode(), "bytes", None),
        (pa.array([decimal.Decimal("1.10")]), "bytes", None),
        (pa.array([datetime.date(2020, 1, 1)]), "int", "days"),
        (pa.array([datetime.date(2020, 1, 1)], pa.date64()), "int", "ms"),
        (pa.array([datetime.datetime(2020, 1, 1, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")), "int", "us"),
        (pa.array([datetime.datetime(2020, 1, 1)], pa.timestamp("ns")), "int", "ns"),
        (pa.array([datetime.time(1)], pa.time32("s")), "int", "s"),
        (pa.array([1], pa.duration("ms")), "int", None),
    ],
)
def test_types_of_columns(column: pa.Array, kind: str, unit: str | None) -> None:
    feature = only(typed(c=column))
    assert (feature.kind, feature.time_unit, feature.required, feature.shape) == (kind, unit, True, ())


def test_structs_and_lists() -> None:
    columns = {
        "s": pa.array([{"a": {"b": 1}, "t": "x"}, None]),
        "l": pa.array([[1.0], []]),
        "e": pa.array([[0.0] * 4] * 2, pa.list_(pa.float32(), 4)),
        "p": pa.array([[{"x": 1, "y": "a"}], [{"x": 2, "y": "b"}, {"x": 3, "y": "c"}]]),
        "r": pa.array([[[1], [2, 3]], None]),
    }
    assert to_schema(profile([typed(**columns)])).features == (
        Feature("s.a.b", "int", ("s", "a", "b")),
        Feature("s.t", "bytes", ("s", "t")),
        Feature("l", "float", ("l",), shape=None),
        Feature("e", "float", ("e",), shape=(4,), required=True),
        Feature("p.x", "int", ("p", "x"), shape=None),
        Feature("p.y", "bytes", ("p", "y"), shape=None),
        Feature("r", "int", ("r",), shape=None, ragged=True),
        Feature("r.row_lengths", "int", ("r",), shape=None, row_lengths_of="r"),
    )


def test_what_is_decided_elsewhere() -> None:
    """A null, an empty list, a null struct say nothing against what other files say."""
    empty = typed(a=pa.nulls(1), b=pa.array([[]]), c=pa.nulls(1), d=pa.array([1]), path="1")
    full = typed(a=pa.array([["x"]]), b=pa.array([[1]]), c=pa.array([{"k": 1}]), d=pa.array([0.5]), path="2")
    for batches in ([empty, full], [full, empty]):
        assert {(f.name, f.kind, f.shape) for f in to_schema(profile(batches)).features} == {
            ("a", "bytes", None),
            ("b", "int", None),
            ("c.k", "int", ()),
            ("d", "float", ()),
        }


def test_times_get_the_finest_unit() -> None:
    day, second = pa.array([1], pa.date32()), pa.array([1], pa.timestamp("us"))
    assert only(typed(c=day), typed(c=second)).time_unit == "us"


@pytest.mark.parametrize(
    ("one", "other", "parts"),
    [
        (
            pa.array([1]),
            pa.array(["x"]),
            "column 'c' holds | and |int (1.parquet, row 1, 1)|text (2.parquet, row 1, 'x')",
        ),
        (pa.array([1]), pa.array([[1]]), "int (1.parquet, row 1, 1)|list of int (2.parquet, row 1, [1])"),
        (pa.array([1]), pa.array([{"k": 1}]), "'c' is a struct in some rows and int (1.parquet, row 1, 1) in others"),
        (pa.array([1]), pa.array([1], pa.timestamp("s")), "int (1.parquet, row 1, 1)|time in s (2.parquet"),
    ],
)
def test_mixtures_name_both_files(one: pa.Array, other: pa.Array, parts: str) -> None:
    for batches in ([one, other], [other, one]):
        named = ["1.parquet", "2.parquet"] if batches[0] is one else ["2.parquet", "1.parquet"]
        with pytest.raises(SchemaError) as error:
            only(*(typed(path=path, c=column) for path, column in zip(named, batches, strict=True)))
        assert all(part in str(error.value) for part in parts.split("|"))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[[[1]]]]),
        pa.array([[[{"x": 1}]]]),
    ],
)
def test_columns_without_a_form_are_refused_by_name(column: pa.Array) -> None:
    with pytest.raises(SchemaError, match="column 'c' is of type .* has no form as a feature"):
        only(typed(c=column))


@pytest.mark.parametrize("column", [{"s.a": pa.array([1])}, {"s": pa.array([[[1]]]), "s.row_lengths": pa.array([1])}])
def test_names_that_meet(column: dict[str, pa.Array]) -> None:
    with pytest.raises(SchemaError, match="two columns come to the name 's.(a|row_lengths)'"):
        to_schema(profile([typed(**({"s": pa.array([{"a": 1}])} | column))]))


def test_a_field_without_a_name_is_left_out_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "recordmill"):
        schema = to_schema(profile([typed(**{"": pa.array([1]), "s": pa.array([{"": 1, "a": 2}])})]))
    assert [feature.name for feature in schema.features] == ["s.a"]
    assert "a column has no name (''): it is left out" in caplog.text and "('s' > '')" in caplog.text


VALUES = st.one_of(st.none(), st.integers(-5, 5), st.floats(allow_nan=False, width=32))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional={"a": VALUES, "b": st.lists(VALUES)}), max_size=12), st.data())
def test_json_lines_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], data: st.DataObject
) -> None:
    rows = [row | {"b": [v for v in row["b"] if v is not None]} if "b" in row else row for row in rows]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    folder = tmp_path_factory.mktemp("lines")
    schemas = [files(folder, "jsonl", content, target=target) for target in (data.draw(st.integers(1, 60)), 1 << 20)]
    assert schemas[0] == schemas[1]


def test_profiles_are_json(tmp_path: Path) -> None:
    before = profile([cells("1", None, "x"), typed(s=pa.array([{"a": [1]}]))])
    assert Profile.from_json(before.to_json()) == before
    assert merge([]) == Profile(0, ()) and to_schema(merge([])).features == ()
