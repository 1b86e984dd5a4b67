"""States of many keys at once against TFT's combiners, one key at a time; vocabularies against a Counter."""

from __future__ import annotations

import heapq
import tempfile
from collections import Counter
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.analyze import sorting, vocabulary
from transforms.analyze.combine import merge_per_key
from transforms.analyze.keyed import KeyedStates
from transforms.analyze.sorting import SortKeys
from transforms.analyze.tft_internals import internals
from transforms.analyze.vocabulary import VocabularyCounts, merge_counts
from transforms.analyze.vocabulary_file import prune, write_vocabulary

EMPTY = (1, b"nothing")


def as_part(batches: list[pa.RecordBatch]) -> pa.ipc.RecordBatchFileReader:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return pa.ipc.open_file(sink.getvalue())


def combiners() -> dict[str, Any]:
    made = internals().combiners
    numpy, moments = made["NumPyCombiner"], made["WeightedMeanAndVarCombiner"]
    return {
        "sum": numpy(np.sum, 0, [np.float32], [()]),
        "max": numpy(np.max, -np.inf, [np.float32, np.float32], [(), ()]),
        "moments": moments(np.float32, output_shape=()),
        "vectors": moments(np.float32, output_shape=(3,)),
        "weighted": moments(np.float32, output_shape=(None,), compute_variance=False, compute_weighted=True),
    }


def make_batch(name: str, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    count = int(rng.integers(0, 6))
    keys = np.array([b"%d" % k for k in rng.choice(8, count, replace=False)], object)

    def numbers(*shape: int) -> np.ndarray:
        return rng.normal(5, 3, (count, *shape)).astype(np.float32)

    rows = rng.integers(0, 4, count)
    if name == "sum":
        return keys, numbers()
    if name == "max":
        return keys, numbers(), numbers()
    if name == "moments":
        with_nan = np.where(rows == 0, np.nan, numbers())
        return keys, rows, with_nan, np.abs(numbers()), np.ones(count)
    if name == "vectors":
        return keys, rows, numbers(3), np.abs(numbers(3)), np.ones(count)
    labels = int(rng.integers(1, 4))
    return keys, rows + 1, numbers(labels).astype(np.float64), np.zeros(count), np.abs(numbers()).astype(np.float64)


def one_by_one(combiner: Any, partitions: list[list[tuple[np.ndarray, ...]]]) -> dict[bytes, Any]:
    parts: dict[bytes, list[Any]] = {}
    for batches in partitions:
        states: dict[bytes, Any] = {}
        for keys, *arrays in batches:
            for row, key in enumerate(keys):
                state = states.get(key, combiner.create_accumulator())
                states[key] = combiner.add_input(state, [array[row] for array in arrays])
        for key, state in states.items():
            parts.setdefault(key, []).append(state)
    merged = {k: combiner.merge_accumulators([combiner.create_accumulator(), *states]) for k, states in parts.items()}
    return {key: combiner.extract_output(state) for key, state in merged.items()}


@pytest.mark.parametrize("name", ["sum", "max", "moments", "vectors", "weighted"])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3), pending=st.integers(0, 9))
def test_all_keys_at_once_are_as_one_by_one(name: str, seed: int, sizes: list[int], pending: int) -> None:
    rng = np.random.default_rng(seed)
    combiner = combiners()[name]
    partitions = [[make_batch(name, rng) for _ in range(size)] for size in sizes]
    parts = []
    for batches in partitions:
        keyed = KeyedStates(combiner)
        for batch in batches:
            keyed.add(batch)
            if pending == 0:
                keyed.items()
        parts.append(as_part(keyed.batches()))
    expected = one_by_one(combiner, partitions)
    actual = dict(merge_per_key(combiner, parts))
    assert actual.keys() == expected.keys()
    for key, outputs in expected.items():
        for left, right in zip(outputs, actual[key], strict=True):
            left, right = np.atleast_1d(left), np.atleast_1d(right)
            assert left.dtype == right.dtype
            width = min(left.shape[0], right.shape[0])  # labels that the key never met are 0, or are not there
            np.testing.assert_array_equal(left[:width], right[:width])
            assert not left[width:].any() and not right[width:].any()


# ---- vocabularies ----------------------------------------------------------------------------------------------------

TOKENS = st.lists(st.lists(st.sampled_from([b"a", b"b", b"ab", b"", b"\xff", b"c" * 40]) | st.binary(), max_size=30))


