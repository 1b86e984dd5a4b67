"""How the plan of a build and its Beam graphs grow: with files, with partitions, with features.

    python -m benchmarks.plan --files 1000000 --partitions 100000

Makes ``--files`` CSV files of two rows, and plans their build in a process of its own: seconds, and memory at its peak.
Then the graph of the stage that builds blocks, for numbers of partitions and of features: bytes of the pipeline that a
runner is sent, bytes of an element that travels, and of a task in the file of the stage.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apache_beam as beam

from pipeline.config import load
from pipeline.plan import list_partitions
from pipeline.stages import RunTask, Task, store_tasks
from transforms.build import BuildSpec, build_partition
from transforms.compression import Compression
from transforms.partition import FileSlice, Partition
from transforms.reading import SourceSpec
from transforms.rows import RowSpec
from transforms.schema import Feature, Schema
from transforms.split import Splitter

FOLDER_FILES = 1000
FEATURES = (10, 1000)


def plan_files(files: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            path = Path(folder, f"{number // FOLDER_FILES:04d}")
            if number % FOLDER_FILES == 0:
                path.mkdir()
            (path / f"{number % FOLDER_FILES:03d}.csv").write_text(f"a,b\n{number},1\n{number},2\n")
        config = Path(folder, "c.yaml")
        config.write_text("name: t\nsource: {format: csv, files: '*/*.csv'}\noutput: {dir: out}\n")
        command = [sys.executable, "-m", "benchmarks.plan", "--only-plan", str(config)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # type: ignore[no-any-return]


def plan(config: str) -> dict[str, Any]:
    begin = time.perf_counter()
    loaded = load(config)
    partitions = list_partitions(loaded)
    return {
        "files": sum(len(partition.slices) for partition in partitions),
        "partitions": len(partitions),
        "seconds": round(time.perf_counter() - begin, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }


def graph(partitions: int, features: int, folder: str) -> dict[str, Any]:
    """Of the stage that builds blocks, in which everything that a task needs travels."""
    names = [f"feature_{number:04d}" for number in range(features)]
    schema = Schema(tuple(Feature(name, kind="float", source=(name,), required=True, shape=()) for name in names))
    rows = RowSpec(SourceSpec("csv"), schema.to_text(), Splitter.of({"train": 0.8, "eval": 0.2}, keys=()))
    spec = BuildSpec(rows, Compression("gzip", 1), None, "blocks", 0)
    tasks = []
    for i in range(partitions):
        piece = FileSlice(f"/data/part-{i:06d}.csv", 0, 1 << 26, 1 << 26, 0, f"{i:032x}")
        tasks.append(Task(Partition((piece,)), f"/out/cache/blocks/{i:032x}.blocks", piece.path, piece.num_bytes))
    path = str(Path(folder, f"{partitions}-{features}.tasks"))
    stored = store_tasks(tasks, path)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    function = RunTask("BuildBlocks", functools.partial(build_partition, spec=spec), path, folder)
    _ = pipeline | beam.Create(stored) | "BuildBlocks" >> beam.ParDo(function)
    coder = beam.coders.registry.get_coder(tuple[int, int])
    return {
        "partitions": partitions,
        "features": features,
        "pipeline_bytes": len(pipeline.to_runner_api().SerializeToString()),
        "element_bytes": len(coder.encode(stored[-1])),
        "task_bytes": round(Path(path).stat().st_size / partitions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--only-plan", metavar="CONFIG", help=argparse.SUPPRESS)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    if options.only_plan:
        print(json.dumps(plan(options.only_plan)))
        return
    planned = plan_files(options.files)
    print("plan: " + ", ".join(f"{key} {value:,}" for key, value in planned.items()))
    graphs = []
    with tempfile.TemporaryDirectory() as folder:
        for partitions in sorted({10, 1000, options.partitions}):
            for features in FEATURES:
                graphs.append(graph(partitions, features, folder))
                print("graph: " + ", ".join(f"{key} {value:,}" for key, value in graphs[-1].items()))
    if options.json:
        Path(options.json).write_text(json.dumps({"plan": planned, "graphs": graphs}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
