"""The whole command on a large CSV without preprocessing: seconds, rows/s, peak resident memory, sizes.

    python benchmarks/build.py                     # 6,000,000 rows, 2 GB
    python benchmarks/build.py --rows 100000 --workers 1 --json result.json

Memory is the sum over the command's processes, sampled every 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import psutil
from table import write_csv

CONFIG = {"name": "criteo", "source": {"format": "csv", "files": "criteo.csv"}, "output": {"dir": "out"}}


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
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of recordmill build")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
        source = os.path.join(folder, "criteo.csv")
        write_csv(source, arguments.rows)
        with open(os.path.join(folder, "config.yaml"), "w", encoding="utf-8") as stream:
            json.dump(CONFIG, stream)
        figures = {"source_mb": round(os.path.getsize(source) / 1e6, 1)}
        figures |= timed_build(folder, workers=arguments.workers, overrides=arguments.set)
    for name, value in figures.items():
        print(f"{name:>20}  {value:,}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(figures, stream, indent=1)


if __name__ == "__main__":
    main()
