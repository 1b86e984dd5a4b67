"""What a person sees while a stage runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from pipeline.printing import size

LINE_SECONDS = 10.0  # between lines, where there is no terminal

# Takes how many tasks are done, how many bytes of the source they had, and what they counted (``times.TaskTime``).
Advance = Callable[[int, int, Mapping[str, int]], None]
Show = Callable[[str, int, int], contextlib.AbstractContextManager[Advance]]  # label, tasks, bytes

log = logging.getLogger("recordmill")


@contextlib.contextmanager
def _nothing(label: str, tasks: int, num_bytes: int) -> Iterator[Advance]:
    yield lambda done, done_bytes, counts: None


_show: ContextVar[Show] = ContextVar("show", default=_nothing)


@contextlib.contextmanager
def shown(console: Console) -> Iterator[None]:
    """Shows the progress of all stages in the block: as bars that go when a stage is done, or as lines of the log."""
    with _shown_by(_bar(console) if console.is_terminal else _lines):
        yield


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Tells the progress of all stages in the block to the log."""
    with _shown_by(_lines):
        yield


@contextlib.contextmanager
def _shown_by(show: Show) -> Iterator[None]:
    token = _show.set(show)
    try:
        yield
    finally:
        _show.reset(token)


@contextlib.contextmanager
def progress(label: str, *, tasks: int, num_bytes: int) -> Iterator[Advance]:
    """The progress of one stage; the block calls what it gets as tasks get done."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", " ", label).lower()
    with _show.get()(words, tasks, num_bytes) as advance:
        yield advance


def _bar(console: Console) -> Show:
    @contextlib.contextmanager
    def show(label: str, tasks: int, num_bytes: int) -> Iterator[Advance]:
        sizes = (DownloadColumn(), TransferSpeedColumn()) if num_bytes else ()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), *sizes)
        counted = TextColumn("{task.fields[counted]}")
        begin = time.monotonic()
        with Progress(*columns, TimeRemainingColumn(), counted, console=console, transient=True) as bar:
            task = bar.add_task(label, total=num_bytes or tasks, count=f"0/{tasks}", counted="")

            def advance(done: int, done_bytes: int, counts: Mapping[str, int]) -> None:
                told = _counted(counts, time.monotonic() - begin)
                bar.update(task, completed=done_bytes if num_bytes else done, count=f"{done}/{tasks}", counted=told)

            yield advance

    return show


@contextlib.contextmanager
def _lines(label: str, tasks: int, num_bytes: int) -> Iterator[Advance]:
    begin = last = time.monotonic()

    def advance(done: int, done_bytes: int, counts: Mapping[str, int]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_SECONDS and done < tasks:
            last = now
            rate = f", {done_bytes / (now - begin) / 1e6:.0f} MB/s" if done_bytes else ""
            counted = _counted(counts, now - begin)
            log.info("%s: %d of %d done%s%s", label, done, tasks, rate, f", {counted}" if counted else "")

    yield advance


def _counted(counts: Mapping[str, int], seconds: float) -> str:
    """``1,200,000 rows/s, 3 bad rows, 120 MB out``"""
    parts = []
    if counts.get("rows"):
        parts.append(f"{counts['rows'] / max(seconds, 1e-3):,.0f} rows/s")
    if counts.get("bad rows"):
        parts.append(f"{counts['bad rows']:,} bad rows")
    if counts.get("bytes out"):
        parts.append(f"{size(counts['bytes out'])} out")
    return ", ".join(parts)
