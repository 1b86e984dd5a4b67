"""The whole command from CSV to a published version, against the limits that it cannot beat and a script without it.

    python -m benchmarks.command --rows 3000000 --workers 2

The limits, at the same number of threads: reading the CSV by ``pyarrow.csv``, the codec on the same records, and a
plain write of what it makes.  The command's start is that of a build of ten rows.  The script reads with ``csv``, makes
a ``tf.train.Example`` a row and writes with ``TFRecordWriter`` and GZIP; it gets a part of the rows.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from benchmarks import table
from benchmarks.build import prepare_criteo, timed_build
from benchmarks.data import batches_of
from benchmarks.writers import serializer, write_serialized
from transforms.compression import Compression
from transforms.cut import BLOCK_BYTES
from transforms.example import Encoder

START_ROWS = 10
SCRIPT_ROWS = 20_000


def measure(rows: int, *, workers: int, repeats: int = 1) -> dict[str, Any]:
    """Seconds of the command and of its limits, medians of ``repeats`` turns; the script's rate."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
        where = Path(folder)
        for name, size in {"start": START_ROWS, "all": rows}.items():
            (where / name).mkdir()
            config = prepare_criteo(where / name, size)
            config |= {"source": {"format": "csv", "files": "source.csv"}, "output": {"dir": "out"}}
            (where / name / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        path = where / "all" / "source.csv"
        turns = [_turn(where, path, rows, workers, number) for number in range(repeats)]
        figures = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
        figures |= {"rows": rows, "workers": workers, "csv_bytes": path.stat().st_size}
        figures["script_rows_per_second"] = script_rate(path, min(rows, SCRIPT_ROWS))
    return figures | ratios(figures)


def _turn(where: Path, path: Path, rows: int, workers: int, number: int) -> dict[str, float]:
    def build(name: str) -> dict[str, float]:
        return timed_build(str(where / name), workers=workers, overrides=[f"output.dir=out{number}"])

    start, whole = build("start"), build("all")
    codec, write, _ = codec_and_write_seconds(rows, str(where / "plain"), threads=workers)
    steps = {name: seconds for name, seconds in whole.items() if name.endswith(" s")}
    return steps | {
        "start_seconds": start["seconds"],
        "command_seconds": whole["seconds"],
        "output_mb": whole["output_mb"],
        "peak_mb": whole["peak_mb"],
        "read_seconds": read_seconds(str(path), threads=workers),
        "codec_seconds": codec,
        "write_seconds": write,
    }


def ratios(figures: dict[str, float]) -> dict[str, float]:
    limits = figures["read_seconds"] + figures["codec_seconds"] + figures["write_seconds"]
    script = figures["rows"] / figures["script_rows_per_second"]
    return {
        "of_limits": (figures["command_seconds"] - figures["start_seconds"]) / limits,
        "times_script": script / figures["command_seconds"],
        "output_of_csv": figures["output_mb"] * 1e6 / figures["csv_bytes"],
    }


def read_seconds(path: str, *, threads: int) -> float:
    pa.set_cpu_count(threads)
    begin = time.perf_counter()
    pyarrow.csv.read_csv(path)
    return time.perf_counter() - begin


def codec_and_write_seconds(rows: int, path: str, *, threads: int) -> tuple[float, float, int]:
    """Seconds of gzip 1 on the records of the table, and of a plain write of what it makes, with fsync; its bytes."""
    compression = Compression("gzip", 1)
    codec = write = 0.0
    size = 0
    with ThreadPoolExecutor(threads) as pool, open(path, "wb", buffering=0) as stream:
        for large in table.batches(rows):
            encoder = Encoder(large.schema)
            data = [encoder.encode(batch).data for batch in batches_of(large)]
            blocks = [d[at : at + BLOCK_BYTES] for d in data for at in range(0, d.nbytes, BLOCK_BYTES)]
            begin = time.perf_counter()
            packed = list(pool.map(lambda block: compression.pack(block, num_records=1).data, blocks))
            codec += time.perf_counter() - begin
            begin = time.perf_counter()
            for block in packed:
                size += stream.write(block)
            write += time.perf_counter() - begin
        begin = time.perf_counter()
        os.fsync(stream.fileno())
        write += time.perf_counter() - begin
    os.unlink(path)
    return codec, write, size


def script_rate(path: Path, rows: int) -> float:
    """Rows a second of the script; TensorFlow is loaded before."""
    serialize = serializer()
    begin = time.perf_counter()
    with open(path, newline="", encoding="utf-8") as stream:
        chosen = itertools.islice(csv.DictReader(stream), rows)
        values = ({k: v.encode() if k[0] == "c" else int(v) for k, v in row.items()} for row in chosen)
        write_serialized(map(serialize, values), f"{path}.tfrecord", "GZIP")
    return rows / (time.perf_counter() - begin)


def report(figures: dict[str, Any]) -> Iterator[str]:
    rows, steps = figures["rows"], {k: v for k, v in figures.items() if k.endswith(" s")}
    yield f"\n### The whole command: {rows:,} rows, {figures['csv_bytes'] / 1e6:,.0f} MB of CSV"
    yield "| what | seconds | rows/s |"
    yield "|---|---|---|"
    for title, seconds in {
        f"recordmill build, {figures['workers']} workers": figures["command_seconds"],
        f"its start ({START_ROWS} rows)": figures["start_seconds"],
        "pyarrow.csv alone": figures["read_seconds"],
        "gzip 1 of the records alone": figures["codec_seconds"],
        "plain write of the output, fsync": figures["write_seconds"],
        f"script with GZIP (from {min(rows, SCRIPT_ROWS):,} rows)": rows / figures["script_rows_per_second"],
    }.items():
        yield f"| {title} | {seconds:.2f} | {rows / seconds:,.0f} |"
    yield ""
    yield "Steps: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in steps.items())
    yield f"Without its start: {figures['of_limits']:.2f} times the sum of the limits."
    yield f"{figures['times_script']:.0f} times as fast as the script, start included."
    yield f"Output: {figures['output_of_csv']:.2f} of the CSV. Peak memory: {figures['peak_mb']:,} MB."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    figures = measure(options.rows, workers=options.workers, repeats=options.repeats)
    print("\n".join(report(figures)))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
