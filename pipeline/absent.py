"""The proof of a wipe-out: no record of any version has one of the keys."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.drop import DropList
from pipeline.inspect import payloads, read_schema
from pipeline.layout import Layout, Manifest
from transforms.assemble import ShardInfo
from transforms.drop import KeyMatcher
from transforms.example import decode

BATCH_RECORDS = 4096


@dataclass(frozen=True)
class FoundRecord:
    """A record that has a key; ``record`` counts from 0 in the shard, whose path is relative to the version."""

    version: str
    shard: str
    record: int


@dataclass(frozen=True)
class Absence:
    """``searched``: records that were looked at; ``not_searched``: why a version could not be, by its name."""

    keys: int
    searched: int
    found: tuple[FoundRecord, ...]
    not_searched: dict[str, str]


def search(layout: Layout, drop_list: DropList, *, versions: Sequence[str] | None = None) -> Absence:
    """Looks through all records of the versions (None: all that are published), with a thread for each processor.

    A version whose records do not have all the key columns as features cannot be searched, nor one whose preprocessing
    may have made something else of them.
    """
    searched, found, left = 0, list[FoundRecord](), dict[str, str]()
    matcher = KeyMatcher(drop_list.keys)
    for version in layout.published() if versions is None else versions:
        manifest = Manifest.load(layout.manifest_path(version))
        folder = layout.version_dir(version)
        features = {feature.name: feature for feature in read_schema(folder).feature}
        missing = [name for name in drop_list.columns if name not in features]
        if missing or manifest.transform_digest is not None:
            left[version] = f"{missing[0]!r} is not a feature of it" if missing else "its features are preprocessed"
            continue
        schema = schema_pb2.Schema(feature=[features[name] for name in drop_list.columns])
        look = functools.partial(_search_shard, folder=folder, manifest=manifest, schema=schema, matcher=matcher)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            hits = pool.map(look, manifest.shards)
            for shard, records in zip(manifest.shards, hits, strict=True):
                searched += shard.num_records
                found += [FoundRecord(version, os.path.join(shard.split, shard.name), record) for record in records]
    return Absence(drop_list.keys.num_rows, searched, tuple(found), left)


def _search_shard(
    shard: ShardInfo, *, folder: str, manifest: Manifest, schema: schema_pb2.Schema, matcher: KeyMatcher
) -> list[int]:
    hits: list[int] = []
    names = [feature.name for feature in schema.feature]
    records = payloads(folder, shard, manifest.compression)
    first = 0
    while batch := list(itertools.islice(records, BATCH_RECORDS)):
        decoded = decode(pa.array(batch, pa.binary()), schema)
        columns = [_first_values(decoded.column(decoded.schema.get_field_index(name))) for name in names]
        keys = pa.RecordBatch.from_arrays(columns, names=names)
        hits += (first + np.flatnonzero(matcher.matches(keys))).tolist()
        first += len(batch)
    return hits


def _first_values(lists: pa.Array) -> pa.Array:
    """The first value of each list; null for an absent or empty one."""
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    return lists.flatten().take(pa.array(np.where(lengths > 0, starts, 0), mask=lengths == 0))
