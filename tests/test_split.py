from __future__ import annotations

import datetime
import decimal
import itertools

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import SchemaError
from transforms.split import Splitter, _xxh64, hash_rows

HALVES = {"a": 0.5, "b": 0.5}


def rows_of(column: pa.Array, name: str = "x") -> list[int]:
    return hash_rows(pa.RecordBatch.from_arrays([column], names=[name])).tolist()


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_xxh64_is_the_published_function(data: bytes, seed: int) -> None:
    assert _xxh64(data, len(data), seed) == xxhash.xxh64(data, seed=seed).intdigest()


def test_hashes_never_change() -> None:
    """A change here moves rows between the splits of every dataset that was built."""
    batch = pa.RecordBatch.from_pydict({"user": ["u1", None, ""], "n": pa.array([1, None, -5], pa.int64())})
    assert hash_rows(batch).tolist() == [7181106176003891364, 0, 14206243630923611060]

    def by_hand(**values: str) -> int:
        """The definition, on the xxhash package: the finalizer of XXH64 over the sum of the values' hashes."""
        seeds = {k: xxhash.xxh64(k.encode()).intdigest() for k in values}
        h = sum(xxhash.xxh64(v.encode(), seed=seeds[k]).intdigest() for k, v in values.items()) % 2**64
        h = (h ^ (h >> 33)) * 0xC2B2AE3D27D4EB4F % 2**64
        h = (h ^ (h >> 29)) * 0x165667B19E3779F9 % 2**64
        return h ^ (h >> 32)

    assert hash_rows(batch).tolist() == [by_hand(user="u1", n="1"), 0, by_hand(user="", n="-5")]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_numbers_hash_as_their_text(values: list[int | None]) -> None:
    text = [None if v is None else str(v) for v in values]
    expected = rows_of(pa.array(text, pa.string()))
    assert rows_of(pa.array(values, pa.int64())) == expected
    assert rows_of(pa.array(text, pa.large_string())) == expected
    assert rows_of(pa.array(text, pa.string_view())) == expected
    assert rows_of(pa.array(text, pa.string()).dictionary_encode()) == expected
    small = [None if v is None or abs(v) > 2**53 else v for v in values]
    assert rows_of(pa.array([None if v is None else float(v) for v in small], pa.float64())) == rows_of(
        pa.array(small, pa.int64())
    )


def test_stored_form_does_not_count() -> None:
    days = [datetime.date(2013, 1, 1), None]
    assert rows_of(pa.array(days, pa.date32())) == rows_of(pa.array(days, pa.date64()))
    moments = pa.array([1_400_000_000, None], pa.timestamp("s"))
    for unit in ("ms", "us", "ns"):
        assert rows_of(moments.cast(pa.timestamp(unit))) == rows_of(moments)
    prices = [decimal.Decimal("1.5"), decimal.Decimal("100"), None]
    assert rows_of(pa.array(prices, pa.decimal128(9, 2))) == rows_of(pa.array(prices, pa.decimal128(12, 4)))
    assert rows_of(pa.array([2**64 - 1], pa.uint64())) == rows_of(pa.array([str(2**64 - 1)]))
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert len(set(rows_of(pa.array(nans)))) == 1


def test_nested_values_hash_by_content() -> None:
    lists = [[1, 2], [2, 1], [12], [], None, [1, 2]]
    small, large = rows_of(pa.array(lists, pa.list_(pa.int32()))), rows_of(pa.array(lists, pa.large_list(pa.int64())))
    assert small == large
    assert len(set(small)) == 5 and small[0] == small[5]
    structs = pa.array([{"p": 1, "q": None}, {"p": None, "q": 1}, None])
    assert len(set(rows_of(structs))) == 3
    inside = pa.array([[{"p": 1}], [{"p": 2}], [{"p": 1}]])
    assert rows_of(inside)[0] == rows_of(inside)[2] != rows_of(inside)[1]


def test_slices_hash_as_their_rows() -> None:
    table = {
        "a": [1, None, 3, 4],
        "b": ["x", "y", None, "z"],
        "c": [[1], [], None, [2, 3]],
        "d": [True, None, False, True],
    }
    batch = pa.RecordBatch.from_pydict(table)
    assert hash_rows(batch.slice(1, 2)).tolist() == hash_rows(batch).tolist()[1:3]


