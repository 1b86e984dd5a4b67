"""What is shown while stages run."""

from __future__ import annotations

import io
import logging
import time
from pathlib import Path

import pytest
from rich.console import Console

from pipeline import progress, stages
from pipeline.stages import Task, Workers, run_stage
from transforms.timing import count


def slow(argument: int, path: str) -> None:
    time.sleep(0.25)
    count("rows", 1000)
    count("bad rows", argument)
    count("bytes out", 5_000_000)
    Path(path).write_text(str(argument))


def tasks(folder: Path, num_bytes: int = 1_000_000) -> list[Task]:
    return [Task(i, str(folder / f"{i}.txt"), f"task {i}", num_bytes) for i in range(6)]


@pytest.mark.parametrize("num_bytes", [0, 1_000_000])
def test_a_bar_on_a_terminal(tmp_path: Path, num_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "LOOK_SECONDS", 0.05)
    shown = io.StringIO()
    with progress.shown(Console(file=shown, force_terminal=True, width=160)):
        run_stage("BuildBlocks", slow, tasks(tmp_path, num_bytes), workers=Workers(1), work_dir=str(tmp_path))
    assert "build blocks" in shown.getvalue()
    assert "3/6" in shown.getvalue()
    assert "rows/s, 6 bad rows, 20 MB out" in shown.getvalue()  # of the first four, before the last look
    assert ("MB/s" in shown.getvalue()) == bool(num_bytes)


def test_lines_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(stages, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.5)
    caplog.set_level(logging.INFO, "recordmill")
    with progress.shown(Console(file=io.StringIO())):
        run_stage("Accumulate0", slow, tasks(tmp_path), workers=Workers(1), work_dir=str(tmp_path))
    lines = [record.getMessage() for record in caplog.records]
    assert 1 <= len(lines) <= 3
    assert lines[0].startswith("accumulate 0: ") and " MB/s, " in lines[0] and lines[0].endswith(" MB out")


def test_nothing_unless_asked_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_stage("BuildBlocks", slow, tasks(tmp_path)[:2], workers=Workers(1), work_dir=str(tmp_path))
    assert capfd.readouterr() == ("", "")