def write(op: SimpleNamespace, partitions: list[list[list[bytes]]], reserved: list[bytes] | None = None) -> bytes:
    parts = []
    for batches in partitions:
        counts = VocabularyCounts(is_text=True, weighted=False)
        for batch in batches:
            counts.add((np.array([*batch, None], object)[:-1],))
        parts.append(as_part(counts.batches()))
    with tempfile.TemporaryDirectory() as folder:
        merged = merge_counts(parts, f"{folder}/merged/v.arrow", filter_tokens=None)
        assert merged.num_tokens == len({t for p in partitions for b in p for t in b})
        table = prune(op, merged, EMPTY)
        path = write_vocabulary(op, table, reserved=reserved, empty_entry=EMPTY, folder=folder)
        with open(path, "rb") as stream:
            return stream.read()


def operation(**changed: Any) -> SimpleNamespace:
    plain = {
        "vocab_filename": "v",
        "top_k": None,
        "frequency_threshold": 0,
        "informativeness_threshold": float("-inf"),
        "coverage_top_k": None,
        "coverage_frequency_threshold": 0,
        "coverage_informativeness_threshold": float("-inf"),
        "key_fn": None,
        "store_frequency": False,
        "fingerprint_shuffle": False,
        "file_format": "text",
    }
    return SimpleNamespace(**{**plain, **changed})


@settings(max_examples=100, deadline=None)
@given(
    partitions=st.lists(TOKENS, min_size=1, max_size=3),
    top_k=st.none() | st.integers(1, 5),
    threshold=st.integers(0, 3),
    store=st.booleans(),
    reserved=st.none() | st.just([b"a", b"PAD"]),
)
def test_vocabulary_is_that_of_a_counter(
    partitions: list[list[list[bytes]]], top_k: int | None, threshold: int, store: bool, reserved: list[bytes] | None
) -> None:
    counted = Counter(token for batches in partitions for batch in batches for token in batch)
    kept = [(count, token) for token, count in counted.items() if count >= threshold]
    if top_k is not None:
        kept = heapq.nlargest(top_k, kept) or [EMPTY]
    if reserved:
        kept = [entry for entry in kept if entry[1] not in reserved]
    kept = [(-1, token) for token in reserved or ()] + sorted(kept, reverse=True)
    lines = [b"%d %s" % entry if store else entry[1] for entry in kept or [EMPTY]]
    op = operation(top_k=top_k, frequency_threshold=threshold, store_frequency=store)
    assert write(op, partitions, reserved) == b"".join(line + b"\n" for line in lines)


# ---- sorting ---------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    tables=st.lists(st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=3)), max_size=30), max_size=4),
    direction=st.sampled_from(["ascending", "descending"]),
    size=st.sampled_from([0, 50, 200, 10**6]),
)
def test_rows_are_sorted_in_ranges(
    tables: list[list[tuple[int, bytes]]], direction: Literal["ascending", "descending"], size: int
) -> None:
    rows = [row for table in tables for row in table]
    made = [
        pa.table(
            {"metric": pa.array([m for m, _ in t], pa.int64()), "token": pa.array([x for _, x in t], pa.large_binary())}
        )
        for t in tables
    ]
    keys: SortKeys = [("metric", direction), ("token", direction)]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(sorting, "SORT_BYTES", max(size, 1))
        found = list(sorting.in_order(iter(made), keys, num_rows=len(rows), path=f"{folder}/ranges"))
    assert [(r["metric"], r["token"]) for t in found for r in t.to_pylist()] == sorted(
        rows, reverse=direction == "descending"
    )


@pytest.mark.parametrize("shuffled", [False, True])
def test_large_vocabularies_are_sorted_in_ranges_of_one_size(shuffled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [[b"%d" % (i % n) for i in range(20_000)] for n in (10, 5_000, 20_000)]
    op = operation(fingerprint_shuffle=shuffled, frequency_threshold=2)
    expected = write(op, [batches])
    sizes = []
    monkeypatch.setattr(sorting, "SORT_BYTES", 1 << 14)
    sort = sorting._sorted
    monkeypatch.setattr(sorting, "_sorted", lambda table, keys: (sizes.append(table.nbytes), sort(table, keys))[1])
    assert write(op, [batches]) == expected
    assert len(sizes) > 5 and max(sizes) < 3 * (1 << 14)


@pytest.mark.parametrize("weighted", [False, True])
def test_many_tokens_are_summed_up_in_buckets(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same states, to the last bit, as when all are summed up together."""

    def made() -> list[pa.RecordBatch]:
        counts = VocabularyCounts(is_text=True, weighted=weighted)
        rng = np.random.default_rng(0)
        for _ in range(40):
            tokens = np.array([b"%d" % n for n in rng.geometric(0.003, 500)] + [None], object)[:-1]
            counts.add((tokens, rng.random(500)))
        return counts.batches()

    monkeypatch.setattr(vocabulary, "PENDING_ROWS", 700)
    together = made()
    monkeypatch.setattr(vocabulary, "MANY_TOKENS", 300)
    for left, right in zip(together, made(), strict=True):
        assert left.sort_by("token").equals(right.sort_by("token"))
