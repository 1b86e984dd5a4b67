"""What an output folder holds: its versions, and of one version the splits, the shards, the features and some rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.layout import SCHEMA, Layout, Manifest
from transforms.assemble import ShardInfo
from transforms.compression import Compression
from transforms.errors import ConfigError, CorruptError
from transforms.example import decode
from transforms.schema import SEQUENCE
from transforms.tfrecord import scan

TRANSFORMED_SCHEMA = os.path.join("transformed_metadata", SCHEMA)


@dataclass(frozen=True)
class VersionSummary:
    version: str
    created: str
    num_records: int
    num_bytes: int
    is_latest: bool


@dataclass(frozen=True)
class FeatureSummary:
    """``kind``: int, float or bytes.  ``shape``: ``scalar``, ``[4]`` or ``any number``."""

    name: str
    kind: str
    shape: str
    required: bool


@dataclass(frozen=True)
class Inspection:
    """``features``: those of the records.  ``rows``: decoded Examples by split, {feature: value or list of values}, in
    the order of the features and without those that are absent."""

    dir: str
    versions: tuple[VersionSummary, ...]
    version: str
    path: str
    manifest: Manifest
    splits: tuple[str, ...]
    features: tuple[FeatureSummary, ...]
    rows: Mapping[str, list[dict[str, Any]]]


def inspect(dir: str, *, version: str | None = None, split: str | None = None, rows: int = 0) -> Inspection:
    """Looks at one version, by default the latest, and decodes the first ``rows`` of each split, or of one ``split``.

    Raises ConfigError when there is no such version or split, CorruptError when what is looked at is damaged.
    """
    layout = Layout(dir)
    chosen = layout.find(version)
    folder = layout.version_dir(chosen)
    manifest = Manifest.load(layout.manifest_path(chosen))
    if split is not None and split not in manifest.splits:
        raise ConfigError(f"--split {split}: version {chosen} has the splits {', '.join(manifest.splits)}")
    splits = (split,) if split is not None else tuple(manifest.splits)
    schema = read_schema(folder)
    sequence = next((feature for feature in schema.feature if feature.name == SEQUENCE), None)
    features = tuple(
        [_feature(feature) for feature in schema.feature if feature is not sequence]
        + [replace(_feature(inner), shape="steps") for inner in (sequence.struct_domain.feature if sequence else ())]
    )
    is_sequence = sequence is not None
    return Inspection(
        dir=dir,
        versions=tuple(_summaries(layout)),
        version=chosen,
        path=folder,
        manifest=manifest,
        splits=splits,
        features=features,
        rows={
            name: [
                _arranged(row, features)
                for row in _decode_rows(folder, manifest, split=name, rows=rows, sequence=is_sequence)
            ]
            for name in (splits if rows else ())
        },
    )


def _summaries(layout: Layout) -> Iterator[VersionSummary]:
    latest = layout.latest()
    for version in layout.published():
        manifest = Manifest.load(layout.manifest_path(version))
        yield VersionSummary(
            version=version,
            created=manifest.created,
            num_records=sum(shard.num_records for shard in manifest.shards),
            num_bytes=sum(shard.num_bytes for shard in manifest.shards),
            is_latest=version == latest,
        )


def read_schema(folder: str) -> schema_pb2.Schema:
    """That of the records: of the transformed features when there was preprocessing."""
    transformed = os.path.join(folder, TRANSFORMED_SCHEMA)
    path = transformed if os.path.exists(transformed) else os.path.join(folder, SCHEMA)
    try:
        with open(path, encoding="utf-8") as stream:
            return text_format.Parse(stream.read(), schema_pb2.Schema())
    except (OSError, UnicodeDecodeError, text_format.ParseError) as error:
        raise CorruptError(f"{path} cannot be read: {error}; `recordmill verify` lists all that is damaged") from error


def _feature(feature: schema_pb2.Feature) -> FeatureSummary:
    if feature.HasField("shape"):
        sizes = [dim.size for dim in feature.shape.dim]
        shape = str(sizes) if sizes else "scalar"
    elif feature.value_count.min == feature.value_count.max == 1:
        shape = "scalar"
    else:
        shape = "any number"
    return FeatureSummary(
        name=feature.name,
        kind=schema_pb2.FeatureType.Name(feature.type).lower(),
        shape=shape,
        required=feature.presence.min_fraction == 1,
    )


def _decode_rows(folder: str, manifest: Manifest, *, split: str, rows: int, sequence: bool) -> list[dict[str, Any]]:
    found = (p for shard in manifest.splits[split] for p in payloads(folder, shard, manifest.compression))
    serialized = pa.array(islice(found, rows), pa.binary())
    return decode(serialized, sequence=sequence).to_pylist()  # type: ignore[no-any-return]


def _arranged(row: dict[str, Any], features: tuple[FeatureSummary, ...]) -> dict[str, Any]:
    is_scalar = {feature.name: feature.shape == "scalar" for feature in features}
    names = [*is_scalar, *(name for name in row if name not in is_scalar)]
    present = {name: row[name] for name in names if row.get(name) is not None}
    return {name: v[0] if is_scalar.get(name) and len(v) == 1 else v for name, v in present.items()}


def payloads(folder: str, shard: ShardInfo, compression: Compression) -> Iterator[bytes]:
    """The Examples of a shard, a block at a time."""
    path = os.path.join(folder, shard.split, shard.name)
    try:
        with open(path, "rb") as stream:
            for block in shard.blocks:
                stream.seek(block.offset)
                raw = compression.unpack(stream.read(block.num_bytes), raw_bytes=block.raw_bytes, name=path)
                records = scan(raw, name=path)
                yield from records.payloads()
    except OSError as error:
        raise CorruptError(
            f"{path} cannot be read: {error.strerror}; `recordmill verify` lists all that is damaged"
        ) from error
