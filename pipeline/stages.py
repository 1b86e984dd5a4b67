"""One shape for every Beam job of a build: tasks that each make one file.

A task is done when its file is there, so a stage that is run again does only what is missing, on any runner, and
nothing has to travel back through the runner.  What a task did wrong stands in a file too: in the words of the error,
whatever the runner makes of it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam

from pipeline import times
from pipeline.progress import Advance, progress
from runners import start
from runners.settings import Settings
from transforms import errors
from transforms.build import LIBRARIES
from transforms.errors import BadRowsError, BuildError, RecordmillError
from transforms.files import write_committed
from transforms.fingerprint import digest, library_version
from transforms.partition import BadRow
from transforms.timing import measured

# Of raw data, from which on worker processes are worth the 8 s that they take to start and to import TensorFlow: two
# threads, which share the GIL where tensors are made, apply a graph at 1.4 times the speed of one.
PROCESS_BYTES = 2 << 30
LOOK_SECONDS = 0.3  # between looks at what is done
# A thread that comes back from a kernel waits so long for one that holds the GIL. With Python's 5 ms, two threads build
# at 1.65 times the speed of one, with this at 1.77 times.
SWITCH_SECONDS = 0.0005
LOOKS_PER_SECOND = 10_000  # at most, at the files of tasks


@dataclass(frozen=True)
class Task:
    """``argument`` is what the stage's function makes the file ``output`` from; ``name`` is what people call it."""

    argument: Any
    output: str
    name: str
    num_bytes: int = 0


@dataclass(frozen=True)
class Workers:
    """Where stages run.  ``processes``: a stage's steps hold the GIL for a part of their time, as TensorFlow's do."""

    number: int = 1
    processes: bool = False
    settings: Settings = Settings()

    def pipeline(self, tasks: Sequence[Task]) -> beam.Pipeline:
        large = sum(task.num_bytes for task in tasks) >= PROCESS_BYTES
        settings = replace(self.settings, workers=self.number)
        return start.pipeline(settings, tasks=len(tasks), processes=self.processes and large)


_stopped = threading.Event()  # by Ctrl-C: worker threads, which the runner does not stop, begin nothing new


_CODER = beam.coders.PickleCoder()  # as the runner itself would have it; the file does not outlive the build
Stored = tuple[int, int]  # where a task stands in the file of the stage: offset, size


def store_tasks(tasks: Sequence[Task], path: str) -> list[Stored]:
    """Writes the tasks into one file of the work folder, so that what travels through the runner is small."""
    stored, at = [], 0
    with open(path, "wb") as stream:
        for task in tasks:
            size = stream.write(_CODER.encode(task))
            stored.append((at, size))
            at += size
    return stored


def _load(path: str, stored: Stored) -> Task:
    offset, size = stored
    with open(path, "rb") as stream:
        stream.seek(offset)
        task = _CODER.decode(stream.read(size))
    assert isinstance(task, Task)
    return task


@functools.cache
def versions() -> Mapping[str, str]:
    """What the bytes depend on, or the way to a worker: of this process."""
    names = (*LIBRARIES, "recordmill", "apache-beam", "tensorflow", "tensorflow-transform")
    return {"Python": platform.python_version().rpartition(".")[0]} | {name: library_version(name) for name in names}


class RunTask(beam.DoFn):
    """Where a task is stored in, nothing out: the file that it makes is the result.

    An error of ours is a fact about the data, which no retry changes, so it does not fail the bundle; any other error
    does, and the runner may try again.
    """

    def __init__(self, label: str, function: Callable[[Any, str], None], tasks_file: str, work_dir: str) -> None:
        self._label = label
        self._function = function
        self._tasks_file = tasks_file
        self._work_dir = work_dir
        self._versions = versions()

    def process(self, stored: Stored) -> Iterator[None]:
        task = _load(self._tasks_file, stored)
        if os.path.exists(task.output) or _stopped.is_set():
            return
        begin = time.time()
        try:
            self._check_versions()
            with measured() as stopwatch:
                self._function(task.argument, task.output)
            times.note(
                self._work_dir,
                stage=self._label,
                task=task.name,
                begin=begin,
                num_bytes=task.num_bytes,
                stopwatch=stopwatch,
            )
        except RecordmillError as error:
            self._report(task, error)
        except Exception as error:
            self._report(task, error)
            raise
        yield from ()

    def _check_versions(self) -> None:
        """Raises BuildError where this worker would not make the bytes that the build expects."""
        here = versions()
        wanted = self._versions.items()
        other = [f"{name} {here[name]} instead of {version}" for name, version in wanted if here[name] != version]
        if other:
            raise BuildError(
                f"a worker on {socket.gethostname()} has {', '.join(other)}: give the workers the environment of the "
                "command, or run the command in theirs"
            )

    def _report(self, task: Task, error: Exception) -> None:
        ours = isinstance(error, RecordmillError)
        rows = [vars(row) for row in error.rows] if isinstance(error, BadRowsError) else None
        report = {
            "task": task.name,
            "type": type(error).__name__,
            "message": str(error),
            "traceback": None if ours else traceback.format_exc(),
            "rows": rows,
            "allowed": getattr(error, "allowed", None),
        }
        write_committed(_report_path(self._work_dir, task), json.dumps(report))


