"""How fast columns become framed Examples, and what the levels of compression cost.

    python benchmarks/encode.py            encoding, against memcpy, tf.train.Example and tfx_bsl
    python benchmarks/encode.py --levels   compression, the table of docs/format.md

``--json FILE`` writes the figures too.  One thread; medians of ``--repeats`` runs.  Machines differ, so compare the
ratios of one run.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import platform
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.compression import Compression
from transforms.example import Encoder
from transforms.tfrecord import Records

BATCH_BYTES = 8 << 20  # of a batch, about; a build hands batches of this size to the encoder
BLOCK_BYTES = 1 << 20  # raw, of a compressed block
LEVELS = range(1, 10)
LEVEL_SHAPES = ("clicks", "embeddings", "short lists")


def clicks(rows: int) -> pa.RecordBatch:
    """Like the Criteo click logs: a label, 13 integers, 26 short strings."""
    rng = np.random.default_rng(0)
    columns = {"label": pa.array(rng.integers(0, 2, rows))}
    columns |= {f"i{i}": pa.array(rng.integers(0, 10 ** rng.integers(1, 6), rows)) for i in range(13)}
    columns |= {f"c{i}": pa.array([b"%08x" % v for v in rng.integers(0, 50_000, rows)]) for i in range(26)}
    return pa.record_batch(columns)


def embeddings(rows: int) -> pa.RecordBatch:
    values = np.random.default_rng(1).normal(size=rows * 512).astype(np.float32)
    return pa.record_batch({"embedding": pa.FixedSizeListArray.from_arrays(pa.array(values), 512)})


def images(rows: int) -> pa.RecordBatch:
    rng = np.random.default_rng(2)
    return pa.record_batch(
        {"image": pa.array([rng.bytes(100_000) for _ in range(rows)]), "label": pa.array(range(rows))}
    )


def short_lists(rows: int) -> pa.RecordBatch:
    """Four columns of 0 to 9 values: tokens, words, scores, and ids of up to 2^40."""
    rng = np.random.default_rng(3)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 10, rows))]).astype(np.int32)
    n = int(offsets[-1])
    values = {
        "tokens": pa.array(rng.integers(0, 50_000, n).astype(np.int32)),
        "words": pa.array([b"w%d" % v for v in rng.integers(0, 10**6, n)]),
        "scores": pa.array(rng.random(n, dtype=np.float32)),
        "ids": pa.array(rng.integers(0, 2**40, n)),
    }
    return pa.record_batch({name: pa.ListArray.from_arrays(offsets, value) for name, value in values.items()})


def tensors(rows: int) -> pa.RecordBatch:
    """[1024, 1024] int8, nearly all of them from 0 to 127."""
    values = np.abs(np.random.default_rng(4).normal(40, 20, rows << 20)).clip(0, 127).astype(np.int8)
    return pa.record_batch({"pixels": pa.FixedSizeListArray.from_arrays(pa.array(values), 1 << 20)})


SHAPES: dict[str, tuple[Callable[[int], pa.RecordBatch], int]] = {
    "clicks": (clicks, 100_000),
    "embeddings": (embeddings, 20_000),
    "images": (images, 400),
    "short lists": (short_lists, 100_000),
    "tensors": (tensors, 40),
}


def batches_of(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    rows = max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes))
    return [batch.slice(at, rows) for at in range(0, batch.num_rows, rows)]


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    def once() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    once()
    return statistics.median(once() for _ in range(repeats))


def encode_all(batches: list[pa.RecordBatch], out: np.ndarray | None = None) -> int:
    encoder = Encoder(batches[0].schema)
    return sum(encoder.encode(batch, out=out).data.nbytes for batch in batches)


def copy_seconds(parts: list[Records], repeats: int) -> float:
    """memcpy of as many bytes, from batch to batch, into memory that is used again."""
    target = np.empty(max(part.data.nbytes for part in parts), dtype=np.uint8)

    def copy() -> None:
        for part in parts:
            ctypes.memmove(target.ctypes.data, part.data.ctypes.data, part.data.nbytes)

    return median_seconds(copy, repeats)


def write_with_tensorflow(rows: list[dict[str, Any]], path: str) -> None:
    """The loop that tutorials show."""
    import tensorflow as tf

    def feature(value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            features = tf.train.Features(feature={name: feature(value) for name, value in row.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())


def tensorflow_rate(batch: pa.RecordBatch) -> float:
    rows = batch.slice(0, max(2, min(2000, batch.num_rows * (20 << 20) // batch.nbytes // 10))).to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        seconds = median_seconds(lambda: write_with_tensorflow(rows, os.path.join(folder, "x")), 1)
    return len(rows) / seconds


def as_lists(column: pa.Array) -> pa.Array:
    """A column as tfx_bsl takes it: lists of int64, float32 or binary."""
    if not pa.types.is_nested(column.type):
        offsets = pa.array(range(len(column) + 1), pa.int32())
        return pa.ListArray.from_arrays(offsets, column)
    kind = column.type.value_type
    return column.cast(pa.list_(pa.int64() if pa.types.is_integer(kind) else kind))


def tfx_bsl_rate(batch: pa.RecordBatch) -> float:
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    part = batch.slice(0, max(2, min(5000, batch.num_rows // 4)))
    part = pa.record_batch({name: as_lists(part.column(name)) for name in part.schema.names})
    encoder = RecordBatchToExamplesEncoder()
    return int(part.num_rows) / median_seconds(lambda: encoder.encode(part), 3)


def measure_encoding(repeats: int) -> Iterator[dict[str, Any]]:
    for name, (make, rows) in SHAPES.items():
        batch = make(rows)
        batches = batches_of(batch)
        parts = [Encoder(batch.schema).encode(each) for each in batches]
        num_bytes = sum(part.data.nbytes for part in parts)
        out = np.zeros(4 * max(part.data.nbytes for part in parts), dtype=np.uint8)
        fresh = median_seconds(functools.partial(encode_all, batches), repeats)
        reused = median_seconds(functools.partial(encode_all, batches, out), repeats)
        copied = copy_seconds(parts, repeats)
        theirs, loop = tfx_bsl_rate(batch), tensorflow_rate(batch)
        yield {
            "data": name,
            "bytes a row": round(num_bytes / rows),
            "rows/s": round(rows / reused),
            "MB/s": round(num_bytes / reused / 1e6),
            "MB/s, new memory": round(num_bytes / fresh / 1e6),
            "memcpy MB/s": round(num_bytes / copied / 1e6),
            "of memcpy": round(copied / reused, 2),
            "x tfx_bsl": round(rows / reused / theirs, 1),
            "x tf.train.Example": round(rows / reused / loop, 1),
        }


def measure_levels(repeats: int) -> Iterator[dict[str, Any]]:
    raw: dict[str, list[bytes]] = {}
    for name in LEVEL_SHAPES:
        make, _ = SHAPES[name]
        data = Encoder(make(1).schema).encode(make(40_000)).data[: 4 * BLOCK_BYTES].tobytes()
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
    parser.add_argument("--levels", action="store_true", help="measure compression instead of encoding")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    rows = list((measure_levels if options.levels else measure_encoding)(options.repeats))
    print_table(rows)
    if options.json:
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "repeats": options.repeats, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
