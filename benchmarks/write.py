"""Rows in memory into TFRecord files: ours against what people use instead, and against what no writer can beat.

    python -m benchmarks.write                                # all tables, and the whole command
    python -m benchmarks.write --data clicks --repeats 5 --json result.json
    python -m benchmarks.write --scale 0.01 --repeats 1       # the short form

Prints a table of figures for each table of rows.  Rows are in memory in each writer's own form before the clock starts.
The writers take turns, and a figure is the median of ``--repeats`` turns.  Those that work row by row get a few of the
rows, as the column ``rows`` says, and their rate counts.  Machines differ and are shared, so compare the ratios of one
run.  Peers that are not installed are left out, which is said: `pip install '.[benchmarks]'` brings them all.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from benchmarks import command
from benchmarks.data import DATA
from benchmarks.writers import COPY, ENCODE, LIMITS, LOOP, LOOP_GZIP, OURS, PEERS, Source, Writer, ours, recordmill

SHORTEST_TURN = 0.2  # seconds of work in a turn, at full scale: what is done sooner is done again, after a warm-up
FREE = 1.8  # of two cores: the rest is noise
COMMAND_ROWS = 3_000_000


@lru_cache(maxsize=1)
def source(data: str, rows: int, few: int) -> Source:
    return Source(data, rows=rows, few=few)


def turn(writer: Writer, data: str, rows: int, few: int, shortest: float = 0.0) -> tuple[float, float, int]:
    """Seconds of wall and of this process's cores for writing the rows once, and the bytes written."""
    rows_of = source(data, rows, few)
    if writer.needs:
        importlib.import_module(writer.needs)
    for form in writer.forms:
        getattr(rows_of, form)
    turns = [_timed(writer, rows_of)]
    if turns[0][0] < shortest * 5:
        turns = []
        while sum(wall for wall, _, _ in turns) < shortest:
            turns.append(_timed(writer, rows_of))
    walls, cores, sizes = zip(*turns, strict=True)
    return statistics.median(walls), statistics.median(cores), sizes[-1]


def _timed(writer: Writer, rows: Source) -> tuple[float, float, int]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
        wall, core = time.perf_counter(), time.process_time()
        writer.write(rows, folder)
        wall, core = time.perf_counter() - wall, time.process_time() - core
        return wall, core, sum(entry.stat().st_size for entry in os.scandir(folder))


def cores_free() -> float:
    """How many of two cores two threads get at this moment: what is said of two threads holds where it is near 2."""
    data = bytes(1 << 20)
    wall, core = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda _: hashlib.sha256(data), range(60)):
            pass
    return (time.process_time() - core) / (time.perf_counter() - wall)


def smallest_level(data: str, rows: int, few: int, limit: int) -> int | None:
    """The lowest level at which the few rows take no more than ``limit`` bytes."""
    for level in range(1, 10):
        with tempfile.TemporaryDirectory() as folder:
            recordmill(source(data, rows, few), folder, level=level, threads=1, few=True)
            if sum(entry.stat().st_size for entry in os.scandir(folder)) <= limit:
                return level
    return None


