"""One partition of the source into blocks of Examples: the work of the build, and the unit that is cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from transforms.blockfile import BlockFile, BlockFileWriter, Counts, SliceRow, write_block_file
from transforms.compression import Compression
from transforms.cut import BlockCutter, ShuffleSeed
from transforms.domains import DomainCheck
from transforms.errors import BadRowsError, SchemaError
from transforms.example import Encoder
from transforms.files import write_checked
from transforms.fingerprint import digest, library_version
from transforms.infer import Profile, merge, profile, to_schema
from transforms.partition import BadRow, Partition
from transforms.passes import profile_partition
from transforms.preprocess import TransformGraph
from transforms.rows import FeatureRows, PartitionRows, RowSpec
from transforms.shuffle import random_keys
from transforms.statistics import Collector, to_bytes
from transforms.tensors import describe_row
from transforms.tfrecord import Records
from transforms.timing import step

BUILD_FORMAT = 4  # raised when the same inputs give other bytes
LIBRARIES = ("pyarrow", "isal", "deflate", "zlib-ng")  # whose versions may change the bytes


@dataclass(frozen=True)
class Transform:
    """A transform graph: the folder it lies in, a hash of what it computes, and one of each analyzer's result."""

    path: str = field(compare=False)
    digest: str
    results: Mapping[str, str] = field(default_factory=dict, compare=False)


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
                "libraries": {name: library_version(name) for name in LIBRARIES},
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

    A function of the partition's content and the spec: run again, it writes the same bytes.  Bad rows stand in the
    file too.  Raises BadRowsError when there are more than may be; nothing is committed then.
    """
    with write_block_file(path) as writer:
        _build(PartitionRows(partition, spec.rows), writer, spec)


def build_ahead(argument: tuple[Partition, str], path: str, *, spec: BuildSpec, guess: Profile) -> None:
    """Commits the partition's profile as ``path`` and, if its rows are as guessed, its block file, in one pass.

    ``argument``: the partition, and the path of the block file.  ``guess``: what other partitions say, of which the
    spec's schema was made.  Where the rows say another schema, ``build_partition`` has to be run once all is known.
    """
    partition, block_path = argument
    profiles: list[Profile] = []
    rows = PartitionRows(partition, spec.rows, on_raw=lambda raw: profiles.append(profile([raw])))
    try:
        with write_block_file(block_path) as writer:
            _build(rows, writer, spec)
            found = merge(profiles)
            if to_schema(merge([guess, found])) != spec.rows.schema or any(row.column for row in rows.bad_rows):
                raise _NotAsGuessed
    except (SchemaError, BadRowsError, _NotAsGuessed):
        profile_partition(
            partition, path, source=spec.rows.source, bad_row_limit=spec.rows.bad_row_limit, redact=spec.rows.redact
        )
    else:
        write_checked(path, found.to_json())


class _NotAsGuessed(Exception):
    pass


def _build(rows: PartitionRows, writer: BlockFileWriter, spec: BuildSpec) -> None:
    partition, statistics = rows.partition, Collector(spec.rows.splitter.names)
    examples = ExampleMaker(spec, on_features=statistics.look)
    shuffle = ShuffleSeed(spec.seed, partition.fingerprint) if spec.shuffle == "blocks" else None
    cutter = BlockCutter(writer, spec.stored_as, spec.groups(partition.span), shuffle=shuffle)
    domains = DomainCheck(spec.rows.schema)
    for batch in rows:
        with step("check"):
            domains.look(batch.features)
        records, group = examples.of(batch, on_bad_row=rows.bad_rows.append)
        if spec.shuffle == "rows":
            group = group * spec.buckets_of(partition.span) + _deal(partition, cutter.num_records, len(group), spec)
        cutter.add(records, group)
    cutter.finish()
    rows.check()
    with step("statistics"):
        found = to_bytes(statistics.finish())
    writer.finish(
        Counts(
            rows_read=rows.rows_read,
            rows_written=cutter.num_records,
            bad_rows=len(rows.bad_rows),
            keyless_rows=rows.keyless_rows,
            dropped_rows=rows.dropped_rows,
            removed_rows=rows.removed_rows,
            raw_bytes=partition.num_bytes,
        ),
        _in_slices(partition, rows.bad_rows),
        domains,
        found,
    )


def _in_slices(partition: Partition, rows: Sequence[BadRow]) -> list[SliceRow]:
    """In the order in which they stand; a row's slice is the last one of its file that begins before it."""
    found = []
    for row in rows:
        starts = [(i, s.first_row) for i, s in enumerate(partition.slices) if s.path == row.path]
        i, first = max((i, first) for i, first in starts if first <= row.row)
        found.append(SliceRow(i, row.row - first, row.column, row.value, row.reason))
    return sorted(found, key=lambda row: (row.slice, row.row))


def bad_rows(partition: Partition, file: BlockFile) -> list[BadRow]:
    """The bad rows of the partition's block file, by the names and ordinals of today."""
    return [
        BadRow(s.path, s.first_row + row.row, row.column, row.value, row.reason)
        for row in file.bad_rows
        for s in (partition.slices[row.slice],)
    ]


def _deal(partition: Partition, first: int, size: int, spec: BuildSpec) -> np.ndarray:
    """The bucket of each of the next rows (int32): pseudo-random, from the rows' place in the partition."""
    keys = random_keys(size, "bucket", spec.seed, partition.fingerprint, first)
    return (keys % np.uint64(spec.buckets_of(partition.span))).astype(np.int32)


class ExampleMaker:
    """Feature batches into framed Examples, through the transform graph when there is one.

    ``on_features`` is shown what is encoded, with the index of the split of each row.
    """

    def __init__(self, spec: BuildSpec, *, on_features: Callable[[pa.RecordBatch, np.ndarray], None]) -> None:
        self._on_features = on_features
        self._sequence = spec.rows.schema.sequence
        with step("load"):
            self._graph = TransformGraph(spec.transform.path, spec.rows.schema) if spec.transform else None
        self._encoder: tuple[pa.Schema, Encoder] | None = None

    def of(self, rows: FeatureRows, *, on_bad_row: Callable[[BadRow], None]) -> tuple[Records, np.ndarray]:
        """The Examples, and the index of the split of each (int32).

        A row on which the transform graph fails goes to ``on_bad_row``.
        """
        batch, split = rows.features, rows.split
        try:
            if self._graph:
                with step("preprocess"):
                    batch, failed = self._graph.transform_good(batch)
                for position, reason in failed.items():
                    shown = describe_row(rows.features, position)
                    on_bad_row(BadRow(rows.path, int(rows.rows[position]), None, shown, reason))
                split = np.delete(split, list(failed))
            if self._encoder is None or self._encoder[0] != batch.schema:
                self._encoder = (batch.schema, Encoder(batch.schema, sequence=self._sequence))
            with step("encode"):
                records = self._encoder[1].encode(batch)
        except SchemaError as error:
            first = int(rows.rows[0]) + 1 if len(rows.rows) else 1
            raise SchemaError(f"{rows.path}, in the rows from {first} on: {error}") from error
        with step("statistics"):
            self._on_features(batch, split)
        return records, split