def test_columns_match_by_name_and_nulls_leave_no_trace() -> None:
    one = pa.RecordBatch.from_pydict({"a": ["1"], "b": ["2"]})
    swapped = pa.RecordBatch.from_pydict({"b": ["2"], "a": ["1"]})
    wider = pa.RecordBatch.from_pydict({"a": ["1"], "b": ["2"], "new": pa.array([None], pa.string())})
    crossed = pa.RecordBatch.from_pydict({"a": ["2"], "b": ["1"]})
    assert hash_rows(one) == hash_rows(swapped) == hash_rows(wider) != hash_rows(crossed)


def test_neighbouring_key_columns_do_not_run_together() -> None:
    pairs = pa.RecordBatch.from_pydict({"user": ["u1", "u11"], "session": ["11", "1"]})
    assert len(set(hash_rows(pairs).tolist())) == 2


USERS = [(f"u{u:02d}", s, (u * 7 + s) % 5) for u in range(40) for s in range(4)] + [("u03", 1, 22 % 5)] * 3


def table(rows: list[tuple[str, int, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([r[0] or None for r in rows]), pa.array([r[1] for r in rows]), pa.array([r[2] for r in rows])],
        names=["user", "session", "rating"],
    )


@pytest.mark.parametrize("keys", [("user",), ("user", "session"), ()])
def test_equal_keys_go_together_in_any_order_and_company(keys: tuple[str, ...]) -> None:
    splitter = Splitter.of({"train": 0.8, "eval": 0.2}, keys=keys)
    mixed = [USERS[(i * 59) % len(USERS)] for i in range(len(USERS))]
    grown = USERS + [(f"u{u:02d}", 9, 1) for u in range(60)]
    homes: dict[object, int] = {}
    for rows in (USERS, mixed, grown):
        for row, split in zip(rows, splitter.assign(table(rows)).split.tolist(), strict=True):
            key = row if not keys else row[: len(keys)]
            assert homes.setdefault(key, split) == split
    assert set(homes.values()) == {0, 1}
    if keys == ("user",):
        assert 24 <= sum(1 for (user,), split in homes.items() if split == 0 and user < "u40") <= 38


def test_rows_without_a_key_go_by_the_whole_row_and_are_counted() -> None:
    rows = [("", n, 1) for n in range(200)] + [("", 0, 1), ("u01", 1, 3)]
    assignment = Splitter.of(HALVES, keys=["user"]).assign(table(rows))
    assert assignment.keyless == 201
    assert set(assignment.split.tolist()) == {0, 1}
    assert assignment.split[0] == assignment.split[200]


def test_key_column_must_be_there() -> None:
    with pytest.raises(SchemaError, match=r"split_by names the column 'usr'.*'user', 'session', 'rating'"):
        Splitter.of(HALVES, keys=["usr"]).assign(table(USERS))


@pytest.mark.parametrize("splits", [{"a": 0.8, "b": 0.1, "c": 0.1}, {"a": 1 / 3, "b": 2 / 3}, {"a": 1.0}])
def test_fractions_hold(splits: dict[str, float]) -> None:
    ids = pa.RecordBatch.from_pydict({"id": range(100_000)})
    shares = np.bincount(Splitter.of(splits).assign(ids).split, minlength=len(splits)) / 100_000
    assert np.allclose(shares, list(splits.values()), atol=0.005)


def test_a_split_of_nothing_gets_nothing() -> None:
    ids = pa.RecordBatch.from_pydict({"id": range(10_000)})
    for order in itertools.permutations([("a", 0.5), ("b", 0.5), ("none", 0.0)]):
        counts = np.bincount(Splitter.of(dict(order)).assign(ids).split, minlength=3)
        assert counts[[name for name, _ in order].index("none")] == 0


def test_a_key_may_be_a_field_of_a_struct() -> None:
    users = pa.array([{"id": 1}, {"id": 2}, None, {"id": 1}])
    nested = pa.RecordBatch.from_pydict({"user": users, "x": pa.array(range(4))})
    plain = pa.RecordBatch.from_pydict({"user.id": pa.array([1, 2, None, 1]), "x": pa.array(range(4))})
    lacking = pa.RecordBatch.from_pydict({"user": pa.array([{"name": "a"}]), "x": pa.array([0])})
    splitter = Splitter.of({"train": 0.5, "eval": 0.5}, keys=["user.id"])
    assert splitter.assign(nested).split[[0, 1, 3]].tolist() == splitter.assign(plain).split[[0, 1, 3]].tolist()
    assert splitter.assign(nested).keyless == splitter.assign(lacking).keyless == 1
    with pytest.raises(SchemaError, match="'user' holds int64 values"):
        splitter.assign(pa.RecordBatch.from_pydict({"user": pa.array([1])}))
