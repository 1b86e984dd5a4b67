"""A build as a trace of OpenTelemetry: a span for it, one for each stage, and one for each task.

Sent where ``OTEL_EXPORTER_OTLP_ENDPOINT`` says, if the extra ``otel`` is installed.
Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from pipeline.result import BuildResult

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
MOST_TASKS = 10_000  # that become spans: the longest

log = logging.getLogger("recordmill")


def send_spans(name: str, result: BuildResult) -> None:
    """Sends what happened to the collector, if one is named in the environment; a failure is a warning.

    ``name``: of the config.
    """
    if not os.environ.get(ENDPOINT):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        log.warning("%s is set, and the package for it is not there: pip install 'recordmill[otel]'", ENDPOINT)
        return
    make_spans(name, result, OTLPSpanExporter())


def make_spans(name: str, result: BuildResult, exporter: Any) -> None:
    """Gives the spans of the build, which ends now, to an exporter, and waits until it has them."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import set_span_in_context

    provider = TracerProvider(resource=Resource.create({"service.name": "recordmill"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=2 * MOST_TASKS))
    tracer = provider.get_tracer("recordmill")

    def span(title: str, begin: float, seconds: float, attributes: Mapping[str, Any], parent: Any = None) -> Any:
        context = set_span_in_context(parent) if parent is not None else None
        made = tracer.start_span(title, context, start_time=round(begin * 1e9), attributes=attributes)
        made.end(round((begin + seconds) * 1e9))
        return made

    about = {
        "recordmill.name": name,
        "recordmill.version": result.version,
        "recordmill.rows_read": result.rows_read,
        "recordmill.bad_rows": result.bad_rows,
        "recordmill.bytes": result.num_bytes,
    }
    build = span("build", time.time() - result.seconds, result.seconds, about)
    longest = sorted(result.tasks, key=lambda task: -task.seconds)[:MOST_TASKS]
    for stage in result.stages:
        begin = min(task.begin for task in result.tasks if task.stage == stage.stage)
        counts = {"recordmill.tasks": stage.tasks, "recordmill.bytes": stage.num_bytes}
        of_stage = span(stage.stage, begin, stage.seconds, counts, build)
        for task in (task for task in longest if task.stage == stage.stage):
            steps = {f"recordmill.seconds.{path}": wall for path, (wall, _) in task.steps.items()}
            span(task.task, task.begin, task.seconds, {"recordmill.worker": task.worker} | steps, of_stage)
    provider.shutdown()
