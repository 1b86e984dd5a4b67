"""What a build has to do: the partitions of the source, and the place of each result in the cache."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.config import Config
from transforms.bucket import num_buckets
from transforms.build import BuildSpec, Transform
from transforms.compression import Compression
from transforms.errors import ConfigError, CorruptError
from transforms.partition import Partition
from transforms.rows import RowSpec
from transforms.schema import Schema
from transforms.split import Splitter

PARTITION_BYTES = 64 << 20  # raw bytes of the source: the unit of work and of the cache

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class Cache:
    """Files named by the hash of all that they were made from: what is there need not be made again."""

    folder: str

    def path(self, kind: str, key: str, suffix: str) -> str:
        return os.path.join(self.folder, kind, key + suffix)


def remove_damaged(paths: Iterable[str], read: Callable[[str], object]) -> None:
    """Removes the entries of the cache that ``read`` finds damaged, so that they are made again, and says so."""
    for path in paths:
        if os.path.exists(path):
            try:
                read(path)
            except CorruptError as error:
                log.warning("%s", error)
                os.unlink(path)


def list_partitions(config: Config, files_by_span: Mapping[str, Sequence[str]] | None = None) -> list[Partition]:
    """The source, or some files of it, cut into partitions; all of it is read once, for the hashes of its content."""
    source = config.source_spec.open()
    begun = Counter[str]()
    placed = []
    for span, paths in (config.files_by_span if files_by_span is None else files_by_span).items():
        for partition in source.partitions(paths, target_bytes=PARTITION_BYTES):
            name = config.written(partition.slices[0].path)
            placed.append(replace(partition, span=span, place=f"{name}#{begun[name]}"))
            begun[name] += 1
    return placed


def row_spec(config: Config, schema: Schema) -> RowSpec:
    if schema.sequence and config.preprocess:
        raise ConfigError(
            f"{config.path}: preprocess takes Examples, and the schema makes SequenceExamples of feature lists "
            f"({', '.join(sorted(schema.sequence))}); leave preprocess out, or declare these features as ragged"
        )
    return RowSpec(
        source=config.source_spec,
        schema_text=schema.to_text(),
        splitter=Splitter.of(config.split_fractions, keys=config.split_by or ()),
        bad_row_limit=config.max_bad_rows,
        redact=config.redact or (),
    )


def build_spec(
    config: Config, rows: RowSpec, partitions: Sequence[Partition], transform: Transform | None
) -> BuildSpec:
    output = config.output
    num_bytes = Counter[str]()
    for partition in partitions:
        num_bytes[partition.span] += partition.num_bytes
    return BuildSpec(
        rows=rows,
        compression=Compression(name=output.compression, level=output.level, gzip_members=output.gzip_members),
        transform=transform,
        shuffle=output.shuffle,
        seed=output.seed,
        buckets={span: num_buckets(size) for span, size in num_bytes.items()} if output.shuffle == "rows" else {},
    )