class Processes:
    """A process for each kind of writer, kept from table to table."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._pools: dict[str, ProcessPoolExecutor] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, process: str, work: Any, *arguments: Any) -> Any:
        if process not in self._pools:
            pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            self._pools[process] = self._stack.enter_context(pool)
        return self._pools[process].submit(work, *arguments).result()


def wait_for_cores(seconds: float) -> float:
    """Waits until two threads get two cores, or for so long; how many they get then."""
    end = time.monotonic() + seconds
    while (cores := cores_free()) < FREE and time.monotonic() < end:
        time.sleep(0.5)
    return cores


def measure(data: str, *, scale: float, repeats: int, patience: float, processes: Processes) -> dict[str, Any]:
    """The figures of each ``writer`` on this table, by title, and how many ``cores`` were free before its turns."""
    about = DATA[data]
    rows, few = max(8, int(about.rows * scale)), max(2, int(about.few * min(1.0, scale * 10)))
    writers = [w for w in (*PEERS, *OURS, *LIMITS) if is_installed(w) and (about.is_csv or not w.csv_only)]
    run = processes.run
    if is_installed(PEERS[0]):
        *_, limit = run("tensorflow", turn, next(w for w in PEERS if w.title == LOOP_GZIP), data, rows, few)
        level = run("recordmill", smallest_level, data, rows, few, limit)
        if level is not None and level > 1:
            writers.insert(writers.index(OURS[-1]) + 1, ours(level, 2))
    shortest = SHORTEST_TURN * min(1.0, scale)
    turns: dict[str, list[tuple[float, float, int]]] = {writer.title: [] for writer in writers}
    cores = []
    for _ in range(repeats):
        for writer in writers:
            cores.append(wait_for_cores(patience))
            turns[writer.title].append(run(writer.process, turn, writer, data, rows, few, shortest))
    figures = {w.title: _figures(turns[w.title], few if w.few else rows) for w in writers}
    return {"writer": figures, "cores": statistics.median(cores)}


def _figures(turns: list[tuple[float, float, int]], rows: int) -> dict[str, float]:
    walls, cores, sizes = zip(*turns, strict=True)
    return {
        "rows": rows,
        "rows_per_second": rows / statistics.median(walls),
        "cpu_seconds_per_million_rows": statistics.median(cores) / rows * 1e6,
        "bytes_per_row": sizes[-1] / rows,
    }


def is_installed(writer: Writer) -> bool:
    return not writer.needs or importlib.util.find_spec(writer.needs) is not None


def table(figures: dict[str, dict[str, float]], record_bytes: float) -> Iterator[str]:
    """``record_bytes``: of a record, framed and not compressed, which MB/s are counted in."""
    yield "| writer | rows | rows/s | MB/s | bytes/row | × loop | × loop GZIP |"
    yield "|---|---|---|---|---|---|---|"
    for title, figure in figures.items():
        rate, size = figure["rows_per_second"], figure["bytes_per_row"]
        cells = [title, f"{figure['rows']:,}", f"{rate:,.0f}", f"{rate * record_bytes / 1e6:,.0f}"]
        cells.append(f"{size:,.0f}" if size else "")
        cells += [f"{rate / figures[loop]['rows_per_second']:.1f}" for loop in (LOOP, LOOP_GZIP) if loop in figures]
        yield "| " + " | ".join(cells) + " |"


def report(name: str, measured: dict[str, Any]) -> Iterator[str]:
    figures = measured["writer"]
    record_bytes = figures[OURS[0].title]["bytes_per_row"]
    of_copy = figures[ENCODE]["rows_per_second"] / figures[COPY]["rows_per_second"]
    yield f"\n### {name}: {DATA[name].about}; {record_bytes:,.0f} bytes a record"
    yield from table(figures, record_bytes)
    yield f"\nEncoding and framing alone: {of_copy:.2f} of memcpy. Two threads got {measured['cores']:.2f} cores."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", choices=DATA, help="a table; may be given again; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait before a turn for two idle cores")
    parser.add_argument("--no-command", action="store_true", help="leave the whole command out")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    result: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "data": {}}
    result |= {"cores": os.cpu_count(), "python": platform.python_version(), "repeats": options.repeats}
    for writer in PEERS:
        if not is_installed(writer):
            print(f"{writer.title}: left out, {writer.needs} is not installed")
    with Processes() as processes:
        for name in options.data or DATA:
            measured = measure(
                name, scale=options.scale, repeats=options.repeats, patience=options.wait, processes=processes
            )
            result["data"][name] = measured
            print("\n".join(report(name, measured)), flush=True)
    if not options.no_command:
        result["command"] = command.measure(max(1000, int(COMMAND_ROWS * options.scale)), workers=2)
        print("\n".join(command.report(result["command"])), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump(result, stream, indent=1)


if __name__ == "__main__":
    main()
