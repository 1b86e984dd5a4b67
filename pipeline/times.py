"""What each task took and where: lines that the workers leave in the work folder, which the build reads at the end."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from transforms.timing import Stopwatch

FOLDER = "times"
OTHER = "other"  # what is inside of no step

_lock = threading.Lock()  # the threads of a process write into one file


@dataclass(frozen=True)
class TaskTime:
    """``worker``: host, process and thread.  ``begin``: seconds since the epoch.  ``seconds``: by the clock.

    ``steps``: by path (``timing.Stopwatch``), seconds by the clock and of the thread's processor.  ``counts``: ``rows``
    that were read, ``bad rows``, ``bytes out``."""

    stage: str
    task: str
    worker: str
    begin: float
    seconds: float
    num_bytes: int
    steps: Mapping[str, Sequence[float]]
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StageTime:
    """Sums over the tasks of a stage.  ``seconds``: from the begin of its first task to the end of its last.

    ``busy``: seconds that its workers were at work, all together.  ``steps``: of them, by path."""

    stage: str
    tasks: int
    workers: int
    seconds: float
    busy: float
    num_bytes: int
    longest: str
    longest_seconds: float
    longest_bytes: int
    steps: Mapping[str, float] = field(default_factory=dict)


def note(folder: str, *, stage: str, task: str, begin: float, num_bytes: int, stopwatch: Stopwatch) -> None:
    """Takes note of a task that began at ``begin`` and ends now."""
    seconds = time.time() - begin
    host, process = socket.gethostname(), os.getpid()
    steps = {path: (round(wall, 6), round(cpu, 6)) for path, (wall, cpu) in stopwatch.seconds.items()}
    worker = f"{host} {process} {threading.get_ident()}"
    line = json.dumps(asdict(TaskTime(stage, task, worker, begin, seconds, num_bytes, steps, stopwatch.counts)))
    path = os.path.join(folder, FOLDER, f"{host}-{process}.jsonl")
    with _lock:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")


def read_times(folder: str) -> list[TaskTime]:
    """Of all tasks that were done with this work folder, in the order in which they began."""
    return sorted(Follower(folder).more(), key=lambda time: (time.begin, time.task))


class Follower:
    """Reads what is noted in a work folder as it comes."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, FOLDER)
        self._offsets: dict[str, int] = {}

    def more(self) -> list[TaskTime]:
        """The tasks that were noted since the last call."""
        found: list[TaskTime] = []
        for name in sorted(os.listdir(self._folder)) if os.path.isdir(self._folder) else ():
            with open(os.path.join(self._folder, name), "rb") as stream:
                stream.seek(self._offsets.get(name, 0))
                content = stream.read()
            whole = content.rfind(b"\n") + 1
            self._offsets[name] = self._offsets.get(name, 0) + whole
            found += [TaskTime(**json.loads(line)) for line in content[:whole].splitlines()]
        return found


def by_stage(times: Iterable[TaskTime]) -> list[StageTime]:
    """In the order in which they began."""
    stages: dict[str, list[TaskTime]] = {}
    for found in times:
        stages.setdefault(found.stage, []).append(found)
    return [_sum(stage, found) for stage, found in stages.items()]


def _sum(stage: str, tasks: Sequence[TaskTime]) -> StageTime:
    longest = max(tasks, key=lambda task: task.seconds)
    busy = sum(task.seconds for task in tasks)
    steps: defaultdict[str, float] = defaultdict(float)
    for task in tasks:
        for path, (wall, _) in task.steps.items():
            steps[path] += wall
    steps[OTHER] = max(0.0, busy - sum(steps.values()))
    return StageTime(
        stage,
        tasks=len(tasks),
        workers=len({task.worker for task in tasks}),
        seconds=max(task.begin + task.seconds for task in tasks) - min(task.begin for task in tasks),
        busy=busy,
        num_bytes=sum(task.num_bytes for task in tasks),
        longest=longest.task,
        longest_seconds=longest.seconds,
        longest_bytes=longest.num_bytes,
        steps=dict(steps),
    )


def by_step(stages: Iterable[StageTime]) -> dict[str, float]:
    """Seconds of the workers by the steps' own names, the longest first."""
    found: defaultdict[str, float] = defaultdict(float)
    for stage in stages:
        for path, seconds in stage.steps.items():
            found[path.rpartition("/")[2]] += seconds
    return dict(sorted(found.items(), key=lambda item: -item[1]))
