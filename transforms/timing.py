"""Where the time of a task goes: the seconds of each step, measured where the step is.

A step that runs inside of another one is told apart from it: ``accumulate/read`` has what reading took, and
``accumulate`` the rest.  Where nobody measures, steps cost next to nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

ANALYZER = "analyzer "  # before the label of an analyzer, in the name of its step

_Item = TypeVar("_Item")


class Stopwatch:
    """``seconds``: by path, of the clock and of this thread's processor, without those of the steps inside.

    ``counts``: what was counted, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}
        self.counts: dict[str, int] = {}
        self._path: list[str] = []
        self._last = (time.perf_counter(), time.thread_time())

    def begin(self, name: str) -> None:
        self._charge()
        self._path.append(name)

    def end(self) -> None:
        self._charge()
        self._path.pop()

    def _charge(self) -> None:
        now = (time.perf_counter(), time.thread_time())
        if self._path:
            path = "/".join(self._path)
            wall, cpu = self.seconds.get(path, (0.0, 0.0))
            self.seconds[path] = (wall + now[0] - self._last[0], cpu + now[1] - self._last[1])
        self._last = now


class _Current(threading.local):
    stopwatch: Stopwatch | None = None


_current = _Current()


@contextlib.contextmanager
def measured() -> Iterator[Stopwatch]:
    """Measures the steps that this thread goes through in the block."""
    before, stopwatch = _current.stopwatch, Stopwatch()
    _current.stopwatch = stopwatch
    try:
        yield stopwatch
    finally:
        _current.stopwatch = before


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """The block is a step of that name.  Nothing may be yielded out of it: see ``timed``."""
    stopwatch = _current.stopwatch
    if stopwatch is None:
        yield
        return
    stopwatch.begin(name)
    try:
        yield
    finally:
        stopwatch.end()


def count(name: str, number: int) -> None:
    """Counts so many more."""
    if _current.stopwatch is not None:
        counts = _current.stopwatch.counts
        counts[name] = counts.get(name, 0) + number


def timed(name: str, items: Iterable[_Item]) -> Iterator[_Item]:
    """The same items; making each of them is a step of that name."""
    iterator = iter(items)
    while True:
        with step(name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
