"""RecordBatches in memory into files on the disk: ours against what people use instead, on the Criteo-like table.

    python benchmarks/write.py                    # 200,000 rows
    python benchmarks/write.py --rows 20000 --repeats 1 --json result.json

Rows are in memory in each writer's own form before the clock starts.  Medians of ``--repeats`` runs; slow peers write a
part of the rows, and their rate counts.  Machines differ and are shared, so compare the ratios of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from table import batches

from transforms.compression import Compression
from transforms.cut import BlockCutter
from transforms.example import Encoder
from transforms.files import OutputFile, committed

BATCH_ROWS = 8192
SLOW_ROWS = 20_000  # of the peers that work row by row


class _Blocks:
    """Blocks straight into a file: a shard."""

    def __init__(self, output: OutputFile) -> None:
        self._output = output

    def add(self, split: str, stored: Any, *, raw_bytes: int, num_records: int, checksum: int) -> None:
        self._output.write(stored)


def write_shard(rows: Sequence[pa.RecordBatch], path: str, compression: Compression) -> None:
    encoder = Encoder(rows[0].schema)
    with committed(path) as output:
        cutter = BlockCutter(_Blocks(output), compression, ("all",), shuffle=None, window_bytes=4 << 20)
        for batch in rows:
            cutter.add(encoder.encode(batch), np.zeros(batch.num_rows, np.int32))
        cutter.finish()


def ours(rows: Sequence[pa.RecordBatch], folder: str, *, compression: Compression, threads: int) -> None:
    parts = [rows[i::threads] for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda i: write_shard(parts[i], os.path.join(folder, f"{i}"), compression), range(threads)))


def example_loop(rows: list[dict[str, Any]], folder: str, *, compression: str) -> None:
    import tensorflow as tf

    features, int64s, byte_lists = tf.train.Feature, tf.train.Int64List, tf.train.BytesList
    with tf.io.TFRecordWriter(os.path.join(folder, "loop"), compression) as writer:
        for row in rows:
            feature = {
                name: features(int64_list=int64s(value=[value]))
                if isinstance(value, int)
                else features(bytes_list=byte_lists(value=[value]))
                for name, value in row.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


def tfx_encoder(rows: Sequence[pa.RecordBatch], folder: str, *, compression: str) -> None:
    import tensorflow as tf
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    encoder = RecordBatchToExamplesEncoder()
    with tf.io.TFRecordWriter(os.path.join(folder, "tfx"), compression) as writer:
        for batch in rows:
            for example in encoder.encode(batch):
                writer.write(example)


def beam_write(serialized: list[bytes], folder: str) -> None:
    import apache_beam as beam
    from apache_beam.io.filesystem import CompressionTypes

    from runners import direct

    pipeline = direct.pipeline(workers=1, processes=False)
    _ = (
        pipeline
        | beam.Create(serialized, reshuffle=False)
        | beam.io.WriteToTFRecord(os.path.join(folder, "beam"), compression_type=CompressionTypes.GZIP)
    )
    pipeline.run().wait_until_finish()


def as_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    offsets = pa.array(np.arange(batch.num_rows + 1, dtype=np.int32))
    columns = [c.cast(pa.binary()) if pa.types.is_string(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays([pa.ListArray.from_arrays(offsets, c) for c in columns], names=batch.schema.names)


def as_rows(rows: Sequence[pa.RecordBatch], count: int) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(rows).slice(0, count)
    return [{k: v.encode() if isinstance(v, str) else v for k, v in row.items()} for row in table.to_pylist()]


def measure(write: Callable[[str], None], rows: int, repeats: int) -> dict[str, float]:
    seconds, size = [], 0
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_DIR")) as folder:
            begin = time.perf_counter()
            write(folder)
            seconds.append(time.perf_counter() - begin)
            size = sum(entry.stat().st_size for entry in os.scandir(folder))
    return {"rows_per_second": rows / statistics.median(seconds), "bytes_per_row": size / rows}


def writers(rows: list[pa.RecordBatch], total: int) -> dict[str, tuple[Callable[[str], None], int]]:
    slow = as_rows(rows, SLOW_ROWS)
    listed = [as_lists(pa.Table.from_batches([batch]).combine_chunks().to_batches()[0]) for batch in rows]
    encoder = Encoder(rows[0].schema)
    records = [encoder.encode(batch) for batch in rows[: -(-SLOW_ROWS // BATCH_ROWS)]]
    serialized = [bytes(r.payload(i)) for r in records for i in range(len(r))]
    plain, fast = Compression("none"), Compression("gzip", 1)
    found: dict[str, tuple[Callable[[str], None], int]] = {
        "Example loop, TFRecordWriter": (lambda f: example_loop(slow, f, compression=""), len(slow)),
        "Example loop, TFRecordWriter GZIP": (lambda f: example_loop(slow, f, compression="GZIP"), len(slow)),
        "tfx_bsl encoder, TFRecordWriter": (lambda f: tfx_encoder(listed, f, compression=""), total),
        "tfx_bsl encoder, TFRecordWriter GZIP": (lambda f: tfx_encoder(listed, f, compression="GZIP"), total),
        "Beam WriteToTFRecord GZIP, serialized rows": (lambda f: beam_write(serialized, f), len(serialized)),
    }
    for threads in (1, 2):
        for name, compression in (
            ("none", plain),
            ("gzip 1", fast),
            *((f"gzip {n}", Compression("gzip", n)) for n in (6, 7)),
        ):
            found[f"recordmill {name}, {threads} threads"] = (
                lambda f, c=compression, t=threads: ours(rows, f, compression=c, threads=t),  # type: ignore[misc]
                total,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    table = pa.Table.from_batches(batches(arguments.rows)).combine_chunks()
    rows = table.to_batches(min(BATCH_ROWS, -(-table.num_rows // 4)))
    figures = {
        name: measure(write, count, arguments.repeats) for name, (write, count) in writers(rows, table.num_rows).items()
    }
    plain, zipped = (figures[f"Example loop, TFRecordWriter{kind}"]["rows_per_second"] for kind in ("", " GZIP"))
    print(f"{'writer':<46}{'rows/s':>12}{'bytes/row':>11}{'× loop':>9}{'× loop GZIP':>13}")
    for name, figure in figures.items():
        rate = figure["rows_per_second"]
        print(f"{name:<46}{rate:>12,.0f}{figure['bytes_per_row']:>11.0f}{rate / plain:>9.1f}{rate / zipped:>13.1f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump(figures, stream, indent=1)


if __name__ == "__main__":
    main()
