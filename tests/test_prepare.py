"""Feature batches: exact values, columns by name, and bad rows by file, row, column, value and cure."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.errors import SchemaError
from transforms.infer import profile, to_schema
from transforms.partition import BadRow, RawBatch
from transforms.prepare import Preparer
from transforms.schema import Feature, Schema


def prepare(
    features: list[Feature], *, typed: bool = True, rows: Any = None, **columns: pa.Array
) -> tuple[pa.RecordBatch, list[int], list[BadRow]]:
    data = pa.RecordBatch.from_pydict(columns)
    raw = RawBatch(data, "in/a.csv", np.arange(data.num_rows) if rows is None else np.array(rows), typed=typed)
    bad: list[BadRow] = []
    schema = Schema(tuple(features))
    batch, kept = Preparer(schema).prepare(raw, on_bad_row=bad.append)
    batch.validate(full=True)
    assert batch.schema == schema.arrow_schema()
    assert kept.dtype == np.int64 and batch.num_rows == len(kept)
    assert sorted([*kept.tolist(), *(list(raw.rows).index(row.row) for row in bad)]) == list(range(data.num_rows))
    return batch, kept.tolist(), bad


def one(feature: Feature, column: pa.Array) -> tuple[list[Any], list[str]]:
    batch, _, bad = prepare([feature], **{feature.source[0]: column})
    return batch.column(0).to_pylist(), [str(row) for row in bad]


INT, FLOAT, BYTES = (Feature("c", kind, ("c",)) for kind in ("int", "float", "bytes"))  # type: ignore[arg-type]


def test_columns_by_name_and_others_left_alone() -> None:
    features = [Feature("id", "int", ("id",), required=True), Feature("income", "int", ("income",))]
    columns = {"label": ["1", "0"], "income": ["3900", "6100"], "odd": ["x", None], "id": ["3", "4"]}
    batch, *_ = prepare(features, typed=False, **{name: pa.array(values) for name, values in columns.items()})
    assert batch.to_pylist() == [{"id": 3, "income": 3900}, {"id": 4, "income": 6100}]
    batch, *_ = prepare(features, typed=False, id=pa.array(["6"]))
    assert batch.to_pylist() == [{"id": 6, "income": None}]


def test_a_required_column_that_is_not_there() -> None:
    feature = Feature("age", "int", ("age",), required=True)
    with pytest.raises(SchemaError, match="in/a.csv: has no column 'age', which the schema requires; it has 'id, x'"):
        prepare([feature], id=pa.array([1]), x=pa.array([1]))


def test_a_missing_value_in_a_required_column() -> None:
    feature = Feature("age", "int", ("age",), required=True)
    batch, kept, bad = prepare([feature], age=pa.array([31, None, 28, None, 40]), rows=[10, 11, 12, 13, 14])
    assert batch.column(0).to_pylist() == [31, 28, 40] and kept == [0, 2, 4]
    assert [row.row for row in bad] == [11, 13]
    assert str(bad[0]) == (
        "in/a.csv, row 12, column 'age': missing value in a required column; make it optional in the schema, or give "
        "it a default value"
    )


def test_a_default_value_fills_what_is_missing() -> None:
    missing = pa.array([31, None])
    assert one(Feature("age", "int", ("age",), default=-1), missing) == ([31, -1], [])
    assert one(Feature("age", "int", ("age",), required=True, default=-1), missing) == ([31, -1], [])
    lists = pa.array([[1.0, 2.0], None, []])
    assert one(Feature("l", "float", ("l",), shape=(2,), default=0.5), lists) == ([[1, 2], [0.5, 0.5], [0.5, 0.5]], [])
    batch, *_ = prepare([Feature("b", "bytes", ("b",), default=b"x")], other=pa.array([1, 2]))
    assert batch.column(0).to_pylist() == [b"x", b"x"]


# ---- text ------------------------------------------------------------------------------------------------------------


INTEGERS = st.one_of(
    st.from_regex(r"-?[0-9:/]{5,20}", fullmatch=True),
    st.integers(-(2**64), 2**64).map(str),
    st.text("0123456789-+ .", max_size=6),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(INTEGERS, st.none()), max_size=10), st.integers(0, 3))
def test_integers_out_of_text(values: list[str | None], cut: int) -> None:
    column = pa.array(values, pa.string()).slice(cut)
    expected, wrong = [], 0
    for value in values[cut:]:
        digits = (value or "").removeprefix("-")
        good = value is None or (digits.isdigit() and -(2**63) <= int(value) < 2**63)
        wrong += not good
        expected += [None if value is None else int(value)] if good else []
    found, bad = one(INT, column)
    assert found == expected and len(bad) == wrong
    assert all("is not an integer that fits 64 bits" in row for row in bad)


DECIMALS = st.one_of(
    st.floats(width=64).map(repr), st.integers(-(2**70), 2**70).map(str), st.text("0.5e-x", max_size=5)
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(DECIMALS, st.none()), max_size=10))
def test_floats_out_of_text(values: list[str | None]) -> None:
    expected, wrong = [], []
    for value in values:
        try:
            double = np.float64(value) if value is not None else None
        except ValueError:
            wrong.append("is not a number")
            continue
        with np.errstate(over="ignore"):
            single = None if double is None else np.float32(double)
        if single is not None and np.isinf(single) and not np.isinf(double):
            wrong.append("does not fit float32")
        else:
            expected.append(single)
    found, bad = one(FLOAT, pa.array(values, pa.string()))
    np.testing.assert_array_equal(np.array(found, float), np.array(expected, float))
    if "is not a number" not in wrong:
        assert len(bad) == len(wrong)
    assert all("is not a number" in row or "does not fit float32" in row for row in bad)


def test_declared_text_is_never_parsed_and_not_copied() -> None:
    texts = ["00501", "1.10", "1e5", "", "é"]
    column = pa.array(texts)
    batch, *_ = prepare([BYTES], c=column)
    assert batch.column(0).to_pylist() == [text.encode() for text in texts]
    assert batch.column(0).buffers()[2].address == column.buffers()[2].address


def test_text_of_every_layout() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()):
        column = pa.array(["12", None, "7"], kind)
        assert one(BYTES, column) == ([b"12", None, b"7"], [])
        assert one(INT, column) == ([12, None, 7], [])
    dictionary = pa.array(["12", None, "12"]).dictionary_encode()
    assert one(INT, dictionary) == ([12, None, 12], [])
    assert one(BYTES, dictionary) == ([b"12", None, b"12"], [])


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_integers_are_exact() -> None:
    values = [2**53 + 1, None, 4873214862074861313, -(2**63), 2**63 - 1, 16777217]
    assert one(INT, pa.array(values)) == (values, [])
    assert one(INT, pa.array(list(map(lambda v: v and str(v), values)))) == (values, [])
    assert one(INT, pa.array([True, None])) == ([1, None], [])
    found, bad = one(INT, pa.array([1, 2**63, None, 2**64 - 1], pa.uint64()))
    assert found == [1, None]
    assert bad[0].startswith("in/a.csv, row 2, column 'c': does not fit a 64-bit integer") and str(2**63) in bad[0]
    found, bad = one(INT, pa.array([1.0, 1.5, -2.0, 2.0**60, float("nan"), None]))
    assert found == [1, -2, None] and len(bad) == 3 and "is not a whole number" in bad[0] and "1.5" in bad[0]
    assert one(INT, pa.array([decimal.Decimal("12.00"), decimal.Decimal("1.50")]))[0] == [12]
    huge = [decimal.Decimal(2**63 - 1), decimal.Decimal(-(2**63)), decimal.Decimal(2**63), None]
    assert one(INT, pa.array(huge))[0] == [2**63 - 1, -(2**63), None]


def test_text_beyond_doubles_is_no_infinity() -> None:
    for feature in (FLOAT, Feature("x", "bytes", ("x",), float64=True)):
        found, bad = one(feature, pa.array(["1", "-1e400", "-inf", "x", None]))
        assert len(found) == 3 and len(bad) == 2
        assert "does not fit a 64-bit float" in bad[0] and "is not a number" in bad[1]


def test_doubles_are_rounded_and_never_become_infinite() -> None:
    values = [0.620390625, 1e39, 1e-46, 16777217.0, float("inf"), None]
    found, bad = one(FLOAT, pa.array(values))
    assert found == [np.float32(0.620390625), 0.0, 16777216.0, float("inf"), None]
    assert len(bad) == 1 and "row 2, column 'c': does not fit float32; declare the column as BYTES" in bad[0]
    assert "1e+39" in bad[0]
    kept = Feature("c", "bytes", ("c",), float64=True)
    for column in (pa.array(values), pa.array([None if v is None else repr(v) for v in values])):
        found, bad = one(kept, column)
        assert not bad and [None if v is None else np.frombuffer(v, "<f8")[0] for v in found] == values
    lists = Feature("c", "bytes", ("c",), float64=True, shape=None)
    assert one(lists, pa.array([[1e39, 0.5], None]))[0] == [[np.float64(v).tobytes() for v in (1e39, 0.5)], None]


def test_other_types_as_text() -> None:
    assert one(BYTES, pa.array([1, -5])) == ([b"1", b"-5"], [])
    assert one(BYTES, pa.array([decimal.Decimal("1.10")])) == ([b"1.10"], [])
    assert one(BYTES, pa.array([b"ab"], pa.binary(2))) == ([b"ab"], [])
    assert one(FLOAT, pa.array([decimal.Decimal("1.50"), None])) == ([1.5, None], [])
    assert one(FLOAT, pa.array([True, False])) == ([1.0, 0.0], [])


# ---- times -----------------------------------------------------------------------------------------------------------

UTC = datetime.timezone.utc
BERLIN_AT_THE_CHANGE = ["2024-10-27T02:30:00+02:00", "2024-10-27T02:30:00+01:00", "2024-10-27T00:30:00Z", None]
SECONDS = [1729989000, 1729992600, 1729989000, None]


def time(unit: Any) -> Feature:
    return Feature("c", "int", ("c",), time_unit=unit)


def test_timestamps_are_utc_in_the_unit_of_the_schema() -> None:
    for source in ("s", "ms", "us", "ns"):
        column = pa.array(SECONDS, pa.timestamp("s")).cast(pa.timestamp(source, "Europe/Berlin"))
        for unit, factor in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
            assert one(time(unit), column) == ([None if v is None else v * factor for v in SECONDS], [])
    assert one(time("days"), pa.array([-1, 86_400, 86_399], pa.timestamp("s"))) == ([-1, 1, 0], [])
    assert one(time("s"), pa.array([-1, 1999], pa.timestamp("ms"))) == ([-1, 1], [])
    days = pa.array([datetime.date(1969, 12, 31), None, datetime.date(2024, 10, 27)])
    assert one(time("days"), days) == ([-1, None, 20023], [])
    assert one(time("s"), days.cast(pa.date64())) == ([-86_400, None, 20023 * 86_400], [])
    assert one(time("us"), pa.array([datetime.time(0, 0, 1)])) == ([10**6], [])
    assert one(INT, pa.array([5], pa.duration("ms"))) == ([5], [])


def test_times_out_of_text() -> None:
    assert one(time("s"), pa.array(BERLIN_AT_THE_CHANGE)) == (SECONDS, [])
    texts = ["1970-01-02", "1970-01-02 00:00:01", "1970-01-02T00:00:01.5Z", "90000", "soon", None]
    found, bad = one(time("ms"), pa.array(texts))
    assert found == [86_400_000, 86_401_000, 86_401_500, 90000, None]
    assert bad == ["in/a.csv, row 5, column 'c': is neither an ISO 8601 date or time nor an integer: 'soon'"]


def test_times_that_do_not_fit_or_have_no_unit() -> None:
    found, bad = one(time("ns"), pa.array([0, 2**60], pa.timestamp("s")))
    assert found == [0] and "does not fit the unit of the feature" in bad[0]
    with pytest.raises(SchemaError, match=r"in/a.csv: column 'c' holds timestamp\[s\] values, whose unit"):
        one(INT, pa.array([0], pa.timestamp("s")))
    with pytest.raises(SchemaError, match="which are no floats"):
        one(FLOAT, pa.array([0], pa.timestamp("s")))


# ---- lists and structs -----------------------------------------------------------------------------------------------


def test_lists_empty_null_and_absent() -> None:
    tags, weights = Feature("tags", "bytes", ("tags",), shape=None), Feature("w", "float", ("w",), shape=None)
    columns = {
        "tags": pa.array([[], None, ["a", "b"], [""]]),
        "w": pa.array([[], None, [0.5, 1.5], [2.0]], pa.large_list(pa.float64())),
    }
    batch, *_ = prepare([tags, weights], **columns)
    assert batch.to_pylist() == [
        {"tags": [], "w": []},
        {"tags": None, "w": None},
        {"tags": [b"a", b"b"], "w": [0.5, 1.5]},
        {"tags": [b""], "w": [2.0]},
    ]
    assert one(tags, pa.nulls(2))[0] == [None, None]
    assert one(tags, pa.array(["a", None])) == ([[b"a"], None], [])


def test_nulls_inside_lists_are_bad_rows() -> None:
    feature = Feature("w", "float", ("w",), shape=None)
    found, bad = one(feature, pa.array([[1.0], [None, 2.0], None, [3.0, None]]))
    assert found == [[1.0], None]
    assert bad[0].startswith("in/a.csv, row 2, column 'w': a null inside the list") and "row 4" in bad[1]


def test_lists_of_a_fixed_length() -> None:
    required = Feature("v", "float", ("v",), shape=(2,), required=True)
    found, bad = one(required, pa.array([[1, 2], [1], None, [], [3, 4]]))
    assert found == [[1, 2], [3, 4]]
    assert [row.split(": ")[1] for row in bad] == [
        "the number of values is not 2, as the schema says",
        "missing value in a required column; make it optional in the schema, or give it a default value",
        "the number of values is not 2, as the schema says",
    ]
    optional = Feature("v", "float", ("v",), shape=(2,))
    assert one(optional, pa.array([[1, 2], None, []]))[0] == [[1, 2], None, []]
    matrix = Feature("v", "int", ("v",), shape=(2, 2), required=True)
    found, bad = one(matrix, pa.array([[[1, 2], [3, 4]], [[1, 2], [3]]]))
    assert found == [[1, 2, 3, 4]] and len(bad) == 1
    assert one(required, pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2))) == ([[1.0, 2.0]], [])


def test_one_value_out_of_a_list() -> None:
    found, bad = one(INT, pa.array([[1], [], None, [2, 3]]))
    assert found == [1, None, None] and "a list of several values" in bad[0]


def test_bad_values_inside_lists_are_found() -> None:
    feature = Feature("n", "int", ("n",), shape=None)
    found, bad = one(feature, pa.array([["1", "2"], ["3", "x"], ["4"]]))
    assert found == [[1, 2], [4]]
    assert bad == [
        "in/a.csv, row 2, column 'n': is not an integer that fits 64 bits; correct it, or declare the column as "
        "FLOAT or BYTES: 'x'"
    ]


def test_a_matrix_has_the_rows_that_its_shape_says() -> None:
    feature = Feature("m", "int", ("m",), required=True, shape=(2, 2))
    found, bad = one(feature, pa.array([[[1, 2], [3, 4]], [[1, 2, 3], [4]], [[1, 2, 3, 4], []], [[5, 6], [7, 8]]]))
    assert found == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert [row.partition(": ")[0] for row in bad] == ["in/a.csv, row 2, column 'm'", "in/a.csv, row 3, column 'm'"]
    assert "a list inside has not 2 values" in bad[0]
    cube = Feature("m", "int", ("m",), required=True, shape=(2, 1, 2))
    assert one(cube, pa.array([[[1, 2], [3, 4]]]))[0] == [[1, 2, 3, 4]]
    assert one(cube, pa.array([[1, 2, 3, 4]]))[0] == [[1, 2, 3, 4]]


def test_ragged_lists_and_structs_come_apart() -> None:
    columns = {
        "x": pa.array([{"i": [[1], [56, 2]]}, {"i": []}, None, {"i": None}, {"i": [[], [7]]}]),
        "p": pa.array([[{"a": 1, "b": "u"}], [], None, [{"a": 2, "b": "v"}, {"a": 3, "b": "w"}], []]),
    }
    data = pa.RecordBatch.from_pydict(columns)
    for cut in range(3):
        raw = RawBatch(data.slice(cut), "a.parquet", np.arange(5 - cut))
        batch, _ = Preparer(to_schema(profile([raw]))).prepare(raw, on_bad_row=pytest.fail)
        batch.validate(full=True)
        expected = {
            "x.i": [[1, 56, 2], [], None, None, [7]],
            "x.i.row_lengths": [[1, 2], [], None, None, [0, 1]],
            "p.a": [[1], [], None, [2, 3], []],
            "p.b": [[b"u"], [], None, [b"v", b"w"], []],
        }
        assert batch.to_pydict() == {name: values[cut:] for name, values in expected.items()}


def test_whole_columns_that_do_not_fit() -> None:
    with pytest.raises(SchemaError, match=r"in/a.csv: column 'c' holds .*struct.* values"):
        one(BYTES, pa.array([{"a": 1}]))
    with pytest.raises(SchemaError, match="declare it with a ragged_tensor representation"):
        one(Feature("c", "int", ("c",), shape=None), pa.array([[[1]]]))


def test_each_bad_row_is_told_once_in_order() -> None:
    features = [Feature("a", "int", ("a",), required=True), Feature("b", "float", ("b",), required=True)]
    batch, kept, bad = prepare(features, a=pa.array(["1", "x", "3", None]), b=pa.array(["y", "z", "1", "2"]))
    assert [(row.row, row.column) for row in bad] == [(0, "b"), (1, "a"), (3, "a")]
    assert kept == [2] and batch.to_pylist() == [{"a": 3, "b": 1.0}]


SCALARS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"i": SCALARS, "l": st.one_of(st.none(), st.lists(st.integers(0, 9))), "t": st.one_of(st.none(), st.text())}
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 5),
)
def test_inferred_batches_hold_what_was_there(rows: list[dict[str, Any]], cut: int) -> None:
    kind = pa.schema({"i": pa.int64(), "l": pa.list_(pa.int64()), "t": pa.string()})
    data = pa.RecordBatch.from_pylist(rows, schema=kind).slice(min(cut, len(rows) - 1))
    raw = RawBatch(data, "a.parquet", np.arange(data.num_rows))
    batch, _ = Preparer(to_schema(profile([raw]))).prepare(raw, on_bad_row=pytest.fail)
    batch.validate(full=True)
    expected = [row | {"t": None if row["t"] is None else row["t"].encode()} for row in data.to_pylist()]
    assert batch.to_pylist() == expected
