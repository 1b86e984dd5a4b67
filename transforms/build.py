"""One partition of the source into blocks of Examples: the work of the build, and the unit that is cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np
import pyarrow as pa

from transforms.blockfile import Counts, write_block_file
from transforms.compression import Compression
from transforms.cut import BlockCutter, ShuffleSeed
from transforms.errors import BadRowsError, SchemaError
from transforms.example import Encoder
from transforms.fingerprint import digest
from transforms.partition import Partition
from transforms.preprocess import TransformGraph
from transforms.rows import FeatureRows, PartitionRows, RowSpec
from transforms.shuffle import random_keys
from transforms.tfrecord import Records

BUILD_FORMAT = 1  # raised when the same inputs give other bytes
LIBRARIES = ("pyarrow", "isal", "deflate", "zlib-ng")  # whose versions may change the bytes


@dataclass(frozen=True)
class Transform:
    """A transform graph: the folder it lies in, and the digest of all that it was made from."""

    path: str = field(compare=False)
    digest: str


@dataclass(frozen=True)
class BuildSpec:
    """Everything besides the partition that the bytes of its blocks depend on.

    ``shuffle``: ``none`` keeps the order of the rows; ``blocks`` permutes them inside windows of the partition, and
    the blocks later among each other; ``rows`` deals those of each span and split to buckets, which are permuted later.
    ``buckets``: how many, by span.
    """

    rows: RowSpec
    compression: Compression
    transform: Transform | None
    shuffle: str
    seed: int
    buckets: Mapping[str, int] = field(default_factory=dict)

    def key(self, partition: Partition) -> str:
        """The name of the partition's block file: a hash of its content and of all that shapes its blocks."""
        return digest(
            {
                "format": BUILD_FORMAT,
                "partition": partition.fingerprint,
                "rows": self.rows.key(),
                "compression": self.stored_as,
                "transform": self.transform.digest if self.transform else None,
                "shuffle": self.shuffle,
                "seed": None if self.shuffle == "none" else self.seed,
                "buckets": self.buckets_of(partition.span),
                "libraries": {name: version(name) for name in LIBRARIES},
            }
        )

    @property
    def stored_as(self) -> Compression:
        """Buckets are packed again once they are shuffled: until then speed is all that counts."""
        return Compression("gzip", 1) if self.shuffle == "rows" else self.compression

    def buckets_of(self, span: str) -> int:
        return self.buckets.get(span, 1)

    def groups(self, span: str) -> tuple[str, ...]:
        """What blocks are told apart by: their split or, when all rows are shuffled, their bucket in it."""
        if self.shuffle != "rows":
            return self.rows.splitter.names
        return tuple(bucket_name(split, i) for split in self.rows.splitter.names for i in range(self.buckets_of(span)))


def bucket_name(split: str, bucket: int) -> str:
    return f"{split}#{bucket}"


def build_partition(partition: Partition, path: str, *, spec: BuildSpec) -> None:
    """Reads the partition, makes Examples of its rows and commits them as the block file ``path``.

    A function of the partition's content and the spec: run again, it writes the same bytes.  Raises BadRowsError when
    rows could not become Examples; nothing is committed then.
    """
    rows = PartitionRows(partition, spec.rows)
    examples = ExampleMaker(spec)
    shuffle = ShuffleSeed(spec.seed, partition.fingerprint) if spec.shuffle == "blocks" else None
    with write_block_file(path) as writer:
        cutter = BlockCutter(writer, spec.stored_as, spec.groups(partition.span), shuffle=shuffle)
        for batch in rows:
            group = batch.split
            if spec.shuffle == "rows":
                group = group * spec.buckets_of(partition.span) + _deal(partition, cutter.num_records, len(group), spec)
            cutter.add(examples.of(batch), group)
        cutter.finish()
        if rows.bad_rows:
            raise BadRowsError(rows.bad_rows)
        writer.finish(
            Counts(
                rows_read=rows.rows_read,
                rows_written=cutter.num_records,
                bad_rows=len(rows.bad_rows),
                keyless_rows=rows.keyless_rows,
                dropped_rows=rows.dropped_rows,
                raw_bytes=partition.num_bytes,
            )
        )


def _deal(partition: Partition, first: int, size: int, spec: BuildSpec) -> np.ndarray:
    """The bucket of each of the next rows (int32): pseudo-random, from the rows' place in the partition."""
    keys = random_keys(size, "bucket", spec.seed, partition.fingerprint, first)
    return (keys % np.uint64(spec.buckets_of(partition.span))).astype(np.int32)


class ExampleMaker:
    """Feature batches into framed Examples, through the transform graph when there is one."""

    def __init__(self, spec: BuildSpec) -> None:
        self._sequence = spec.rows.schema.sequence
        self._graph = TransformGraph(spec.transform.path, spec.rows.schema) if spec.transform else None
        self._encoder: tuple[pa.Schema, Encoder] | None = None

    def of(self, rows: FeatureRows) -> Records:
        batch = self._graph.transform(rows.features) if self._graph else rows.features
        try:
            if batch.num_rows != rows.features.num_rows:
                raise SchemaError(
                    f"preprocessing_fn made {batch.num_rows} rows of {rows.features.num_rows}; each of its outputs "
                    "must have one row for each row of the inputs"
                )
            if self._encoder is None or self._encoder[0] != batch.schema:
                self._encoder = (batch.schema, Encoder(batch.schema, sequence=self._sequence))
            return self._encoder[1].encode(batch)
        except SchemaError as error:
            first = int(rows.raw.rows[0]) + 1 if len(rows.raw.rows) else 1
            raise SchemaError(f"{rows.raw.path}, in the rows from {first} on: {error}") from error
