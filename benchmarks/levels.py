"""What the levels of compression cost and bring: the table of docs/format.md.

    python -m benchmarks.levels

``--json FILE`` writes the figures too.  One thread; medians of ``--repeats`` runs.  Machines differ, so compare the
ratios of one run.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.data import DATA
from transforms.compression import Compression
from transforms.cut import BLOCK_BYTES
from transforms.example import Encoder

LEVELS = range(1, 10)
ROWS = {"clicks": 10_000, "embeddings": 3_000, "short lists": 40_000}  # of each table: more than four blocks


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    def once() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    once()
    return statistics.median(once() for _ in range(repeats))


def measure_levels(repeats: int) -> Iterator[dict[str, Any]]:
    raw: dict[str, list[bytes]] = {}
    for name, rows in ROWS.items():
        batch = DATA[name].make(rows)
        data = Encoder(batch.schema).encode(batch).data[: 4 * BLOCK_BYTES].tobytes()
        raw[name] = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
    for members in ("blocks", "single"):
        for level in LEVELS:
            compression = Compression("gzip", level, members)
            library, own = compression.codec
            figures = {"members": members, "level": level, "codec": f"{library} {own}"}
            yield figures | measure_codec(functools.partial(pack_with, compression), raw, repeats)
    for level in (1, 6, 9):
        figures = {"members": "", "level": "", "codec": f"zlib {level}" + (", as TensorFlow" if level == 6 else "")}
        yield figures | measure_codec(functools.partial(zlib.compress, level=level), raw, repeats)


def pack_with(compression: Compression, raw: bytes) -> bytes:
    return compression.pack(raw, num_records=1).data


def measure_codec(pack: Callable[[bytes], bytes], raw: dict[str, list[bytes]], repeats: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, blocks in raw.items():
        size = sum(map(len, blocks))
        seconds = median_seconds(functools.partial(map_all, pack, blocks), repeats)
        figures[f"{name}: MB/s"] = round(size / seconds / 1e6)
        figures[f"{name}: ratio"] = round(size / sum(len(pack(block)) for block in blocks), 2)
    return figures


def map_all(function: Callable[[bytes], bytes], blocks: list[bytes]) -> None:
    for block in blocks:
        function(block)


def print_table(rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    print("| " + " | ".join(names) + " |")
    print("|" + "|".join("---" for _ in names) + "|")
    for row in rows:
        print("| " + " | ".join(f"{v:,}" if isinstance(v, int | float) else str(v) for v in row.values()) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    rows = list(measure_levels(options.repeats))
    print_table(rows)
    if options.json:
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "repeats": options.repeats, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
