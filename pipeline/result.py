"""What a build did: what people are shown, machines are told, and monitors are given."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.layout import Layout
from pipeline.mirror import Synced
from pipeline.moves import Move
from pipeline.times import StageTime, TaskTime
from transforms.errors import OutputError
from transforms.files import write_committed

REPORT_FORMAT = 1  # raised when a key of ``to_plain`` goes, or means something else

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class SplitResult:
    rows: int
    shards: int
    num_bytes: int


@dataclass(frozen=True)
class BuildResult:
    """What a build did.  ``reasons``: what is different from the version before.

    ``seconds``: from the first look at the source to the published version; ``steps``: each.  ``stages``, ``tasks``:
    what the workers did with their time."""

    version: str
    path: str
    up_to_date: bool
    rows_read: int
    bad_rows: int
    dropped_rows: int
    removed_rows: int
    splits: Mapping[str, SplitResult]
    num_bytes: int
    seconds: float
    built_partitions: int
    reused_partitions: int
    built_shards: int
    reused_shards: int
    reasons: Sequence[str]
    warnings: Sequence[str]
    steps: Mapping[str, float]
    moves: Sequence[Move] = ()
    stages: Sequence[StageTime] = ()
    tasks: Sequence[TaskTime] = field(default=(), repr=False)
    versions_made_again: Sequence[str] = ()
    bad_rows_file: str | None = None
    mirror: Synced | None = None

    @property
    def rows_per_second(self) -> float:
        return self.rows_read / self.seconds if self.seconds else 0.0

    def to_plain(self) -> dict[str, Any]:
        """Values for JSON: docs/watching.md says what they are."""
        plain = dataclasses.asdict(dataclasses.replace(self, tasks=()))
        del plain["tasks"]  # there may be very many
        return {"format_version": REPORT_FORMAT} | plain | {"rows_per_second": self.rows_per_second}


def note_report(layout: Layout, result: BuildResult) -> None:
    """Writes the report of the build that made a version, beside those of the others.

    A version is not undone because that cannot be done: it is a warning.
    """
    path = layout.report_path(result.version)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_committed(path, json.dumps(result.to_plain(), indent=1, ensure_ascii=False) + "\n")
    except (OSError, OutputError) as error:
        log.warning("%s: the report of the build was not written: %s", path, error)


def read_report(layout: Layout, version: str) -> dict[str, Any] | None:
    """What ``note_report`` wrote of the version; None where there is nothing that can be read."""
    try:
        with open(layout.report_path(version), encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format_version") == REPORT_FORMAT else None
