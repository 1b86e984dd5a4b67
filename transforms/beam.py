"""Transforms for your own Beam pipelines: RecordBatches into compressed blocks, and anything into TFRecord shards.

They share their code with the build.  Elements are Arrow RecordBatches (of up to some thousand rows: a batch is encoded
as a whole); ``WriteToTFRecord`` also takes ``tf.train.Example`` messages and serialized bytes, one record each.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsList, PCollection
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from transforms.assemble import ShardInfo, assemble_shard
from transforms.blockfile import BlockFile, Counts, read_block_file, write_block_file
from transforms.compression import Compression
from transforms.cut import BLOCK_BYTES, BlockCutter
from transforms.deal import ShardPlan, deal, num_shards, order_blocks, shard_name
from transforms.errors import OutputError
from transforms.example import Encoder
from transforms.files import TEMPORARY, sync_folder
from transforms.fingerprint import digest
from transforms.tfrecord import Records, frame

SHARD_BYTES = 128 << 20
_PENDING_BYTES = 1 << 20  # of single records that are framed together
_GROUP = "records"


@dataclass(frozen=True)
class EncodedBlock:
    """Framed records of Examples, compressed as one piece: with gzip a member, which alone is a TFRecord file."""

    data: bytes
    num_records: int
    raw_bytes: int  # before compression


class EncodeExamples(beam.PTransform[PCollection[pa.RecordBatch], PCollection[EncodedBlock]]):
    """PCollection of RecordBatch in, PCollection of EncodedBlock out, of about 1 MiB before compression each.

    All rows of a bundle come out, in their order.  What a column becomes says ``transforms.example``, which also says
    what raises SchemaError.
    """

    def __init__(self, *, compression: Compression | None = None, label: str | None = None) -> None:
        super().__init__(label)
        self._compression = compression or Compression("gzip")

    def expand(self, batches: PCollection[pa.RecordBatch]) -> PCollection[EncodedBlock]:
        blocks: PCollection[EncodedBlock] = batches | "EncodeBlocks" >> beam.ParDo(_EncodeBlocks(self._compression))
        return blocks


class WriteToTFRecord(beam.PTransform[PCollection[Any], PCollection[ShardInfo]]):
    """PCollection of RecordBatch, tf.train.Example or bytes in, PCollection of ``assemble.ShardInfo`` out.

    Writes ``<file_path_prefix>-00000-of-00004.tfrecord.gz`` and so on.  ``num_shards``: exactly so many, or as many as
    there are records; without it, as many as ``shard_bytes`` stored bytes fill.  The shards hold equal numbers of
    records, give or take one.  A shard appears whole, when all are ready; shards that an earlier run left under the
    same prefix go then, and no other file is touched.  Retried bundles write nothing twice.  Without records there are
    no shards.  The order of records is that of their bundles inside a bundle, else any.

    Raises OutputError, which names the path, when a file cannot be written.
    """

    def __init__(
        self,
        file_path_prefix: str,
        *,
        num_shards: int | None = None,
        shard_bytes: int = SHARD_BYTES,
        compression: Compression | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__(label)
        if num_shards is not None and num_shards < 1:
            raise ValueError(f"num_shards is {num_shards}; give 1 or more, or leave it out and set shard_bytes")
        if shard_bytes < 1:
            raise ValueError(f"shard_bytes is {shard_bytes}; give the stored bytes of a shard, such as {SHARD_BYTES}")
        self._shards = _Shards(
            prefix=os.path.abspath(file_path_prefix),
            temporary=f"{os.path.abspath(file_path_prefix)}{TEMPORARY}{uuid.uuid4().hex[:12]}",
            num_shards=num_shards,
            shard_bytes=shard_bytes,
            compression=compression or Compression("gzip"),
        )

    def expand(self, elements: PCollection[Any]) -> PCollection[ShardInfo]:
        once = elements.pipeline | "Once" >> beam.Create([None])
        block_files = elements | "WriteBlocks" >> beam.ParDo(_WriteBlocks(self._shards))
        plans = once | "DealBlocks" >> beam.FlatMap(self._shards.plan, AsList(block_files))
        shards = plans | beam.Reshuffle() | "AssembleShards" >> beam.Map(self._shards.assemble)
        published: PCollection[ShardInfo] = once | "PublishShards" >> beam.FlatMap(self._shards.publish, AsList(shards))
        return published


@dataclass(frozen=True)
class _Shards:
    """What WriteToTFRecord was asked for, and the steps after its blocks are written."""

    prefix: str
    temporary: str  # a folder for block files and shards that are not published yet
    num_shards: int | None
    shard_bytes: int
    compression: Compression

    def plan(self, _: None, block_files: Iterable[str]) -> Iterator[ShardPlan]:
        indexes = sorted((read_block_file(path) for path in block_files), key=_content)
        pieces = order_blocks(indexes, _GROUP, shuffle_seed=None)
        count = num_shards(pieces, shards=self.num_shards, shard_bytes=self.shard_bytes)
        stem = os.path.basename(self.prefix)
        for i, run in enumerate(deal(pieces, count)):
            yield ShardPlan(_GROUP, shard_name(stem, i, count=count, suffix=self.compression.suffix), run)

    def assemble(self, plan: ShardPlan) -> ShardInfo:
        return assemble_shard(plan, os.path.join(self.temporary, "shards"), compression=self.compression)

    def publish(self, _: None, shards: Iterable[ShardInfo]) -> Iterator[ShardInfo]:
        """Gives the shards their names and removes those of an earlier run; run again, it finds that done."""
        folder, stem = os.path.split(self.prefix)
        ready = sorted(shards, key=lambda shard: shard.name)
        with _naming(folder):
            for shard in ready:
                staged, final = os.path.join(self.temporary, "shards", shard.name), os.path.join(folder, shard.name)
                if os.path.exists(staged):
                    os.replace(staged, final)
                elif not os.path.exists(final) or os.path.getsize(final) != shard.num_bytes:
                    raise OutputError(f"{final}: the shard that was written for it is gone; run the pipeline again")
            names = {shard.name for shard in ready}
            pattern = re.compile(re.escape(stem) + r"-\d{5,}-of-\d{5,}\.tfrecord(\.gz|\.zlib)?")
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if name not in names and pattern.fullmatch(name):
                    os.unlink(os.path.join(folder, name))
            if os.path.isdir(folder):
                sync_folder(folder)
            shutil.rmtree(self.temporary, ignore_errors=True)
        yield from ready


def _content(block_file: BlockFile) -> str:
    """Bundles come in any order: that of their content is the same each time."""
    return digest([[block.crc32c, block.num_bytes, block.num_records] for block in block_file.blocks])


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{error.filename or path}: cannot be written: {error.strerror or error}") from error


class _Framer:
    """Elements into framed records: a batch at once, single records some at a time."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def add(self, element: Any) -> Iterator[Records]:
        if isinstance(element, pa.RecordBatch):
            yield from self.finish()
            if self._encoder is None or self._encoder.schema != element.schema:
                self._encoder = Encoder(element.schema)
            yield self._encoder.encode(element)
            return
        self._pending.append(_serialized(element))
        self._pending_bytes += len(self._pending[-1])
        if self._pending_bytes >= _PENDING_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[Records]:
        if self._pending:
            offsets = np.cumsum([0, *map(len, self._pending)], dtype=np.int64)
            yield frame(b"".join(self._pending), offsets)
            self._pending, self._pending_bytes = [], 0


