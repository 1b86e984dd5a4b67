"""How far two sets of statistics are from each other: versions (drift) or splits (skew), feature by feature.

Numbers: the Jensen-Shannon divergence (Lin 1991, in bits) of their histograms, laid over the edges of both, in which a
bucket's values are spread evenly.  Text: the largest difference of a value's share (L-infinity), of the most frequent
ones.  Both are 0 for the same shape and 1 for nothing in common, as TFDV measures them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.histogram import divergence


@dataclass(frozen=True)
class Distance:
    """``measure``: ``Jensen-Shannon`` or ``L-infinity``; ``value``: 0 to 1; ``most``: of text, the value that moved
    the furthest."""

    feature: str
    measure: str
    value: float
    most: str | None = None


def distances(old: Any, new: Any) -> list[Distance]:
    """Of the features that both DatasetFeatureStatistics have, the furthest first."""
    before = {feature.path.step[0]: feature for feature in old.features}
    found: list[Distance] = []
    for feature in new.features:
        name = feature.path.step[0]
        if name in before and before[name].WhichOneof("stats") == feature.WhichOneof("stats"):
            found += _distance(name, before[name], feature)
    return sorted(found, key=lambda distance: (-distance.value, distance.feature))


def _distance(name: str, old: Any, new: Any) -> Sequence[Distance]:
    if new.WhichOneof("stats") == "num_stats":
        p, q = _histogram(old), _histogram(new)
        if p is None or q is None:
            return []
        edges = np.unique(np.concatenate([p[0], q[0]]))
        shares = [dict(enumerate(_laid_over(edges, *histogram))) for histogram in (p, q)]
        return [Distance(name, "Jensen-Shannon", divergence(*shares))]
    if new.WhichOneof("stats") == "string_stats":
        before, after = _shares(old), _shares(new)
        moved = {value: abs(before.get(value, 0.0) - after.get(value, 0.0)) for value in before | after}
        if moved:
            most = max(moved, key=lambda value: (moved[value], value))
            return [Distance(name, "L-infinity", moved[most], most)]
    return []


def _histogram(feature: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Edges and counts of the buckets of equal width."""
    for histogram in feature.num_stats.histograms:
        if histogram.type == histogram.STANDARD and histogram.buckets:
            edges = [histogram.buckets[0].low_value, *(bucket.high_value for bucket in histogram.buckets)]
            return np.array(edges), np.array([bucket.sample_count for bucket in histogram.buckets])
    return None


def _laid_over(edges: np.ndarray, own: np.ndarray, counts: np.ndarray) -> list[float]:
    """The counts at each edge, of a histogram without width, and then those between the edges, of all others."""
    at, between = np.zeros(len(edges)), np.zeros(len(edges) - 1)
    if own[0] == own[-1]:
        at[np.searchsorted(edges, own[0])] = counts.sum()
    else:
        between = np.diff(np.interp(edges, own, np.concatenate([[0.0], np.cumsum(counts)])))
    found: list[float] = np.concatenate([at, between]).tolist()
    return found


def _shares(feature: Any) -> dict[str, float]:
    """Of each of the most frequent values, its part of all."""
    total = feature.string_stats.common_stats.tot_num_values
    return {top.value: top.frequency / total for top in feature.string_stats.top_values} if total else {}
