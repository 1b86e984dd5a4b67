"""Versions that are made again without the rows that ``drop_rows`` names, and a cache without them.

A version is made again (``again``), and published under its name with ``-r1`` (then ``-r2``) behind it before the old
one goes, so that there is a whole version at every moment.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Collection

from pipeline.absent import search
from pipeline.again import Again
from pipeline.badrows import write_bad_rows
from pipeline.config import Config
from pipeline.drift import ANALYZED
from pipeline.drop import DropList, mark
from pipeline.gc import ENTRIES, record_uses
from pipeline.layout import Layout, Manifest, name_again
from pipeline.publish import draft_manifest, finish_manifest, publish
from transforms.errors import BuildError, CorruptError, RecordmillError
from transforms.files import remove_folder

log = logging.getLogger("recordmill")


def purge(
    config: Config, layout: Layout, drop_list: DropList, *, work_dir: str, used: dict[str, None]
) -> tuple[str, ...]:
    """Makes all other versions than the latest without the rows; returns the names of those that are made again.

    A version that was made with the same keys in mind is left alone.  When there was one that was not, the cache keeps
    what is ``used`` and what the versions made again use, and nothing else, and all records whose features tell the
    key are searched.  Raises BuildError when one is found, and at the end for the versions that cannot be made again:
    those hold the rows still.
    """
    latest, made_again, left = layout.latest(), [], dict[str, str]()
    stale = [version for version in layout.published() if _is_stale(layout, version, drop_list)]
    for version in stale:
        if version == latest:  # just built, or found to be what would be built
            manifest = Manifest.load(layout.manifest_path(version))
            dataclasses.replace(manifest, drop_digest=drop_list.digest).save(layout.manifest_path(version))
            continue
        try:
            again = Again(config, layout, version, os.path.join(work_dir, version))
            name = _make_again(again, layout, drop_list)
            used |= again.maker.used
        except RecordmillError as error:
            left[version] = str(error)
            continue
        if name is not None:
            made_again.append(name)
    if stale:
        _clean(layout, used)
    searched = [version for version in layout.published() if version not in left] if stale else []
    found = search(layout, drop_list, versions=searched).found
    if found:
        raise BuildError(
            f"drop_rows: {len(found)} records with the keys are still there, the first of them record "
            f"{found[0].record} of {found[0].shard} in version {found[0].version}. Please report "
            "this: it is a fault of ours"
        )
    if left:
        raise BuildError(
            "drop_rows: these versions hold the rows still, and cannot be made again without them: "
            + "; ".join(f"{version} ({reason})" for version, reason in left.items())
            + f". `recordmill gc {layout.dir} --keep 1` removes all but the latest"
        )
    return tuple(made_again)


def _is_stale(layout: Layout, version: str, drop_list: DropList) -> bool:
    try:
        return Manifest.load(layout.manifest_path(version)).drop_digest != drop_list.digest
    except CorruptError:
        return True


def _make_again(again: Again, layout: Layout, drop_list: DropList) -> str | None:
    """Publishes the version without the rows, and returns its name; None, if it has none of them."""
    config, maker, name = again.maker.config, again.maker, name_again(again.version)
    if name in layout.published():  # and the build that made it was stopped before the old one was removed
        remove_folder(again.folder)
        return name
    partitions = mark(
        config, again.partitions(), drop_list, cache=maker.cache, workers=maker.threads, work_dir=maker.work_dir
    )
    spec = again.spec(partitions)
    draft = draft_manifest(
        config,
        spec,
        partitions,
        code=again.manifest.code,
        graph_inputs=again.manifest.graph_inputs,
        drop_digest=drop_list.digest,
    )
    untouched = again.manifest.drop_digest is None and not any(partition.drop for partition in partitions)
    if untouched or draft.key == again.manifest.key:
        noted = dataclasses.replace(again.manifest, drop_digest=drop_list.digest)
        noted.save(layout.manifest_path(again.version))
        return None
    made = maker.make(partitions, spec)
    finished = finish_manifest(draft, block_files=made.block_files, shards=made.shards)
    manifest = dataclasses.replace(
        finished,
        version=name,
        created=again.manifest.created,
        config=again.manifest.config,
        sources=again.manifest.sources,
    )
    write_bad_rows(config, partitions, made.block_files, made.folder)
    record_uses(layout, name, maker.used)
    publish(
        layout,
        made.folder,
        manifest,
        spec,
        schema=spec.rows.schema,
        statistics=made.statistics,
        analyzed=_analyzed(again.folder),
        point=False,
    )
    remove_folder(again.folder)
    return name


def _analyzed(folder: str) -> bytes | None:
    path = os.path.join(folder, ANALYZED)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as stream:
        return stream.read()


def _clean(layout: Layout, used: Collection[str]) -> None:
    """Removes the entries of the cache that may hold the rows: all that are not used."""
    for kind in sorted(os.listdir(layout.cache_dir)):
        folder = os.path.join(layout.cache_dir, kind)
        if kind not in ENTRIES:
            continue
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if path not in used:
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
