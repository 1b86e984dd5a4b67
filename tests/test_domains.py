"""Values observed, held against the domains of a schema, and put into it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.domains import (
    MAX_VALUES,
    DomainCheck,
    Values,
    add,
    from_plain,
    observe,
    to_plain,
    too_many,
    widened,
    with_domains,
)
from transforms.errors import SchemaError
from transforms.schema import Schema


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


TEXTS = pa.array([b"red", None, b"blue", b"red"], pa.binary())
SIZES = pa.array([3, -1, None, 7], pa.int64())
LISTS = pa.array([[0.5, 2.0], None, [], [float("nan")]], pa.list_(pa.float32()))


def test_observe() -> None:
    found = observe([batch(color=TEXTS, size=SIZES, x=LISTS)])
    assert found["color"] == Values(3, texts=("blue", "red"))
    assert found["size"] == Values(3, -1, 7)
    assert found["x"] == Values(3, 0.5, 2.0)
    assert from_plain(json.loads(json.dumps(to_plain(found)))) == found


@pytest.mark.parametrize(
    "texts",
    [[b"%d" % i for i in range(MAX_VALUES + 1)], [b"%d" % (i % 5000) for i in range(9000)], [b"x" * 300], [b"\xff"]],
    ids=["one too many", "many", "long", "no UTF-8"],
)
def test_texts_that_are_no_vocabulary(texts: list[bytes]) -> None:
    assert observe([batch(a=pa.array(texts, pa.large_binary()))])["a"] == Values(len(texts), texts=None)


@given(st.lists(st.lists(st.integers(-5, 5) | st.none(), max_size=6), min_size=1, max_size=5))
def test_parts_add_up_to_the_whole(parts: list[list[int | None]]) -> None:
    def observed(values: list[int | None]) -> dict[str, Values]:
        texts = [None if v is None else str(v).encode() for v in values]
        return observe([batch(n=pa.array(values, pa.int64()), t=pa.array(texts, pa.binary()))])

    assert add(map(observed, parts)) == observed([value for part in parts for value in part])


SCHEMA = """
feature { name: "color" type: BYTES string_domain { value: "red" value: "green" } }
feature { name: "shape" type: BYTES domain: "shapes" }
feature { name: "size" type: INT int_domain { min: 0 max: 5 } distribution_constraints { min_domain_mass: 0.5 } }
feature { name: "x" type: FLOAT float_domain { max: 1 } value_count { min: 0 max: 9 } }
feature { name: "free" type: INT }
string_domain { name: "shapes" value: "round" }
"""


def checked(schema: Schema) -> DomainCheck:
    check = DomainCheck(schema)
    for _ in range(2):
        check.look(batch(color=TEXTS, shape=TEXTS, size=SIZES, x=LISTS, free=SIZES))
    return check


def test_strays_are_counted_and_shown() -> None:
    schema = Schema.from_text(SCHEMA, path="s.pbtxt")
    check = checked(schema)
    assert check.values == {"color": 6, "shape": 6, "size": 6, "x": 6}
    assert check.strays == {
        "color": Values(2, texts=("blue",)),
        "shape": Values(6, texts=("blue", "red")),
        "size": Values(4, -1, 7),
        "x": Values(2, 2.0, 2.0),
    }
    assert [str(found) for found in check.strays.values()] == ["'blue'", "'blue', 'red'", "-1 to 7", "2.0"]


def test_some_may_be_allowed() -> None:
    schema = Schema.from_text(SCHEMA, path="s.pbtxt")
    check = checked(schema)
    assert set(too_many(schema, check.strays, check.values)) == {"color", "shape", "size", "x"}  # 4 of 6 > half
    few = {"size": Values(3, -1, 7)}
    assert too_many(schema, few, check.values) == {}


def test_a_widened_schema_has_no_strays() -> None:
    schema = Schema.from_text(SCHEMA, path="s.pbtxt")
    wider = widened(schema, checked(schema).strays)
    assert checked(wider).strays == {}
    assert Schema.from_text(wider.to_text(), path="s.pbtxt") == wider
    assert 'value: "blue"' in wider.other and "max: 7" in wider.to_text()


def test_too_many_strays_end_a_domain() -> None:
    schema = Schema.from_text(SCHEMA, path="s.pbtxt")
    wider = widened(schema, {"color": Values(1000, texts=None)})
    assert "string_domain" not in wider.features[0].other


def test_what_was_observed_becomes_domains() -> None:
    schema = Schema.from_text(
        'feature { name: "color" type: BYTES } feature { name: "size" type: INT } '
        'feature { name: "x" type: FLOAT } feature { name: "at" type: INT '
        "time_domain { integer_format: UNIX_SECONDS } }",
        path="s.pbtxt",
    )
    texts = pa.array([b"red", b"blue", b"red", b"blue"], pa.binary())
    found = with_domains(schema, observe([batch(color=texts, size=SIZES, x=LISTS, at=SIZES)]))
    color, size, x, at = found.features
    assert 'value: "blue"' in color.other and "min: -1" in size.other
    assert (x, at) == schema.features[2:]  # floats have no domain of values, times are none
    assert Schema.from_text(found.to_text(), path="s.pbtxt") == found


def test_texts_that_never_come_again_are_no_domain() -> None:
    schema = Schema.from_text('feature { name: "color" type: BYTES }', path="s.pbtxt")
    assert with_domains(schema, observe([batch(color=TEXTS)])) == schema  # three values, two different


def test_a_domain_that_is_not_there() -> None:
    schema = Schema.from_text('feature { name: "color" type: BYTES domain: "colors" }', path="s.pbtxt")
    with pytest.raises(SchemaError, match="'color' has the domain 'colors', which the schema does not define"):
        DomainCheck(schema)
