"""One split of a version, ready to be read: what the loaders share."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.inspect import read_schema
from pipeline.layout import Layout, Manifest
from transforms.assemble import ShardInfo
from transforms.compression import Compression
from transforms.errors import ConfigError, CorruptError
from transforms.example import decode
from transforms.partition import Block
from transforms.schema import SEQUENCE
from transforms.tfrecord import Records, scan


@dataclass(frozen=True)
class Split:
    """``shards``: those of the split, in order; ``schema``: that of the records, with the features that are wanted;
    ``folder``: the version's."""

    folder: str
    name: str
    shards: tuple[ShardInfo, ...]
    schema: schema_pb2.Schema
    compression: Compression

    @property
    def num_records(self) -> int:
        return sum(shard.num_records for shard in self.shards)

    @property
    def is_sequence(self) -> bool:
        return any(feature.name == SEQUENCE for feature in self.schema.feature)

    def path(self, shard: ShardInfo) -> str:
        return os.path.join(self.folder, shard.split, shard.name)

    def blocks(self) -> list[tuple[ShardInfo, Block]]:
        """All blocks, in order."""
        return [(shard, block) for shard in self.shards for block in shard.blocks]

    def read_block(self, shard: ShardInfo, block: Block) -> Records:
        """The records of a block, checked.  Raises CorruptError, which names the shard."""
        path = self.path(shard)
        with open(path, "rb") as stream:
            stream.seek(block.offset)
            stored = stream.read(block.num_bytes)
        return scan(self.compression.unpack(stored, raw_bytes=block.raw_bytes, name=path), name=path)

    def decode(self, payloads: list[bytes]) -> pa.RecordBatch:
        """Examples as columns of lists; SequenceExamples with lists of lists for their steps."""
        return decode(pa.array(payloads, pa.binary()), self.schema, sequence=self.is_sequence)


def open_split(dir: str, split: str, *, version: str | None = None, features: Collection[str] | None = None) -> Split:
    """The split of a version, by default the latest.

    Raises ConfigError when there is no such version, split or feature; CorruptError when a shard is missing or has not
    its size.
    """
    layout = Layout(dir)
    chosen = layout.find(version)
    folder = layout.version_dir(chosen)
    manifest = Manifest.load(layout.manifest_path(chosen))
    if split not in manifest.splits:
        raise ConfigError(f"{dir}: version {chosen} has no split {split!r}; it has {', '.join(manifest.splits)}")
    found = Split(
        folder, split, manifest.splits[split], _with(read_schema(folder), features, dir), manifest.compression
    )
    for shard in found.shards:
        path = found.path(shard)
        size = os.path.getsize(path) if os.path.exists(path) else None
        if size != shard.num_bytes:
            what = "is missing" if size is None else f"has {size} bytes, and was published with {shard.num_bytes}"
            raise CorruptError(f"{path} {what}; `recordmill repair {dir}` makes it again")
    return found


def check_shard(shard: tuple[int, int]) -> None:
    """Raises ConfigError for what is no reader's number, and how many read together."""
    index, count = shard
    if not 0 <= index < count:
        raise ConfigError(f"shard=({index}, {count}): must be this reader's number, from 0, and how many there are")


def _with(schema: schema_pb2.Schema, features: Collection[str] | None, dir: str) -> schema_pb2.Schema:
    if features is None:
        return schema
    names = [name for _, name in _names(schema)]
    for name in features:
        if name not in names:
            raise ConfigError(f"{dir}: has no feature {name!r}; it has {', '.join(names)}")
    kept = schema_pb2.Schema()
    kept.CopyFrom(schema)
    for owner in (kept, *(f.struct_domain for f in kept.feature if f.name == SEQUENCE)):
        chosen = [feature for feature in owner.feature if feature.name in features or feature.name == SEQUENCE]
        del owner.feature[:]
        owner.feature.extend(feature for feature in chosen if feature.name != SEQUENCE or feature.struct_domain.feature)
    return kept


def _names(schema: schema_pb2.Schema) -> Iterator[tuple[schema_pb2.Feature, str]]:
    for feature in schema.feature:
        if feature.name == SEQUENCE:
            yield from ((inner, inner.name) for inner in feature.struct_domain.feature)
        else:
            yield feature, feature.name
