"""Vocabularies ordered by mutual information with a label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.analyze.combine import states_of
from transforms.analyze.keyed import KeyedStates, Values, merge_keyed
from transforms.analyze.tft_internals import internals
from transforms.analyze.vocabulary import MergedVocabulary, write_merged


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


def merge_label_counts(
    operation: Any, parts: Iterable[pa.ipc.RecordBatchFileReader], path: str, *, weighted: bool, is_text: bool
) -> MergedVocabulary:
    """The mutual information of each token, by TFT's own formula (``VocabularyMerge``)."""
    tft, combiner = internals(), means_combiner(weighted=weighted)
    by_token = {
        token: combiner.extract_output(state) for token, state in states_of(combiner, *merge_keyed(combiner, parts))
    }
    all_rows = [by_token.pop(key) for key in tft.all_rows_keys if key in by_token]
    rows: list[tuple[Any, float, float]] = []
    if all_rows:
        threshold = operation.min_diff_from_avg
        if threshold is None:
            threshold = tft.default_min_diff(all_rows[0].count * all_rows[0].weight)
        for pair in by_token.items():
            token, (metric, _, frequency) = tft.mutual_information(
                pair, all_rows[0], operation.use_adjusted_mutual_info, threshold
            )
            rows.append((token, float(metric), float(frequency)))
    schema = pa.schema(
        [("token", pa.large_binary() if is_text else pa.int64()), ("metric", pa.float64()), ("frequency", pa.float64())]
    )
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    return write_merged([table], schema, path)
