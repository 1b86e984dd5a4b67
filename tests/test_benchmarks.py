"""The benchmarks run, in their short form, and write what they print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(name: str, *arguments: str, folder: Path) -> dict[str, object]:
    result = folder / "result.json"
    command = [sys.executable, str(BENCHMARKS / name), *arguments, "--json", str(result)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    figures = json.loads(result.read_text())
    assert isinstance(figures, dict)
    return figures


@pytest.mark.slow
def test_build(tmp_path: Path) -> None:
    figures = run("build.py", "--rows", "5000", folder=tmp_path)
    assert {"seconds", "peak_mb", "output_mb", "build s"} <= set(figures)


@pytest.mark.slow
def test_write(tmp_path: Path) -> None:
    figures = run("write.py", "--rows", "2000", "--repeats", "1", folder=tmp_path)
    assert "Example loop, TFRecordWriter GZIP" in figures and "recordmill gzip 1, 2 threads" in figures
