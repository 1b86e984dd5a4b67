"""Rows in memory into TFRecord files: ours, what people use instead, and what no writer can beat.

A writer is ``write(source, folder)``: it takes the rows in its own form, which is made before the clock starts, and
leaves files in an empty folder.  ``WRITERS`` has them all.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.data import DATA, batches_of
from transforms.compression import Compression
from transforms.cut import BLOCK_BYTES, BlockCutter
from transforms.example import Encoder
from transforms.files import OutputFile, committed
from transforms.tfrecord import Records


class Source:
    """The rows of a table, in the form of each writer.  ``few`` are the first of them."""

    def __init__(self, data: str, *, rows: int, few: int) -> None:
        self.batch = DATA[data].make(rows)
        self.few = self.batch.slice(0, few)

    @cached_property
    def batches(self) -> list[pa.RecordBatch]:
        return batches_of(self.batch)

    @cached_property
    def few_batches(self) -> list[pa.RecordBatch]:
        return batches_of(self.few)

    @cached_property
    def records(self) -> list[Records]:
        encoder = Encoder(self.batch.schema)
        return [encoder.encode(batch) for batch in self.batches]

    @cached_property
    def blocks(self) -> list[np.ndarray]:
        """The records' bytes, uncompressed, in pieces of ``BLOCK_BYTES``."""
        return [r.data[at : at + BLOCK_BYTES] for r in self.records for at in range(0, r.data.nbytes, BLOCK_BYTES)]

    @cached_property
    def room(self) -> np.ndarray:
        """Memory that has been touched, for the encoded form of any batch."""
        return np.zeros(4 * max(r.data.nbytes for r in self.records), dtype=np.uint8)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Python values by name: int, float, bytes, or lists of them; no entry where the value is missing."""
        return [
            {k: v.encode() if isinstance(v, str) else v for k, v in row.items() if v is not None}
            for row in self.few.to_pylist()
        ]

    @cached_property
    def typed_rows(self) -> list[dict[str, tuple[Any, str]]]:
        """As the package tfrecord takes them: the values of each name, and their kind."""
        kinds = {field.name: _kind(field.type) for field in self.few.schema}
        return [{name: (value, kinds[name]) for name, value in row.items()} for row in self.rows]

    @cached_property
    def serialized(self) -> list[bytes]:
        records = Encoder(self.few.schema).encode(self.few)
        return [bytes(records.payload(i)) for i in range(len(records))]

    @cached_property
    def lists(self) -> list[pa.RecordBatch]:
        """As tfx_bsl takes them: lists of int64, float32 or binary."""
        names = self.batch.schema.names
        return [pa.record_batch([_as_lists(column) for column in batch.columns], names) for batch in self.few_batches]

    @cached_property
    def dataset(self) -> Any:
        """A tf.data.Dataset of rows: a dict of tensors each.  0 and "" stand for what is missing."""
        import tensorflow as tf

        table = pa.Table.from_batches([self.few])
        columns = {name: _as_tensor(table.column(name).combine_chunks()) for name in table.column_names}
        return tf.data.Dataset.from_tensor_slices(columns)

    @cached_property
    def ray_dataset(self) -> Any:
        """Two blocks in Ray's object store, for two tasks."""
        import ray

        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        ray.init(num_cpus=2, ignore_reinit_error=True, **quiet)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        half = self.few.num_rows // 2
        tables = [pa.Table.from_batches([part]) for part in (self.few.slice(0, half), self.few.slice(half))]
        return ray.data.from_arrow(tables).materialize()

    @cached_property
    def csv(self) -> bytes:
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(self.batch, sink)
        return bytes(sink.getvalue())


def _kind(type: pa.DataType) -> str:
    kind = type.value_type if pa.types.is_nested(type) else type
    return "int" if pa.types.is_integer(kind) else "float" if pa.types.is_floating(kind) else "byte"


def _as_lists(column: pa.Array) -> pa.Array:
    targets = {"int": pa.int64(), "float": pa.float32(), "byte": pa.large_binary()}
    target = pa.large_list(targets[_kind(column.type)])
    if pa.types.is_nested(column.type):
        return column.cast(target)
    valid = np.concatenate([[0], np.cumsum(np.asarray(column.is_valid()))])
    values = column.drop_null().cast(target.value_type)
    return pa.LargeListArray.from_arrays(pa.array(valid, pa.int64()), values, mask=column.is_null())