class _WriteBlocks(beam.DoFn):
    """Elements in; the path of the bundle's block file out.

    What a failed bundle leaves half written goes with the temporary folder.
    """

    def __init__(self, shards: _Shards) -> None:
        self._shards = shards

    def start_bundle(self) -> None:
        self._framer = _Framer()
        self._open: contextlib.ExitStack | None = None

    def process(self, element: Any) -> Iterator[str]:
        self._cut(self._framer.add(element))
        yield from ()

    def _cut(self, parts: Iterable[Records]) -> None:
        for records in parts:
            if self._open is None:
                self._path = os.path.join(self._shards.temporary, "blocks", f"{uuid.uuid4().hex}.blocks")
                self._open = contextlib.ExitStack()
                self._writer = self._open.enter_context(write_block_file(self._path))
                self._cutter = BlockCutter(self._writer, self._shards.compression, (_GROUP,), shuffle=None)
            self._cutter.add(records, np.zeros(len(records), dtype=np.int32))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._cut(self._framer.finish())
        if self._open is None:
            return
        with self._open:
            self._cutter.finish()
            count = self._cutter.num_records
            self._writer.finish(Counts(rows_read=count, rows_written=count))
        yield _in_global_window(self._path)


class _EncodeBlocks(beam.DoFn):
    """RecordBatches in; the bundle's blocks out, as they are complete."""

    def __init__(self, compression: Compression) -> None:
        self._compression = compression

    def start_bundle(self) -> None:
        self._framer = _Framer()
        self._blocks = _Blocks()
        self._cutter = BlockCutter(self._blocks, self._compression, (_GROUP,), shuffle=None, window_bytes=BLOCK_BYTES)

    def process(self, batch: pa.RecordBatch) -> Iterator[EncodedBlock]:
        for records in self._framer.add(batch):
            self._cutter.add(records, np.zeros(len(records), dtype=np.int32))
        yield from self._blocks.take()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        self._cutter.finish()
        for block in self._blocks.take():
            yield _in_global_window(block)


class _Blocks:
    """Blocks that were cut and not handed on yet."""

    def __init__(self) -> None:
        self._ready: list[EncodedBlock] = []

    def add(self, split: str, stored: bytes | memoryview, *, raw_bytes: int, num_records: int, checksum: int) -> None:
        self._ready.append(EncodedBlock(bytes(stored), num_records, raw_bytes))

    def take(self) -> list[EncodedBlock]:
        taken, self._ready = self._ready, []
        return taken


def _serialized(element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    if hasattr(element, "SerializeToString"):
        return bytes(element.SerializeToString(deterministic=True))
    raise TypeError(
        f"WriteToTFRecord takes pyarrow.RecordBatch, tf.train.Example and bytes, not {type(element).__name__}"
    )


def _in_global_window(value: Any) -> WindowedValue:
    return WindowedValue(value, GlobalWindow().max_timestamp(), (GlobalWindow(),))
