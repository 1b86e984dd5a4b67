"""The benchmarks run, in their short form, and write what they print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.data import DATA
from benchmarks.write import is_installed
from benchmarks.writers import LOOP, OURS, PEERS

ROOT = Path(__file__).parent.parent


def run(module: str, *arguments: str, folder: Path) -> dict[str, Any]:
    result = folder / "result.json"
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--json", str(result)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(result.read_text())
    assert isinstance(figures, dict)
    return figures


@pytest.mark.slow
def test_build(tmp_path: Path) -> None:
    figures = run("build", "--rows", "5000", folder=tmp_path)
    assert {"seconds", "peak_mb", "output_mb", "build s"} <= set(figures)


@pytest.mark.slow
def test_write(tmp_path: Path) -> None:
    figures = run("write", "--scale", "0.001", "--repeats", "1", "--no-command", folder=tmp_path)
    assert set(figures["data"]) == set(DATA)
    for name, measured in figures["data"].items():
        of_data = measured["writer"]
        assert all(figure["rows_per_second"] > 0 for figure in of_data.values())
        assert all(writer.title in of_data for writer in (*PEERS, *OURS) if is_installed(writer))
        assert ("pyarrow.csv alone, all cores" in of_data) == DATA[name].is_csv
        if name not in ("clicks", "flights", "short lists"):  # all rows are equally long: so are the files
            assert of_data[LOOP]["bytes_per_row"] == of_data["recordmill none, 2 threads"]["bytes_per_row"]


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    figures = run("command", "--rows", "3000", folder=tmp_path)  # so few that "of_limits" is noise
    limits = {figures[f"{name}_seconds"] for name in ("read", "codec", "write", "start", "command")}
    assert min(limits) > 0 and figures["times_script"] > 0 and 0 < figures["output_of_csv"] < 1


def test_levels(tmp_path: Path) -> None:
    """Each level's ratio is at least that of level 1, and 9 is the smallest."""
    rows = run("levels", "--repeats", "1", folder=tmp_path)["rows"]
    ratios = {row["level"]: row["clicks: ratio"] for row in rows if row["members"] == "blocks"}
    assert min(ratios.values()) == ratios[1] and max(ratios.values()) == ratios[9]


@pytest.mark.slow
def test_sources(tmp_path: Path) -> None:
    figures = run("sources", "--rows", "2000", "--repeats", "1", folder=tmp_path)["sources"]
    assert {figure["format"] for figure in figures} == {"csv", "jsonl", "parquet", "arrow", "orc", "avro", "images"}
    assert all(figure["ratio"] > 0 for figure in figures)


def test_plan(tmp_path: Path) -> None:
    """The graph grows with neither partitions nor features beyond an element each."""
    figures = run("plan", "--files", "3000", "--partitions", "2000", folder=tmp_path)
    assert figures["plan"]["files"] == 3000
    graphs = {(found["partitions"], found["features"]): found for found in figures["graphs"]}
    assert graphs[2000, 1000]["pipeline_bytes"] - graphs[10, 1000]["pipeline_bytes"] < 2000 * 16
    assert graphs[2000, 1000]["pipeline_bytes"] - graphs[2000, 10]["pipeline_bytes"] < 10_000
    assert graphs[2000, 1000]["task_bytes"] == graphs[2000, 10]["task_bytes"] < 1000