def _as_tensor(column: pa.Array) -> Any:
    import tensorflow as tf

    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    if pa.types.is_nested(column.type):
        values = column.flatten().to_numpy(zero_copy_only=False)
        return tf.RaggedTensor.from_row_splits(values, column.offsets.to_numpy() - column.offsets[0].as_py())
    filled = column.fill_null("" if pa.types.is_string(column.type) else 0) if column.null_count else column
    return filled.to_numpy(zero_copy_only=False)


# Ours


class _Shard:
    """Takes blocks straight into a file."""

    def __init__(self, output: OutputFile) -> None:
        self._output = output

    def add(self, split: str, stored: Any, *, raw_bytes: int, num_records: int, checksum: int) -> None:
        self._output.write(stored)


def write_shard(batches: Sequence[pa.RecordBatch], path: str, compression: Compression) -> None:
    encoder = Encoder(batches[0].schema)
    with committed(path) as output:
        cutter = BlockCutter(_Shard(output), compression, ("all",), shuffle=None, window_bytes=4 << 20)
        for batch in batches:
            cutter.add(encoder.encode(batch), np.zeros(batch.num_rows, np.int32))
        cutter.finish()


def recordmill(source: Source, folder: str, *, level: int, threads: int, few: bool = False) -> None:
    """``level``: of gzip, or 0 for no compression.  A shard a thread."""
    compression = Compression("gzip", level) if level else Compression("none")
    batches = source.few_batches if few else source.batches
    parts = [part for i in range(threads) if (part := batches[i::threads])]
    paths = [os.path.join(folder, f"{i}") for i in range(len(parts))]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(partial(write_shard, compression=compression), parts, paths))


# What people use instead


def serializer() -> Callable[[dict[str, Any]], bytes]:
    """What tutorials do with a row: a Feature of each value or list of values, and an Example of them."""
    from tensorflow.train import BytesList, Example, Feature, Features, FloatList, Int64List

    def feature(value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], bytes):
            return Feature(bytes_list=BytesList(value=values))
        if values and isinstance(values[0], float):
            return Feature(float_list=FloatList(value=values))
        return Feature(int64_list=Int64List(value=values))

    def serialize(row: dict[str, Any]) -> bytes:
        features = Features(feature={name: feature(value) for name, value in row.items()})
        return bytes(Example(features=features).SerializeToString())

    return serialize


def write_serialized(examples: Iterable[bytes], path: str, compression: str) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(path, compression) as writer:
        for example in examples:
            writer.write(example)


def example_loop(source: Source, folder: str, *, compression: str) -> None:
    write_serialized(map(serializer(), source.rows), os.path.join(folder, "loop"), compression)


def tf_data_map(source: Source, folder: str) -> None:
    """As TensorFlow's tutorial on TFRecord does it, with all cores."""
    import tensorflow as tf

    names, serialize = list(source.dataset.element_spec), serializer()

    def to_example(*values: Any) -> bytes:
        return serialize({name: np.asarray(value).tolist() for name, value in zip(names, values, strict=True)})

    mapped = source.dataset.map(
        lambda row: tf.numpy_function(to_example, [row[name] for name in names], tf.string),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    write_serialized(mapped.as_numpy_iterator(), os.path.join(folder, "tf_data"), "")


def tfx_bsl(source: Source, folder: str, *, compression: str) -> None:
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    encoder = RecordBatchToExamplesEncoder()
    examples = (example for batch in source.lists for example in encoder.encode(batch))
    write_serialized(examples, os.path.join(folder, "tfx_bsl"), compression)


def beam_write(source: Source, folder: str) -> None:
    import apache_beam as beam
    from apache_beam.io.filesystem import CompressionTypes

    from runners import direct

    pipeline = direct.pipeline(workers=1, processes=False)
    _ = (
        pipeline
        | beam.Create(source.serialized, reshuffle=False)
        | beam.io.WriteToTFRecord(os.path.join(folder, "beam"), compression_type=CompressionTypes.GZIP)
    )
    pipeline.run().wait_until_finish()


def tfrecord_package(source: Source, folder: str) -> None:
    import tfrecord

    writer = tfrecord.TFRecordWriter(os.path.join(folder, "tfrecord"))
    for row in source.typed_rows:
        writer.write(row)
    writer.close()


def ray_data(source: Source, folder: str) -> None:
    source.ray_dataset.write_tfrecords(folder)


# What no writer can beat


def copy(source: Source, folder: str) -> None:
    """memcpy of the records' bytes, from batch to batch, into memory that is used again."""
    for part in source.records:
        ctypes.memmove(source.room.ctypes.data, part.data.ctypes.data, part.data.nbytes)


def encode(source: Source, folder: str) -> None:
    """Our encoding and framing alone, into the same memory."""
    encoder = Encoder(source.batch.schema)
    for batch in source.batches:
        encoder.encode(batch, out=source.room)


def tfx_bsl_encode(source: Source, folder: str) -> None:
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    encoder = RecordBatchToExamplesEncoder()
    for batch in source.lists:
        encoder.encode(batch)


def pack(source: Source, folder: str, *, threads: int) -> None:
    compression = Compression("gzip", 1)
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda block: len(compression.pack(block, num_records=1).data), source.blocks):
            pass


