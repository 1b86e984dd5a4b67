"""Vocabularies ordered by mutual information with a label.

The formulas are TFT's (``_calculate_mutual_information_for_feature_value`` and ``info_theory``), for all tokens at once
and with the same result to the last bit: logarithms are Arrow's, which are those of the C library as in Python's
``math``; numpy has its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.analyze.keyed import Arrays, KeyedStates, Values, merge_keyed
from transforms.analyze.tft_internals import internals
from transforms.analyze.vocabulary import BUCKETS, MergedVocabulary, bucket_of, parts, write_merged
from transforms.errors import SchemaError, shorten

MIN_SHARE = 1e-6  # a token's share of a label is at least this, and at most 1 less this


def means_combiner(*, weighted: bool) -> Any:
    """TFT's combiner of what is known of a token: its rows, their weight, and the mean of each label."""
    return internals().combiners["WeightedMeanAndVarCombiner"](
        np.float32, output_shape=(None,), compute_variance=False, compute_weighted=weighted
    )


class LabelCounts(KeyedStates):
    """How often each token meets each label; one key stands for all rows."""

    def __init__(self, *, weighted: bool) -> None:
        super().__init__(means_combiner(weighted=weighted))

    def add(self, values: Values) -> None:
        """``values``: the tokens of a batch, the sum of their weights where they have weights, the sums by label
        (tokens x labels), and their counts."""
        tokens, *weights, by_label, counts = values
        by_label = by_label.astype(np.float64)
        total = (weights[0] if weights else counts).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            states = (counts, by_label / total[:, None], np.zeros(len(counts)), total / counts)
        super().add((tokens, *states))

    def batches(self) -> list[pa.RecordBatch]:
        """One batch for each bucket of tokens."""
        (batch,) = super().batches()
        return parts(batch, bucket_of(batch.column("key")), BUCKETS)


def merge_label_counts(
    operation: Any, states: Sequence[pa.ipc.RecordBatchFileReader], path: str, *, weighted: bool, is_text: bool
) -> MergedVocabulary:
    """The mutual information of each token (``VocabularyMerge``), bucket by bucket."""
    tft, combiner = internals(), means_combiner(weighted=weighted)
    kind = pa.large_binary() if is_text else pa.int64()
    all_rows_key = pa.array([tft.all_rows_keys[0 if is_text else 1]], kind)

    def merged(number: int) -> tuple[pa.Array, Arrays]:
        tokens, arrays = merge_keyed(combiner, (state.get_batch(number) for state in states))
        return tokens if len(tokens) else pa.array([], kind), arrays

    def with_information(number: int, all_rows: Any, threshold: float) -> pa.Table:
        tokens, arrays = merged(number)
        is_token = pc.invert(pc.is_in(tokens, value_set=all_rows_key))
        tokens, arrays = tokens.filter(is_token), [a[is_token.to_numpy(zero_copy_only=False)] for a in arrays]
        metric = frequency = np.zeros(0)
        if len(tokens):
            adjusted = operation.use_adjusted_mutual_info
            metric, frequency = information(tokens, arrays, all_rows, adjusted=adjusted, threshold=threshold)
        return pa.table({"token": tokens, "metric": metric, "frequency": frequency})

    tokens, arrays = merged(int(bucket_of(all_rows_key)[0]))
    at, all_rows, threshold = pc.index(tokens, all_rows_key[0]).as_py(), None, operation.min_diff_from_avg
    if at >= 0:  # there are rows
        all_rows = combiner.extract_output(combiner.accumulator_class(*(array[at] for array in arrays)))
        threshold = tft.default_min_diff(all_rows.count * all_rows.weight) if threshold is None else threshold
    return write_merged((with_information(number, all_rows, threshold) for number in range(BUCKETS)), path)


def information(
    tokens: pa.Array, arrays: Arrays, all_rows: Any, *, adjusted: bool, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """The mutual information of each token with the label, and the weight of its rows (float64).

    ``arrays``: rows, shares of the labels (tokens x labels), an unused one, and mean weights.  ``all_rows``: these of
    all rows together, as the combiner gives them.  What lies nearer than ``threshold`` to the average counts as 0.
    ``adjusted``: less what chance alone would give.  Raises SchemaError for a token that is more frequent than rows.
    """
    rows, weight = arrays[0].astype(np.int64), arrays[3].astype(np.float32)
    shares = arrays[1].astype(np.float32)
    n = float(all_rows.count * all_rows.weight)
    if n == 0:
        return np.full(len(tokens), np.nan), np.zeros(len(tokens))
    x = rows * weight
    is_whole = np.round(x) == np.round(n)  # no information in what is always there
    if (np.round(x) > np.round(n)).any():
        at = int(np.argmax(x))
        raise SchemaError(
            f"tft.vocabulary with labels: the token {shorten(tokens[at].as_py())} has a weight of {x[at]:g} in rows "
            f"of {n:g}: a token may stand once in a row, and each row needs a label of 0 or more"
        )
    result, expected = np.zeros(len(tokens)), np.zeros(len(tokens))
    log_x, log_n = _log2(x), math.log2(n)
    for label, y in enumerate((all_rows.mean * all_rows.weight * all_rows.count).tolist()):
        if y == 0:
            continue
        share: np.ndarray = shares[:, label] if label < shares.shape[1] else np.zeros(len(tokens))
        both = np.clip(share, MIN_SHARE, 1 - MIN_SHARE) * weight * rows
        counts = ~(np.abs(x * y / n - both) < threshold) & ~is_whole
        with np.errstate(invalid="ignore"):
            partial = both * ((_log2(both) + log_n) - (log_x + math.log2(y)))
        result += np.where(counts & (both != 0) & (x != 0), partial, 0)
        if adjusted:
            sizes, which = np.unique(x[counts], return_inverse=True)
            expected[counts] += np.array([information_by_chance(n, size, y) for size in sizes.tolist()])[which]
    return result - expected, x


def information_by_chance(n: float, x: float, y: float) -> float:
    """What a token of weight ``x`` and a label of weight ``y`` share in ``n`` when one does not depend on the other:
    the mean over the hypergeometric distribution of how often they meet."""
    if x == 0 or y == 0:
        return 0.0
    first, last = round(max(0.0, x + y - n)), round(min(x, y))
    meet = np.arange(first, last + 1, dtype=np.float64)
    numerator = sum(math.lgamma(value + 1) for value in (x, y, n - x, n - y))
    denominator = sum(math.lgamma(value + 1) for value in (n, first, x - first, y - first, n - x - y + first))
    before = meet[:-1]
    steps = _log(before + 1) - _log(x - before) - _log(y - before) + _log(n - x - y + before + 1)
    # cumsum adds one after the other, as TFT does; sum would not
    chance = pc.exp(pa.array(numerator - np.cumsum(np.append(denominator, steps)))).to_numpy()
    met = meet != 0
    terms = meet[met] * (-math.log2(x) - math.log2(y) + math.log2(n) + _log2(meet[met])) * chance[met]
    return float(np.cumsum(np.append(0.0, terms))[-1] / np.cumsum(chance)[-1])


def _log(values: np.ndarray) -> np.ndarray:
    return np.asarray(pc.ln(pa.array(values)).to_numpy())


def _log2(values: np.ndarray) -> np.ndarray:
    return np.asarray(pc.log2(pa.array(values)).to_numpy())
