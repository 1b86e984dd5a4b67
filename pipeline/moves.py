"""Features that moved further than they may, since the version before or from split to split (``on_data_drift``).

How far a feature may move stands in the schema, as TFDV reads it: ``drift_comparator`` for versions and
``skew_comparator`` for splits, with ``jensen_shannon_divergence`` for numbers and ``infinity_norm`` for text.  For the
others it stands in the config.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.compare import distances
from pipeline.config import Config
from pipeline.drift import DRIFT_THRESHOLD
from transforms.errors import BuildError
from transforms.schema import Schema

log = logging.getLogger("recordmill")

_MEASURES = {"Jensen-Shannon": "jensen_shannon_divergence", "L-infinity": "infinity_norm"}


@dataclass(frozen=True)
class Move:
    """``value``: by the ``measure`` (``compare.Distance``) from what the feature is in ``against``, a version or a
    split; more than the ``limit``."""

    split: str
    feature: str
    measure: str
    value: float
    limit: float
    against: str

    def __str__(self) -> str:
        return (
            f"`{self.feature}` of {self.split} moved by {self.value:.3g} ({self.measure}) from {self.against}, "
            f"more than {self.limit:.3g}"
        )


def find_moves(config: Config, schema: Schema, now: Any, before: Any | None, *, version: str | None) -> list[Move]:
    """The furthest first.  ``now``, ``before``: DatasetFeatureStatisticsList of this version and of ``version``."""
    drift, skew = _limits(schema, "drift_comparator"), _limits(schema, "skew_comparator")
    others = (config.drift_threshold or DRIFT_THRESHOLD) if config.on_data_drift else None
    earlier = {dataset.name: dataset for dataset in before.datasets} if before is not None else {}
    found: list[Move] = []
    for dataset in now.datasets:
        if dataset.name in earlier:
            found += _beyond(earlier[dataset.name], dataset, drift, others, against=f"version {version}")
        if dataset is not now.datasets[0]:
            found += _beyond(now.datasets[0], dataset, skew, config.skew_threshold, against=now.datasets[0].name)
    return sorted(found, key=lambda move: -move.value)


def check_moves(config: Config, moves: Sequence[Move]) -> None:
    """Says what moved as warnings or, with ``on_data_drift: fail``, in one BuildError."""
    if moves and config.on_data_drift == "fail":
        lines = "".join(f"\n  {move}" for move in moves)
        raise BuildError(
            f"the data moved further than it may, and on_data_drift is fail, so nothing was published; if it is right, "
            f"build with --set on_data_drift=warn:{lines}"
        )
    for move in moves:
        log.warning("%s", move)


def _beyond(
    old: Any, new: Any, limits: Mapping[tuple[str, str], float], others: float | None, *, against: str
) -> Iterator[Move]:
    for found in distances(old, new):
        limit = limits.get((found.feature, found.measure), others)
        if limit is not None and found.value > limit:
            yield Move(new.name, found.feature, found.measure, found.value, limit, against)


def _limits(schema: Schema, comparator: str) -> dict[tuple[str, str], float]:
    """By feature and measure, what the schema says."""
    return {
        (feature.name, measure): getattr(getattr(feature, comparator), field).threshold
        for feature in schema.to_proto().feature
        for measure, field in _MEASURES.items()
        if feature.HasField(comparator) and getattr(feature, comparator).HasField(field)
    }