def plain_write(source: Source, folder: str) -> None:
    """The records' bytes into one file, and onto the disk."""
    with open(os.path.join(folder, "plain"), "wb", buffering=0) as stream:
        for part in source.records:
            stream.write(part.data.data)
        os.fsync(stream.fileno())


def read_csv(source: Source, folder: str) -> None:
    """As the build reads it: a thread for each core, cells parsed to their types."""
    pyarrow.csv.read_csv(pa.BufferReader(source.csv))


@dataclass(frozen=True)
class Writer:
    """``process``: the ones of a name run in one process; TensorFlow and the package tfrecord cannot share theirs.

    ``forms``: the attributes of Source that it takes.  ``few``: it writes the few rows of a table.  ``needs``: the
    package that it imports.
    """

    title: str
    write: Callable[[Source, str], None]
    forms: tuple[str, ...]
    process: str = "recordmill"
    few: bool = False
    needs: str = ""
    csv_only: bool = False


LOOP, LOOP_GZIP = "tf.train.Example loop, TFRecordWriter", "tf.train.Example loop, TFRecordWriter GZIP"
ENCODE, COPY = "encoding and framing alone, 1 core", "memcpy of the records, 1 core"

_TENSORFLOW: dict[str, Any] = {"process": "tensorflow", "needs": "tensorflow"}
_TFX_BSL: dict[str, Any] = {"forms": ("lists",), "few": True, "process": "tensorflow", "needs": "tfx_bsl"}
PEERS = [
    Writer(LOOP, partial(example_loop, compression=""), ("rows",), few=True, **_TENSORFLOW),
    Writer(LOOP_GZIP, partial(example_loop, compression="GZIP"), ("rows",), few=True, **_TENSORFLOW),
    Writer("tf.data map, TFRecordWriter", tf_data_map, ("dataset",), few=True, **_TENSORFLOW),
    Writer("tfrecord (PyPI) writer", tfrecord_package, ("typed_rows",), "tfrecord", few=True, needs="tfrecord"),
    Writer("Ray Data write_tfrecords, 2 tasks", ray_data, ("ray_dataset",), "ray", few=True, needs="ray"),
    Writer("Beam WriteToTFRecord GZIP of serialized rows", beam_write, ("serialized",), few=True, **_TENSORFLOW),
    Writer("tfx_bsl encoder, TFRecordWriter", partial(tfx_bsl, compression=""), **_TFX_BSL),
    Writer("tfx_bsl encoder, TFRecordWriter GZIP", partial(tfx_bsl, compression="GZIP"), **_TFX_BSL),
]
LIMITS = [
    Writer("tfx_bsl encoding alone, not framed, 1 core", tfx_bsl_encode, **_TFX_BSL),
    Writer(ENCODE, encode, ("batches", "room")),
    Writer(COPY, copy, ("records", "room")),
    Writer("gzip 1 of the records alone, 1 thread", partial(pack, threads=1), ("blocks",)),
    Writer("gzip 1 of the records alone, 2 threads", partial(pack, threads=2), ("blocks",)),
    Writer("plain write of the records, fsync", plain_write, ("records",)),
    Writer("pyarrow.csv alone, all cores", read_csv, ("csv",), csv_only=True),
]


def ours(level: int, threads: int) -> Writer:
    """``level``: of gzip, or 0 for no compression."""
    title = f"recordmill {f'gzip {level}' if level else 'none'}, {threads} thread{'s' if threads > 1 else ''}"
    return Writer(title, partial(recordmill, level=level, threads=threads), ("batches",))


OURS = [ours(level, threads) for level in (0, 1) for threads in (1, 2)]
