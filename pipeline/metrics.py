"""The last build of an output as metrics in Prometheus' text format, for node_exporter's textfile collector."""

from __future__ import annotations

import logging
import os
import time

from pipeline.result import BuildResult

_PREFIX = "recordmill_build_"

log = logging.getLogger("recordmill")


def write_metrics(path: str, *, name: str, result: BuildResult | None) -> None:
    """Writes the file whole or not at all.  ``name``: of the config; ``result``: None for a build that failed.

    A failure keeps the metrics of the last success, with ``recordmill_build_success`` 0.  Where the file cannot be
    written, that is a warning: what was built is published.
    """
    gauges = _Gauges(name)
    success = "1 when the last build published a version or found it up to date."
    gauges.set("success", success, float(result is not None))
    gauges.set("last_run_timestamp_seconds", "When the last build ended.", time.time())
    if result is not None:
        _fill(gauges, result)
    elif os.path.exists(path):
        _keep(gauges, path)
    try:
        gauges.write(path)
    except OSError as error:
        log.warning("%s: the metrics were not written: %s", path, error.strerror or error)


class _Gauges:
    def __init__(self, name: str) -> None:
        from prometheus_client import CollectorRegistry, Gauge

        self._name = name
        self._registry = CollectorRegistry()
        self.gauges: dict[str, Gauge] = {}

    def set(self, metric: str, what: str, value: float, **labels: str) -> None:
        from prometheus_client import Gauge

        if metric not in self.gauges:
            self.gauges[metric] = Gauge(_PREFIX + metric, what, ["name", *labels], registry=self._registry)
        self.gauges[metric].labels(self._name, *labels.values()).set(value)

    def write(self, path: str) -> None:
        from prometheus_client import write_to_textfile

        write_to_textfile(path, self._registry)


def _fill(gauges: _Gauges, result: BuildResult) -> None:
    gauges.set("last_success_timestamp_seconds", "When the last build that succeeded ended.", time.time())
    gauges.set("seconds", "How long the build took.", result.seconds)
    gauges.set("up_to_date", "1 when there was nothing to do.", float(result.up_to_date))
    rows = {"read": result.rows_read, "bad": result.bad_rows, "dropped": result.dropped_rows}
    for kind, number in (rows | {"removed": result.removed_rows}).items():
        gauges.set("rows", "Rows of the version, by what became of them.", number, kind=kind)
    for split, found in result.splits.items():
        gauges.set("split_rows", "Rows of each split.", found.rows, split=split)
        gauges.set("split_bytes", "Stored bytes of each split.", found.num_bytes, split=split)
        gauges.set("split_shards", "Shards of each split.", found.shards, split=split)
    for kind, number in {"built": result.built_partitions, "reused": result.reused_partitions}.items():
        gauges.set("partitions", "Partitions that were built, and those that the cache had.", number, kind=kind)
    for step, seconds in result.steps.items():
        gauges.set("step_seconds", "How long each phase took.", seconds, step=step)
    gauges.set("moved_features", "Features that moved further than they may.", len(result.moves))


def _keep(gauges: _Gauges, path: str) -> None:
    """The samples of the file as it is, besides those that are known anew."""
    from prometheus_client.parser import text_string_to_metric_families

    known = set(gauges.gauges)
    with open(path, encoding="utf-8") as stream:
        for family in text_string_to_metric_families(stream.read()):
            metric = family.name.removeprefix(_PREFIX)
            if family.name.startswith(_PREFIX) and metric not in known:
                for sample in family.samples:
                    labels = {key: value for key, value in sample.labels.items() if key != "name"}
                    gauges.set(metric, family.documentation, sample.value, **labels)