def run_stage(
    label: str, function: Callable[[Any, str], None], tasks: Sequence[Task], *, workers: Workers, work_dir: str
) -> None:
    """Calls ``function(task.argument, task.output)`` for each task whose file is not there, on the runner.

    Raises what the first failed task raised (all bad rows of all tasks as one BadRowsError), or BuildError when the
    runner failed or a file did not come into being.
    """
    todo = list({task.output: task for task in tasks if not os.path.exists(task.output)}.values())
    if not todo:
        return
    os.makedirs(work_dir, exist_ok=True)
    tasks_file = os.path.join(work_dir, f"{label}-{digest([task.output for task in todo])}.tasks")
    stored = store_tasks(todo, tasks_file)
    pipeline = workers.pipeline(todo)
    _ = pipeline | beam.Create(stored) | label >> beam.ParDo(RunTask(label, function, tasks_file, work_dir))
    with (
        progress(label, tasks=len(todo), num_bytes=sum(task.num_bytes for task in todo)) as advance,
        _short_switches(),
    ):
        failure = _run(pipeline, _Advance(advance, label, todo, work_dir))
    missing = [task for task in todo if not os.path.exists(task.output)]
    if missing:
        raise _failure(label, missing, work_dir, failure) from failure
    if failure is not None:
        raise BuildError(f"{label}: the runner failed: {failure}") from failure


@contextlib.contextmanager
def _short_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class _Advance:
    """Looks at which tasks are done, and what they noted, now and then."""

    def __init__(self, advance: Advance, label: str, tasks: Sequence[Task], work_dir: str) -> None:
        self._advance = advance
        self._label = label
        self._tasks = tasks
        self._left = list(tasks)
        self._follower = times.Follower(work_dir)
        self._counts: Counter[str] = Counter()
        self._next_look = time.monotonic() + LOOK_SECONDS

    def look(self) -> None:
        if time.monotonic() < self._next_look:
            return
        self._left = [task for task in self._left if not os.path.exists(task.output)]
        self._next_look = time.monotonic() + LOOK_SECONDS + len(self._left) / LOOKS_PER_SECOND
        for noted in self._follower.more():
            if noted.stage == self._label:
                self._counts.update(noted.counts)
        num_bytes = sum(t.num_bytes for t in self._tasks) - sum(t.num_bytes for t in self._left)
        self._advance(len(self._tasks) - len(self._left), num_bytes, self._counts)


def _run(pipeline: beam.Pipeline, advance: _Advance) -> Exception | None:
    """Runs the pipeline, lets ``advance`` look at what is done, and returns what it raised.

    In a thread of its own, since Ctrl-C strikes the main thread: inside the runner it would be lost, or leave the
    runner waiting for a worker that never began.
    """
    raised: list[Exception] = []
    begun: list[Any] = []

    def run() -> None:
        try:
            begun.append(pipeline.run())
            begun[0].wait_until_finish()
        except Exception as error:  # whatever the runner raises: the tasks' own reports say more
            raised.append(error)

    _stopped.clear()
    runner = threading.Thread(target=run, name="runner", daemon=True)  # and so are the threads that it starts
    runner.start()
    try:
        while runner.is_alive():
            runner.join(0.1)  # a signal that another thread took is seen by this one only when it wakes up
            advance.look()
    except BaseException:
        _stopped.set()
        with contextlib.suppress(Exception):  # the local runner cannot, and needs not
            begun[0].cancel()
        raise
    return raised[0] if raised else None


def _report_path(folder: str, task: Task) -> str:
    return os.path.join(folder, f"{digest(task.output)}.error.json")


def _failure(label: str, missing: Sequence[Task], work_dir: str, failure: Exception | None) -> RecordmillError:
    """What went wrong, as the tasks told it or, where none did, the runner, which raised ``failure``."""
    reports = []
    for path in (_report_path(work_dir, task) for task in missing):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                reports.append(json.load(stream))
    bad_rows = [BadRow(**row) for report in reports for row in report["rows"] or ()]
    others = [report for report in reports if not report["rows"]]
    if bad_rows and not others:
        return BadRowsError(bad_rows, next(report["allowed"] for report in reports if report["rows"]))
    for report in others:
        kind = getattr(errors, report["type"], None)
        if isinstance(kind, type) and issubclass(kind, RecordmillError):
            return kind(report["message"])
        return BuildError(
            f"{label} failed on {report['task']}: {report['type']}: {report['message']}\n{report['traceback']}"
        )
    if failure is not None:
        return BuildError(f"{label}: the runner failed: {failure}; its log, and those of its workers, say more")
    return BuildError(f"{label} ended without an error, but did not make {missing[0].output} ({missing[0].name})")
