"""What each build did, as event files that TensorBoard shows: ``tensorboard --logdir DIR/logs``.

A step is a build.  Rates and times of its stages, the seconds of its workers by step, what the cache had, sizes and bad
rows, and of each feature its histogram and how far it moved since the version before.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

from pipeline.compare import distances
from pipeline.layout import Layout
from pipeline.result import BuildResult
from pipeline.statistics import statistics_of
from pipeline.times import by_step

FOLDER = "logs"

_PREFIX = "events.out.tfevents."

log = logging.getLogger("recordmill")


def note_events(layout: Layout, result: BuildResult, *, before: str | None) -> None:
    """``write_events``; a build that is published is not undone because its events cannot be written."""
    try:
        write_events(layout, result, before)
    except OSError as error:
        log.warning("%s: the events of the build were not written: %s", layout.dir, error.strerror or error)


def write_events(layout: Layout, result: BuildResult, before: str | None) -> str:
    """Writes the events of a build that published a version, beside those of earlier builds; returns the folder.

    ``before``: the version that was the latest until then.  Raises OSError where they cannot be written.
    """
    from tensorboardX import SummaryWriter

    folder = os.path.join(layout.dir, FOLDER)
    os.makedirs(folder, exist_ok=True)
    step = 1 + sum(name.startswith(_PREFIX) for name in os.listdir(folder))
    now = statistics_of(layout, result.version)
    with SummaryWriter(folder, filename_suffix=f".{result.version}") as writer:
        for tag, value in _scalars(result):
            writer.add_scalar(tag, value, step)
        for dataset in now.datasets if now is not None else ():
            for feature in dataset.features:
                _write_feature(writer, feature, f"{dataset.name}/{feature.path.step[0]}", dataset.num_examples, step)
        old = statistics_of(layout, before) if before is not None else None
        for tag, value in _drift(old, now):
            writer.add_scalar(tag, value, step)
        if result.reasons:
            writer.add_text("build/because", "\n\n".join(result.reasons), step, walltime=time.time())
    return folder


def _scalars(result: BuildResult) -> Iterator[tuple[str, float]]:
    written = sum(split.rows for split in result.splits.values())
    yield "build/seconds", result.seconds
    yield "build/rows_per_second", result.rows_per_second
    yield "build/cache_hits", result.reused_partitions / max(1, result.reused_partitions + result.built_partitions)
    yield "rows/read", result.rows_read
    yield "rows/written", written
    yield "rows/bad", result.bad_rows
    yield "rows/dropped", result.dropped_rows
    yield "rows/removed", result.removed_rows
    for name, split in result.splits.items():
        yield f"size/{name}", split.num_bytes
    for phase, seconds in result.steps.items():
        yield f"phase_seconds/{phase}", seconds
    for stage in result.stages:
        if stage.seconds:
            yield f"megabytes_per_second/{stage.stage}", stage.num_bytes / stage.seconds / 1e6
            yield f"workers_waiting/{stage.stage}", max(0.0, 1 - stage.busy / (stage.seconds * stage.workers))
    for step, seconds in by_step(result.stages).items():
        yield f"worker_seconds/{step}", seconds


def _drift(old: Any | None, now: Any | None) -> Iterator[tuple[str, float]]:
    earlier = {dataset.name: dataset for dataset in old.datasets} if old is not None else {}
    for dataset in now.datasets if now is not None else ():
        if dataset.name in earlier:
            for found in distances(earlier[dataset.name], dataset):
                yield f"drift_{dataset.name}/{found.feature}", found.value


def _write_feature(writer: Any, feature: Any, name: str, rows: int, step: int) -> None:
    """``rows``: of the split."""
    stats = getattr(feature, feature.WhichOneof("stats"))
    if rows:
        writer.add_scalar(f"missing_{name}", stats.common_stats.num_missing / rows, step)
    if not feature.HasField("num_stats"):
        writer.add_scalar(f"unique_{name}", stats.unique, step)
        return
    for histogram in stats.histograms:
        if histogram.type == histogram.STANDARD and histogram.buckets:
            count = sum(bucket.sample_count for bucket in histogram.buckets)
            writer.add_histogram_raw(
                name,
                min=stats.min,
                max=stats.max,
                num=count,
                sum=stats.mean * count,
                sum_squares=(stats.std_dev**2 + stats.mean**2) * count,
                bucket_limits=[bucket.high_value for bucket in histogram.buckets],
                bucket_counts=[bucket.sample_count for bucket in histogram.buckets],
                global_step=step,
            )
