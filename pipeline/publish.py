"""A version becomes visible: all its files first, then its folder's name, then the pointer to it."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version as version_of
from typing import Any

from pipeline.config import ALL, Config
from pipeline.drift import ANALYZED
from pipeline.layout import MANIFEST, SCHEMA, Layout, Manifest, SourceFile, Totals, new_version
from pipeline.refresh import TRANSFORM_FOLDERS
from pipeline.statistics import STATISTICS
from transforms.assemble import ShardInfo
from transforms.blockfile import BlockFile
from transforms.build import BuildSpec
from transforms.errors import BuildError
from transforms.files import sync_folder, write_committed
from transforms.fingerprint import digest, file_sha256
from transforms.partition import FileSlice, Partition
from transforms.schema import Schema

SOFTWARE = ("recordmill", "apache-beam", "pyarrow", "numpy", "isal", "deflate")
TRANSFORM_SOFTWARE = ("tensorflow", "tensorflow-transform", "tfx-bsl")


def publish(
    layout: Layout,
    folder: str,
    manifest: Manifest,
    spec: BuildSpec,
    *,
    schema: Schema,
    statistics: bytes,
    analyzed: bytes | None = None,
    point: bool = True,
) -> None:
    """Completes the staged folder, gives it the version's name, and points readers to it, unless told otherwise.

    ``schema``: that readers are to see, which may allow more values than the spec's.
    ``statistics``: the content of ``stats.pb`` (``statistics.STATISTICS``).
    ``analyzed``: the histograms of the data that the transform graph was made from (``drift.ANALYZED``).

    Raises BuildError when rows were lost or doubled: rows read must equal rows written, bad, dropped and removed, and
    the shards must hold what was written.
    """
    for shard in manifest.shards:
        path = os.path.join(folder, shard.split, shard.name)
        if not os.path.exists(path) or os.path.getsize(path) != shard.num_bytes:
            raise BuildError(f"{path}: is not as it was made, so nothing was published; run the build again")
    in_shards = sum(shard.num_records for shard in manifest.shards)
    totals = manifest.totals
    if totals.read != totals.written + totals.bad + totals.dropped + totals.removed or in_shards != totals.written:
        raise BuildError(
            f"{totals.read} rows were read, {totals.written} written, {totals.bad} bad, {totals.dropped} dropped and "
            f"{totals.removed} removed, "
            f"and the shards hold {in_shards}: these do not add up, so nothing was published. Please report "
            "this: it is a fault of ours"
        )
    write_committed(os.path.join(folder, SCHEMA), schema.to_text())
    if spec.transform is not None:
        for name in TRANSFORM_FOLDERS:
            shutil.copytree(os.path.join(spec.transform.path, name), os.path.join(folder, name))
    write_committed(os.path.join(folder, STATISTICS), statistics)
    if analyzed is not None:
        write_committed(os.path.join(folder, ANALYZED), analyzed)
    manifest = dataclasses.replace(manifest, files=_digests(folder, manifest))
    manifest.save(os.path.join(folder, MANIFEST))
    for parent, _, _ in os.walk(folder):
        sync_folder(parent)
    os.replace(folder, layout.version_dir(manifest.version))
    sync_folder(layout.versions_dir)
    if point:
        layout.point_to(manifest.version)


def _digests(folder: str, manifest: Manifest) -> dict[str, str]:
    """SHA-256 of the folder's files besides the shards, by their paths in it."""
    shards = {os.path.join(shard.split, shard.name) for shard in manifest.shards}
    paths = sorted(
        os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names
    )
    return {path: file_sha256(os.path.join(folder, path)) for path in paths if path not in shards}


def build_key(config: Config, spec: BuildSpec, partitions: Sequence[Partition]) -> str:
    """Hash of all that a version's bytes depend on: of the blocks, and of how they are dealt to shards."""
    output = config.output
    return digest(
        [
            [[partition.span, partition.place, spec.key(partition)] for partition in partitions],
            config.name,
            spec.compression,  # of the shards: with shuffle rows the partitions' blocks are stored in another way
            {split: [output.num_shards(split), output.shard_bytes] for split in config.split_names},
        ]
    )


def draft_manifest(
    config: Config,
    spec: BuildSpec,
    partitions: Sequence[Partition],
    *,
    code: Mapping[str, Mapping[str, Any]],
    graph_inputs: str | None,
    drop_digest: str | None = None,
) -> Manifest:
    """What the next version is made from: a manifest without a version, shards and totals."""
    names = SOFTWARE + (TRANSFORM_SOFTWARE if spec.transform else ())
    return Manifest(
        version="",
        name=config.name,
        created="",
        key=build_key(config, spec, partitions),
        config=config.canonical(),
        splits={},
        sources=source_files(config, config.files, partitions),
        schema_digest=spec.rows.schema.digest,
        transform_digest=spec.transform.digest if spec.transform else None,
        analyzers=dict(spec.transform.results) if spec.transform else {},
        software={name: version_of(name) for name in names},
        totals=Totals(0, 0, 0),
        code=code,
        graph_inputs=graph_inputs,
        drop_digest=drop_digest,
    )


def finish_manifest(draft: Manifest, *, block_files: Sequence[BlockFile], shards: Sequence[ShardInfo]) -> Manifest:
    """The manifest of a new version with these shards."""
    now = datetime.now(timezone.utc)
    return dataclasses.replace(
        draft,
        version=new_version(now),
        created=now.isoformat(timespec="seconds"),
        splits={
            split: tuple(s for s in shards if s.split == split) for split in (draft.config.get("splits") or {ALL: 1.0})
        },
        totals=Totals(
            read=sum(file.counts.rows_read for file in block_files),
            bad=sum(file.counts.bad_rows for file in block_files),
            written=sum(file.counts.rows_written for file in block_files),
            dropped=sum(file.counts.dropped_rows for file in block_files),
            removed=sum(file.counts.removed_rows for file in block_files),
        ),
    )


def source_files(config: Config, paths: Sequence[str], partitions: Sequence[Partition]) -> tuple[SourceFile, ...]:
    """What the partitions tell of the files ``paths``, which they were made of; a file without rows is in none."""
    slices: dict[str, list[FileSlice]] = {path: [] for path in paths}
    for partition in partitions:
        for file_slice in partition.slices:
            slices[file_slice.path].append(file_slice)
    return tuple(
        SourceFile(
            path=config.written(path),
            num_bytes=sum(s.num_bytes for s in found),
            fingerprint=digest([s.fingerprint for s in found]),
        )
        for path, found in slices.items()
    )
