"""How far the data has moved since it was last analyzed (``preprocess_refresh: on_drift``)."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping, Sequence

from pipeline.config import Config
from pipeline.layout import Layout, Manifest
from pipeline.plan import Cache, remove_damaged
from pipeline.stages import Task, Workers, run_stage
from transforms.files import read_checked
from transforms.fingerprint import digest, file_sha256, library_version
from transforms.histogram import Histograms, add, divergence, from_bytes
from transforms.partition import Partition
from transforms.passes import count_partition
from transforms.rows import RowSpec

ANALYZED = "analyzed.arrow"  # in a version: the histograms of the data that its transform graph was made from
DRIFT_THRESHOLD = 0.1  # where neither schema nor config tells another
HISTOGRAM_FORMAT = 1  # raised when the same rows give other histograms

log = logging.getLogger("recordmill")


def histograms(
    config: Config, rows: RowSpec, partitions: Sequence[Partition], *, cache: Cache, workers: Workers, work_dir: str
) -> Histograms:
    """Those of all features in the analyzed split; each partition is read once."""
    tasks = histogram_tasks(config, rows, partitions, cache)
    remove_damaged((task.output for task in tasks), read_checked)
    function = functools.partial(count_partition, rows=rows, split=config.analyzed_split)
    run_stage("CountValues", function, tasks, workers=workers, work_dir=work_dir)
    return add(from_bytes(read_checked(task.output)) for task in tasks)


def histogram_tasks(config: Config, rows: RowSpec, partitions: Sequence[Partition], cache: Cache) -> list[Task]:
    """What makes the histograms of each partition."""
    form = [HISTOGRAM_FORMAT, rows.key(), config.analyzed_split, library_version("pyarrow"), library_version("numpy")]
    return [
        Task(p, cache.path("histograms", digest([p.fingerprint, *form]), ".arrow"), p.name, p.num_bytes)
        for p in partitions
    ]


def analyzed_histograms(layout: Layout, latest: Manifest) -> Histograms | None:
    """Of the data that the version's transform graph was made from; None when it has none, or they are damaged."""
    path = os.path.join(layout.version_dir(latest.version), ANALYZED)
    if ANALYZED not in latest.files or not os.path.exists(path):
        log.info("version %s does not tell what was analyzed: the data is analyzed again", latest.version)
        return None
    if file_sha256(path) != latest.files[ANALYZED]:
        log.warning("%s is not as it was published: the data is analyzed again", path)
        return None
    with open(path, "rb") as stream:
        return from_bytes(stream.read())


def drifted(config: Config, rows: RowSpec, old: Histograms, new: Histograms) -> Mapping[str, tuple[float, float]]:
    """The features that moved further than they may: how far, and how far they may, the furthest first.

    In bits of Jensen–Shannon divergence.  A feature's own threshold stands in the schema, as its ``drift_comparator``;
    the others have the config's ``drift_threshold``.
    """
    own = {
        feature.name: feature.drift_comparator.jensen_shannon_divergence.threshold
        for feature in rows.schema.to_proto().feature
        if feature.drift_comparator.HasField("jensen_shannon_divergence")
    }
    moved = {name: divergence(old.get(name, {}), counts) for name, counts in new.items()}
    limits = {name: own.get(name, config.drift_threshold or DRIFT_THRESHOLD) for name in moved}
    if moved:
        name = max(moved, key=lambda name: moved[name])
        log.info("drift since the last analysis: %.4g at most (%s)", moved[name], name)
    ordered = sorted(moved, key=lambda name: -moved[name])
    return {name: (moved[name], limits[name]) for name in ordered if moved[name] > limits[name]}
