"""Versions that are made again without the rows that ``drop_rows`` names, and a cache without them.

A version is made again from what its manifest tells: its config, its schema and transform graph, and the same content
of the same files.  It is published under its name with ``-r1`` (then ``-r2``) behind it before the old one goes, so
that there is a whole version at every moment.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Collection

from pydantic import ValidationError

from pipeline.absent import search
from pipeline.badrows import write_bad_rows
from pipeline.config import Config
from pipeline.drift import ANALYZED
from pipeline.drop import DropList, mark
from pipeline.gc import ENTRIES, record_uses
from pipeline.layout import SCHEMA, Layout, Manifest, name_again
from pipeline.make import Maker
from pipeline.plan import build_spec, list_partitions, row_spec
from pipeline.publish import draft_manifest, finish_manifest, publish, source_files
from transforms import storage
from transforms.build import Transform
from transforms.errors import BuildError, CorruptError, RecordmillError
from transforms.files import remove_folder
from transforms.partition import Partition
from transforms.schema import Schema

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
            maker = _Again(config, layout, version, os.path.join(work_dir, version))
            name = maker.run(drop_list)
            used |= maker.used
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


class _Again:
    """A published version, to be made again."""

    def __init__(self, config: Config, layout: Layout, version: str, work_dir: str) -> None:
        self.layout = layout
        self.version = version
        self.folder = layout.version_dir(version)
        self.manifest = Manifest.load(layout.manifest_path(version))
        self.maker = Maker(_config_of(self.manifest, config), layout, work_dir)

    @property
    def used(self) -> dict[str, None]:
        return self.maker.used

    def run(self, drop_list: DropList) -> str | None:
        """Publishes the version without the rows, and returns its name; None, if it has none of them."""
        config, maker, name = self.maker.config, self.maker, name_again(self.version)
        if name in self.layout.published():  # and the build that made it was stopped before the old one was removed
            remove_folder(self.folder)
            return name
        os.makedirs(maker.work_dir)
        with open(os.path.join(self.folder, SCHEMA), encoding="utf-8") as stream:
            schema = Schema.from_text(stream.read(), path=stream.name)
        partitions = mark(
            config, self._partitions(), drop_list, cache=maker.cache, workers=maker.threads, work_dir=maker.work_dir
        )
        digest = self.manifest.transform_digest
        transform = Transform(self.folder, digest, self.manifest.analyzers) if digest is not None else None
        spec = build_spec(config, row_spec(config, schema), partitions, transform)
        draft = draft_manifest(
            config,
            spec,
            partitions,
            code=self.manifest.code,
            graph_inputs=self.manifest.graph_inputs,
            drop_digest=drop_list.digest,
        )
        untouched = self.manifest.drop_digest is None and not any(partition.drop for partition in partitions)
        if untouched or draft.key == self.manifest.key:
            noted = dataclasses.replace(self.manifest, drop_digest=drop_list.digest)
            noted.save(self.layout.manifest_path(self.version))
            return None
        made = maker.make(partitions, spec)
        finished = finish_manifest(draft, block_files=made.block_files, shards=made.shards)
        again = dataclasses.replace(
            finished,
            version=name,
            created=self.manifest.created,
            config=self.manifest.config,
            sources=self.manifest.sources,
        )
        write_bad_rows(config, partitions, made.block_files, made.folder)
        record_uses(self.layout, name, maker.used)
        publish(self.layout, made.folder, again, spec, schema=spec.rows.schema, analyzed=self._analyzed(), point=False)
        remove_folder(self.folder)
        return name

    def _analyzed(self) -> bytes | None:
        path = os.path.join(self.folder, ANALYZED)
        if not os.path.exists(path):
            return None
        with open(path, "rb") as stream:
            return stream.read()

    def _partitions(self) -> list[Partition]:
        """Those of the files that the version was made from.  Raises BuildError when these are not what they were."""
        config, spans = self.maker.config, dict[str, str]()
        for pattern in config.source.files:
            spans |= pattern.spans
        paths = {source.path: config.resolve(source.path) for source in self.manifest.sources}
        by_span: dict[str, list[str]] = {}
        for source in self.manifest.sources:
            path = paths[source.path]
            if not storage.exists(path):
                raise BuildError(f"its source {source.path} is gone")
            by_span.setdefault(spans.get(path, ""), []).append(path)
        partitions = list_partitions(config, by_span)
        now = source_files(config, list(paths.values()), partitions)
        changed = [old.path for old, new in zip(self.manifest.sources, now, strict=True) if old != new]
        if changed:
            raise BuildError(f"its source {changed[0]} changed")
        return partitions


def _config_of(manifest: Manifest, config: Config) -> Config:
    """The config of the version, beside the file of today's; a version has its own schema and transform graph."""
    plain = {key: value for key, value in manifest.config.items() if key not in ("schema", "drop_rows", "preprocess")}
    plain |= {"runner": config.runner.model_dump(), "output": {**plain["output"], "dir": config.output_dir}}
    try:
        return Config.of(plain, path=config.path)
    except ValidationError as error:
        raise BuildError(f"its config does not hold any more: {error.errors()[0]['msg']}") from error


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
