"""A refresh after one of many files changed, against the first build and a build from nothing.

    python -m benchmarks.refresh                       # 100 files of 37 MB
    python -m benchmarks.refresh --files 10 --rows 20000 --json result.json
    python -m benchmarks.refresh --preprocess frozen   # with 13 z-scores and 26 vocabularies

Prints the seconds of whole commands, start included, and compares the shards of the refresh byte for byte with those of
a build of the same data in an empty folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from benchmarks.table import batches

PREPROCESSING = """
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    outputs = {"label": inputs["label"]}
    for i in range(13):
        outputs[f"i{i}"] = tft.scale_to_z_score(inputs[f"i{i}"])
    for i in range(26):
        outputs[f"c{i}"] = tft.compute_and_apply_vocabulary(inputs[f"c{i}"], top_k=10_000)
    return outputs
"""


def write_file(path: Path, rows: int, *, seed: int) -> None:
    table = pa.Table.from_batches(batches(rows, seed=seed))
    pa.csv.write_csv(table, path)


def command(folder: Path, output: str, *arguments: str) -> dict[str, Any]:
    """Runs a build; its result with the seconds of the whole command."""
    result = folder / "result.json"
    begin = time.monotonic()
    subprocess.run(
        [
            os.path.join(os.path.dirname(sys.executable), "recordmill"),
            "build",
            str(folder / "config.yaml"),
            "--quiet",
            "--json",
            str(result),
            f"--set=output.dir={output}",
            *arguments,
        ],
        check=True,
    )
    return json.loads(result.read_text()) | {"command seconds": time.monotonic() - begin}


def shard_hashes(built: dict[str, Any]) -> dict[str, str]:
    found = {}
    for path in sorted(Path(built["path"]).glob("*/*.tfrecord*")):
        with path.open("rb") as stream:
            found[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def measure(folder: Path, *, files: int, rows: int, preprocess: str | None, arguments: list[str]) -> dict[str, Any]:
    (folder / "data").mkdir()
    for i in range(files):
        write_file(folder / "data" / f"{i:03d}.csv", rows, seed=i)
    config: dict[str, Any] = {"name": "criteo", "source": {"format": "csv", "files": "data/*.csv"}}
    config |= {"splits": {"train": 0.9, "eval": 0.1}, "output": {"dir": "out"}}
    if preprocess:
        (folder / "preprocessing.py").write_text(PREPROCESSING)
        config |= {"preprocess": "preprocessing.py", "preprocess_refresh": preprocess}
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    first = command(folder, "out", *arguments)
    nothing = command(folder, "out", *arguments)
    write_file(folder / "data" / f"{files // 2:03d}.csv", rows - rows // 100, seed=files)
    second = command(folder, "out", *arguments)
    if preprocess == "frozen":
        same = None  # a build from nothing would analyze the new data
    else:
        shutil.rmtree(folder / "out" / "cache")
        again = command(folder, "from-nothing", *arguments)
        same = shard_hashes(again) == shard_hashes(second)
    start = nothing["command seconds"] - nothing["seconds"]
    return {
        "partitions": first["built_partitions"],
        "first s": round(first["command seconds"], 2),
        "nothing to do s": round(nothing["command seconds"], 2),
        "refresh s": round(second["command seconds"], 2),
        "refresh steps": {step: round(seconds, 2) for step, seconds in second["steps"].items()},
        "partitions built again": second["built_partitions"],
        "shards written, taken": [second["built_shards"], second["reused_shards"]],
        "refresh without start / first": round((second["command seconds"] - start) / first["command seconds"], 4),
        "same bytes as from nothing": same,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rows", type=int, default=110_000, help="in a file; 110,000 make a file a partition")
    parser.add_argument("--preprocess", choices=["always", "frozen"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of recordmill build")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
        figures = measure(
            Path(folder),
            files=arguments.files,
            rows=arguments.rows,
            preprocess=arguments.preprocess,
            arguments=[f"--set={override}" for override in arguments.set],
        )
    for name, value in figures.items():
        print(f"{name:>30}  {value}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(figures, stream, indent=1)


if __name__ == "__main__":
    main()
