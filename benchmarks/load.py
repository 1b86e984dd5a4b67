"""How fast what was built is read: our loaders beside tf.data by hand, the PyPI package tfrecord, and ArrayRecord.

    python -m benchmarks.load

``--json FILE`` writes the figures too.  All read the same rows in one run, all features of them, from local files that
the system has in memory; medians of ``--repeats`` rounds in turn.  ``tfrecord`` reads a part, since it is slow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import yaml
from pyarrow import parquet

from benchmarks.data import clicks
from pipeline.build import build
from pipeline.config import load
from pipeline.load import Records, Split, arrays, batches, dataset, feature_spec, open_split

BATCH = 512
PICKS = 2_000
FEW = 5_000  # rows for a reader in Python


def by_hand(split: Split) -> tf.data.Dataset:
    """What the guide to tf.data performance says: files side by side, batches parsed at once, side by side, ahead."""
    spec = feature_spec(split)
    paths = [split.path(shard) for shard in split.shards]
    return (
        tf.data.Dataset.from_tensor_slices(paths)
        .interleave(
            lambda path: tf.data.TFRecordDataset(path, "GZIP"),
            cycle_length=len(paths),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=False,
        )
        .batch(BATCH)
        .map(
            lambda serialized: tf.io.parse_example(serialized, spec),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=False,
        )
        .prefetch(tf.data.AUTOTUNE)
    )


def rows_of(found: Any) -> int:
    return sum(len(batch["label"]) for batch in found)


TFRECORD_PACKAGE = """
import itertools, sys, time
from tfrecord.reader import tfrecord_loader
begin = time.perf_counter()
rows = sum(1 for _ in itertools.islice(tfrecord_loader(sys.argv[1], None, compression_type="gzip"), int(sys.argv[2])))
print(rows / (time.perf_counter() - begin))
"""


def tfrecord_package(split: Split) -> float:
    """Rows a second, in a process of its own: it and TensorFlow declare the same protobuf messages."""
    command = [sys.executable, "-c", TFRECORD_PACKAGE, split.path(split.shards[0]), str(FEW)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def readers(split: Split) -> dict[str, Callable[[], int]]:
    return {
        "tf.data by hand": lambda: rows_of(by_hand(split)),
        "`dataset`": lambda: rows_of(dataset(split, batch_size=BATCH, deterministic=False)),
        "`dataset` in order": lambda: rows_of(dataset(split, batch_size=BATCH)),
        "`dataset`, 10,000 rows shuffled": lambda: rows_of(dataset(split, batch_size=BATCH, shuffle=10_000)),
        "`batches` (Arrow)": lambda: sum(batch.num_rows for batch in batches(split)),
        "`arrays` (numpy)": lambda: rows_of(arrays(split, batch_size=BATCH)),
    }


def measure(split: Split, repeats: int) -> Iterator[dict[str, Any]]:
    all_readers = readers(split)
    rates: dict[str, list[float]] = {name: [] for name in all_readers}
    for _ in range(repeats):
        for name, read in all_readers.items():
            begin = time.perf_counter()
            rows = read()
            rates[name].append(rows / (time.perf_counter() - begin))
        rates.setdefault("package tfrecord", []).append(tfrecord_package(split))
    first = statistics.median(rates["tf.data by hand"])
    for name, found in rates.items():
        yield {
            "reader": name,
            "rows_per_second": statistics.median(found),
            "ratio": statistics.median(found) / first,
        }


def array_record(split: Split, folder: Path) -> Any:
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(folder / "data.array_record")
    writer = ArrayRecordWriter(path, "group_size:1")
    records = Records(split, raw=True, cached_blocks=1)
    for i in range(len(records)):
        writer.write(records[i])
    writer.close()
    return ArrayRecordDataSource(path), Path(path).stat().st_size


def measure_picks(split: Split, folder: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Single records: in order, as a shuffle inside blocks reads them, and anywhere."""
    theirs, their_bytes = array_record(split, folder)
    ours = Records(split, raw=True)
    our_bytes = sum(shard.num_bytes for shard in split.shards)
    picks = np.random.default_rng(0).integers(0, len(ours), PICKS).tolist()
    for name, source, num_bytes in (("`Records`", ours, our_bytes), ("ArrayRecord, one a group", theirs, their_bytes)):
        seconds: dict[str, list[float]] = {"in order": [], "anywhere": []}
        for _ in range(repeats):
            for order, places in (("in order", range(PICKS)), ("anywhere", picks)):
                begin = time.perf_counter()
                for place in places:
                    source[place]
                seconds[order].append(time.perf_counter() - begin)
        yield {
            "source": name,
            "megabytes": num_bytes / 1e6,
            **{f"{order} (µs)": statistics.median(found) / PICKS * 1e6 for order, found in seconds.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        parquet.write_table(pa.Table.from_batches([clicks(options.rows)]), f"{folder}/data.parquet")
        config = {
            "name": "clicks",
            "source": {"format": "parquet", "files": "data.parquet"},
            "output": {"dir": "out", "shards": 8},
        }
        Path(folder, "c.yaml").write_text(yaml.safe_dump(config))
        build(load(f"{folder}/c.yaml"))
        split = open_split(f"{folder}/out", "all")
        figures = list(measure(split, options.repeats))
        picks = list(measure_picks(split, Path(folder), options.repeats))
    print("| reader | rows/s | : tf.data by hand |\n|---|---|---|")
    for found in figures:
        print("| {reader} | {rows_per_second:,.0f} | {ratio:.2f} |".format(**found))
    print("\n| single records | MB | in order (µs) | anywhere (µs) |\n|---|---|---|---|")
    for pick in picks:
        print("| {source} | {megabytes:.1f} | {in order (µs):,.1f} | {anywhere (µs):,.1f} |".format(**pick))
    if options.json:
        Path(options.json).write_text(json.dumps({"readers": figures, "picks": picks}, indent=2) + "\n")


if __name__ == "__main__":
    main()
