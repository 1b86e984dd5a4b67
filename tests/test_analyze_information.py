"""Mutual information of all tokens at once against TFT's own formula, one token at a time, to eleven digits."""

from __future__ import annotations

import math
import tempfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_transform.beam.analyzer_impls import _calculate_mutual_information_for_feature_value as one_token
from tensorflow_transform.info_theory import calculate_partial_expected_mutual_information as expected_by_chance

from transforms.analyze.mutual_information import (
    LabelCounts,
    information_by_chance,
    means_combiner,
    merge_label_counts,
)
from transforms.analyze.tft_internals import internals
from transforms.errors import SchemaError


def as_part(batches: list[pa.RecordBatch]) -> pa.ipc.RecordBatchFileReader:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return pa.ipc.open_file(sink.getvalue())


def counted(tokens: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, is_text: bool) -> list[np.ndarray]:
    """What TFT's graph makes of a batch: distinct tokens, with weights, their sums by label, and counts."""
    sentinel = internals().all_rows_keys[0 if is_text else 1]
    number = np.ones(len(tokens)) if weights is None else weights
    by_label = np.zeros((len(tokens), labels.max() + 1), np.float32)
    by_label[np.arange(len(tokens)), labels] = number
    keys = sorted(set(tokens.tolist()))
    rows = [tokens == key for key in keys] + [np.ones(len(tokens), bool)]
    everything = np.array([*keys, sentinel, None], object)[:-1]
    made = [everything if is_text else everything.astype(np.int64)]
    if weights is not None:
        made.append(np.array([number[r].sum() for r in rows], np.float32))
    return [*made, np.array([by_label[r].sum(0) for r in rows]), np.array([r.sum() for r in rows], np.int64)]


def one_by_one(
    batches: list[list[np.ndarray]], *, weighted: bool, adjusted: bool, least: float | None
) -> dict[Any, tuple[float, float]]:
    combiner = means_combiner(weighted=weighted)
    states: dict[Any, Any] = {}
    for tokens, *sums, by_label, counts in batches:
        total = (sums[0] if sums else counts).astype(np.float64)
        width = by_label.shape[1]
        for row, token in enumerate(tokens):
            new = (
                counts[row],
                by_label[row].astype(np.float64) / total[row],
                np.zeros(width),
                total[row] / counts[row],
            )
            states[token] = combiner.add_input(states.get(token, combiner.create_accumulator()), new)
    outputs = {token: combiner.extract_output(state) for token, state in states.items()}
    (all_rows,) = (outputs.pop(key) for key in internals().all_rows_keys if key in outputs)
    if least is None:
        least = internals().default_min_diff(all_rows.count * all_rows.weight)
    found = {}
    for token, state in outputs.items():
        if len(state.mean) < len(all_rows.mean):  # as when it was merged with a batch that knew all labels
            state = state._replace(mean=np.pad(state.mean, (0, len(all_rows.mean) - len(state.mean))))
        _, (metric, _, frequency) = one_token((token, state), all_rows, adjusted, least)
        found[token] = (float(metric), float(frequency))
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    is_text=st.booleans(),
    weighted=st.booleans(),
    adjusted=st.booleans(),
    least=st.sampled_from([None, 0.0, 1.0]),
)
def test_all_tokens_at_once_are_as_one_by_one(
    seed: int, sizes: list[int], is_text: bool, weighted: bool, adjusted: bool, least: float | None
) -> None:
    rng = np.random.default_rng(seed)
    batches = []
    for size in sizes:
        numbers = rng.geometric(0.2, size)
        tokens = np.array([b"t%d" % n for n in numbers] + [None], object)[:-1] if is_text else numbers
        weights = rng.random(size).astype(np.float32) * 5 if weighted else None
        batches.append(counted(tokens, rng.integers(0, 3, size), weights, is_text))
    parts = []
    for batch in batches:
        counts = LabelCounts(weighted=weighted)
        counts.add(tuple(batch))
        parts.append(as_part(counts.batches()))
    expected = one_by_one(batches, weighted=weighted, adjusted=adjusted, least=least)
    found = merge(parts, weighted=weighted, is_text=is_text, adjusted=adjusted, least=least)
    assert found.keys() == expected.keys()
    for token, values in expected.items():
        # numpy's logarithm of many numbers may differ in the last bit from that of one, and the sum cancels.
        np.testing.assert_allclose(found[token], values, rtol=1e-11, atol=1e-11, err_msg=repr(token))


def merge(
    parts: list[pa.ipc.RecordBatchFileReader],
    *,
    weighted: bool = False,
    is_text: bool = True,
    adjusted: bool = False,
    least: float | None = 0.0,
) -> dict[Any, tuple[float, float]]:
    operation = SimpleNamespace(use_adjusted_mutual_info=adjusted, min_diff_from_avg=least)
    with tempfile.TemporaryDirectory() as folder:
        merged = merge_label_counts(operation, parts, f"{folder}/v.arrow", weighted=weighted, is_text=is_text)
        rows = [row for bucket in merged.buckets() for row in bucket.to_pylist()]
    assert len(rows) == merged.num_tokens
    return {row["token"]: (row["metric"], row["frequency"]) for row in rows}


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 3000), x=st.floats(0, 1), y=st.floats(0, 1), whole=st.booleans())
def test_information_by_chance_is_that_of_tft(n: int, x: float, y: float, whole: bool) -> None:
    one, other = (float(round(x * n)), float(round(y * n))) if whole else (x * n, y * n)
    try:
        expected = expected_by_chance(n, one, other)
    except (ValueError, ZeroDivisionError):  # weights so small that TFT's own formula has no value
        return
    assert information_by_chance(float(n), one, other) == expected or math.isnan(expected)


def test_no_rows_make_no_tokens() -> None:
    assert merge([as_part(LabelCounts(weighted=False).batches())]) == {}


def test_a_token_that_stands_twice_in_a_row_is_named() -> None:
    tokens = np.array([b"twice", internals().all_rows_keys[0], None], object)[:-1]
    counts = LabelCounts(weighted=False)
    counts.add((tokens, np.array([[4.0, 4.0], [2.0, 2.0]], np.float32), np.array([8, 4])))
    with pytest.raises(SchemaError, match="token b'twice' has a weight of 8 in rows of 4"):
        merge([as_part(counts.batches())])
