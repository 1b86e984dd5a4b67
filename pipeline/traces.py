"""The times of a build's tasks as files that viewers show: a trace of the workers, and a flame graph of the steps."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from pipeline.result import BuildResult
from pipeline.times import TaskTime
from transforms.files import write_committed

FOLDER = "profiles"
TRACE = "trace.json"
FLAMES = "steps.speedscope.json"


def write_traces(result: BuildResult, directory: str) -> list[str]:
    """Writes TRACE and FLAMES of the build below its output folder, and returns their paths."""
    folder = os.path.join(directory, FOLDER, result.version)
    os.makedirs(folder, exist_ok=True)
    content = {TRACE: to_trace(result.tasks), FLAMES: to_speedscope(result)}
    for name, found in content.items():
        write_committed(os.path.join(folder, name), json.dumps(found, ensure_ascii=False))
    return [os.path.join(folder, name) for name in content]


def to_trace(tasks: Sequence[TaskTime]) -> dict[str, Any]:
    """Each task where it ran: a line for each thread of each process.

    Format: "Trace Event Format" of Chromium, which chrome://tracing and https://ui.perfetto.dev show.
    """
    start = min((task.begin for task in tasks), default=0.0)
    processes: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for task in tasks:
        host, process, thread = task.worker.rsplit(" ", 2)
        name = f"{host} {process}"
        if name not in processes:
            processes[name] = len(processes) + 1
            events.append({"ph": "M", "name": "process_name", "pid": processes[name], "args": {"name": name}})
        events.append(
            {
                "ph": "X",
                "cat": task.stage,
                "name": f"{task.stage} {task.task}",
                "pid": processes[name],
                "tid": int(thread) % (1 << 31),
                "ts": round((task.begin - start) * 1e6),
                "dur": round(task.seconds * 1e6),
                "args": {"bytes": task.num_bytes} | {path: f"{wall:.3f} s" for path, (wall, _) in task.steps.items()},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def to_speedscope(result: BuildResult) -> dict[str, Any]:
    """Seconds of the workers by stage and step.

    Format: https://www.speedscope.app/file-format-schema.json
    """
    frames: dict[str, int] = {}
    samples, weights = [], []
    for stage in result.stages:
        for path, seconds in stage.steps.items():
            stack = [stage.stage, *path.split("/")]
            samples.append([frames.setdefault(name, len(frames)) for name in stack])
            weights.append(round(seconds, 6))
    profile = {
        "type": "sampled",
        "name": f"version {result.version}",
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [profile],
        "exporter": "recordmill",
    }
