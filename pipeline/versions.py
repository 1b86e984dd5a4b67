"""The versions of an output folder: which there are, and which one readers take."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pipeline.layout import Layout, Manifest
from pipeline.lock import output_lock
from pipeline.mirror import sync
from pipeline.verify import verify
from transforms.errors import CorruptError


@dataclass(frozen=True)
class Version:
    """``damage``: why its manifest cannot be read, or a file is not as long as it was; then the numbers are 0."""

    name: str
    is_latest: bool
    created: str = ""
    rows: int = 0
    num_bytes: int = 0
    shards: int = 0
    rows_by_split: dict[str, int] | None = None
    schema_digest: str = ""
    transform_digest: str | None = None
    damage: str | None = None


def list_versions(dir: str) -> list[Version]:
    """All versions that were published, the oldest first.  Raises ConfigError when ``dir`` is no output folder."""
    layout = Layout(dir)
    layout.check_published()
    latest = layout.latest()
    return [_describe(layout, name, is_latest=name == latest) for name in layout.published()]


def _describe(layout: Layout, name: str, *, is_latest: bool) -> Version:
    try:
        manifest = Manifest.load(layout.manifest_path(name))
    except CorruptError as error:
        return Version(name, is_latest, damage=str(error))
    return Version(
        name=name,
        is_latest=is_latest,
        created=manifest.created,
        rows=manifest.totals.written,
        num_bytes=sum(shard.num_bytes for shard in manifest.shards),
        shards=len(manifest.shards),
        rows_by_split={split: sum(s.num_records for s in shards) for split, shards in manifest.splits.items()},
        schema_digest=manifest.schema_digest,
        transform_digest=manifest.transform_digest,
        damage=find_missing(layout, manifest),
    )


def find_missing(layout: Layout, manifest: Manifest) -> str | None:
    """What the version lacks, by the names and sizes of its files; None: it is all there."""
    sizes = {os.path.join(shard.split, shard.name): shard.num_bytes for shard in manifest.shards}
    for name in [*sizes, *manifest.files]:
        path = os.path.join(layout.version_dir(manifest.version), name)
        if not os.path.exists(path):
            return f"{path} is not there"
        if name in sizes and os.path.getsize(path) != sizes[name]:
            return f"{path} has {os.path.getsize(path)} bytes, the manifest says {sizes[name]}"
    return None


@dataclass(frozen=True)
class Rollback:
    before: str | None
    now: str


def rollback(dir: str, version: str, *, check: bool = False, wait: float = 0.0) -> Rollback:
    """From now on readers take ``version``, which may be older or newer than the one they took; on the mirror as well.

    Raises ConfigError when there is no such version, and CorruptError when it is not whole: by the names and sizes of
    its files or, with ``check``, by every byte.
    """
    layout = Layout(dir)
    layout.find(version)
    with output_lock(layout, wait=wait):
        manifest = Manifest.load(layout.manifest_path(version))
        damage = find_missing(layout, manifest)
        if damage is None and check:
            faults = verify(dir, version=version).faults
            damage = str(faults[0]) if faults else None
        if damage is not None:
            raise CorruptError(f"version {version} is damaged ({damage}): choose another one; nothing was changed")
        before = layout.latest()
        layout.point_to(version)
        if layout.mirror is not None:
            sync(layout, layout.mirror)
    return Rollback(before, version)
