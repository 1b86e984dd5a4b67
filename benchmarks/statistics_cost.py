"""What the statistics cost a build without preprocessing: builds with and without them, in turns.

    python -m benchmarks.statistics_cost --rows 600000

39 features, 26 of them text with 50,000 values.  Medians of ``--repeats`` builds on all processors, and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.table import write_csv
from pipeline.build import build
from pipeline.config import load
from transforms.statistics import Collector

CONFIG = "name: t\nsource: {format: csv, files: t.csv}\noutput: {dir: out}\n"


def measure(rows: int, repeats: int) -> dict[str, float]:
    """Seconds of a build by what it does."""
    looks: dict[str, Callable[..., None]] = {"with": Collector.look, "without": lambda *_: None}
    seconds: dict[str, list[float]] = {name: [] for name in looks}
    with tempfile.TemporaryDirectory() as folder:
        write_csv(f"{folder}/t.csv", rows)
        config = Path(folder) / "c.yaml"
        config.write_text(CONFIG)
        for turn in range(repeats + 1):  # the first one warms up
            for name, look in looks.items():
                collector: Any = Collector
                collector.look = look
                made = build(load(str(config), [f"output.dir=out-{turn}-{name}"])).seconds
                seconds[name] += [made] * (turn > 0)
    Collector.look = looks["with"]  # type: ignore[method-assign]
    return {name: statistics.median(found) for name, found in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    found = measure(options.rows, options.repeats)
    print(f"with: {found['with']:.2f} s, without: {found['without']:.2f} s: {found['with'] / found['without'] - 1:.1%}")


if __name__ == "__main__":
    main()
