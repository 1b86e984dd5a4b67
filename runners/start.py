"""The runner that a user names: looked at before any work, and started."""

from __future__ import annotations

import importlib

import apache_beam as beam

from runners import direct
from runners.settings import Settings

REMOTE = ("flink", "spark", "prism", "portable")


def check(settings: Settings) -> None:
    """Raises RunnerError where something is known to be wrong before a job is sent."""
    if settings.name in REMOTE:
        importlib.import_module(f"runners.{settings.name}").check(settings)


def pipeline(settings: Settings, *, tasks: int, processes: bool) -> beam.Pipeline:
    """An empty pipeline for a job of so many tasks.  ``processes``: see ``direct``."""
    if settings.name not in REMOTE:
        return direct.pipeline(workers=min(settings.workers, tasks), processes=processes)
    made: beam.Pipeline = importlib.import_module(f"runners.{settings.name}").pipeline(settings)
    return made
