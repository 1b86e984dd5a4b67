"""One build: plan, analyze, build blocks, assemble shards, publish."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from pipeline.analysis import accumulator_folders, make_transform
from pipeline.badrows import FILE, write_bad_rows
from pipeline.config import Config
from pipeline.drift import analyzed_histograms, drifted, histogram_tasks, histograms
from pipeline.drop import DropList, index_tasks, mark, read_drop_list
from pipeline.events import note_events
from pipeline.gc import record_uses
from pipeline.layout import SCHEMA, Layout, Manifest
from pipeline.lock import output_lock
from pipeline.make import Made, Maker
from pipeline.mirror import sync
from pipeline.moves import Move, check_moves, find_moves
from pipeline.plan import Cache, build_spec, list_partitions, row_spec
from pipeline.preflight import check_runner
from pipeline.profiles import guess, profile_tasks
from pipeline.publish import draft_manifest, finish_manifest, publish
from pipeline.purge import purge
from pipeline.rates import note_rates
from pipeline.reasons import reasons
from pipeline.refresh import code_outline, graph_inputs, kept_transform
from pipeline.result import BuildResult, SplitResult, note_report
from pipeline.schema import check_inferred, check_values, read_schema
from pipeline.stages import Task, Workers
from pipeline.statistics import parse_statistics, statistics_of
from pipeline.times import by_stage, read_times
from pipeline.verify import shard_faults
from pipeline.versions import find_missing
from transforms.build import Transform
from transforms.errors import BuildError, CorruptError
from transforms.files import remove_leftovers, temporary_folder
from transforms.histogram import Histograms, to_bytes
from transforms.infer import to_schema
from transforms.partition import Partition
from transforms.rows import RowSpec
from transforms.schema import Schema

# Formats in which a schema changes nothing of what the source gives.
BUILT_AHEAD = ("csv", "parquet")
GUESSED_FROM = 2  # partitions: enough for two workers

log = logging.getLogger("recordmill")


class _Warnings(logging.Handler):
    """Collects what is said to the log as a warning, once each, for the summary."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.messages[record.getMessage()] = None


def build(config: Config, partitions: Sequence[Partition] | None = None, *, wait: float = 0.0) -> BuildResult:
    """Builds what the config says and publishes it as a new version, or finds that the latest version is that already.

    What earlier builds left in the cache is used again.  ``partitions``: a part of the source (None: all).  ``wait``:
    seconds, for another build of the same output.  Raises a RecordmillError, and leaves the published versions as they
    were, when anything is wrong.
    """
    check_runner(config)
    layout = Layout(config.output_dir)
    layout.claim(mirror=config.output.mirror)
    warnings = _Warnings()
    with output_lock(layout, wait=wait) as locked:
        remove_leftovers(layout.dir, everything=locked)
        log.addHandler(warnings)
        try:
            with temporary_folder(layout.cache_dir, "work") as work_dir:
                result = _Build(config, layout, work_dir, warnings).run(partitions)
            return (
                result if config.output.mirror is None else replace(result, mirror=sync(layout, config.output.mirror))
            )
        finally:
            log.removeHandler(warnings)
            remove_leftovers(layout.dir, everything=locked)  # of worker threads that are still at it after Ctrl-C


def _read_back(folder: str, manifest: Manifest) -> None:
    faults = shard_faults(folder, manifest)
    if faults:
        raise BuildError(
            f"{len(faults)} faults in shards that were just written, so nothing was published; see to the disk, and "
            f"build again: {'; '.join(map(str, faults[:3]))}"
        )


class _Where(TypedDict):
    """What every stage wants to know."""

    cache: Cache
    workers: Workers
    work_dir: str


class _Build:
    def __init__(self, config: Config, layout: Layout, work_dir: str, warnings: _Warnings) -> None:
        self.config = config
        self.layout = layout
        self.work_dir = work_dir
        self.warnings = warnings
        self.maker = Maker(config, layout, work_dir)
        self.reasons: list[str] = []
        self.analyzed: Histograms | None = None  # of the data that the transform graph was made from
        self.drift: list[str] = []
        self.moves: list[Move] = []

    def run(self, partitions: Sequence[Partition] | None = None) -> BuildResult:
        path = self.config.drop_path
        drop_list = read_drop_list(path) if path is not None else None
        result = self._publish(partitions, drop_list)
        if drop_list is None:
            return result
        used = self.maker.used
        again = purge(self.config, self.layout, drop_list, work_dir=self.work_dir, used=used)
        return replace(result, versions_made_again=again)

    def _publish(self, partitions: Sequence[Partition] | None, drop_list: DropList | None) -> BuildResult:
        step = self.maker.clock.step
        with step("plan"):
            partitions = list_partitions(self.config) if partitions is None else partitions
        if drop_list is not None:
            with step("keys"):
                self.maker.note("keys", index_tasks(self.config, partitions, drop_list.columns, self.maker.cache))
                partitions = mark(self.config, partitions, drop_list, **self._where(self.maker.threads))
                self.maker.used |= dict.fromkeys(p.drop.path for p in partitions if p.drop)
        self._build_ahead(partitions)
        with step("schema"):
            self.maker.note("schema", profile_tasks(self.config, partitions, self.maker.cache))
            schema = read_schema(self.config, partitions, **self._where(self.maker.threads))
            rows = row_spec(self.config, schema)
        latest, inputs = self._latest(), graph_inputs(self.config, rows)
        before = self._schema_of(latest) if latest is not None else None
        if before is not None and latest is not None:
            check_inferred(self.config, before, schema, version=latest.version)
        spec = build_spec(self.config, rows, partitions, self._transform(rows, partitions, latest, inputs))
        draft = draft_manifest(
            self.config,
            spec,
            partitions,
            code=code_outline(self.config),
            graph_inputs=inputs,
            drop_digest=drop_list.digest if drop_list else None,
        )
        same = latest if latest is not None and latest.key == draft.key else self._rolled_back(draft.key)
        if same is not None:
            return self._result(same, up_to_date=True, made=None, partitions=len(partitions))
        if latest is not None and before is not None:
            self.reasons = reasons(latest, draft, schema_before=before, schema=schema) + self.drift
        made = self.maker.make(partitions, spec)
        schema = check_values(self.config, schema, made.block_files)
        self._check_moves(schema, made, latest)
        manifest = finish_manifest(draft, block_files=made.block_files, shards=made.shards)
        if self.config.output.read_back:
            with step("read back"):
                _read_back(made.folder, manifest)
        with step("publish"):
            write_bad_rows(self.config, partitions, made.block_files, made.folder)
            record_uses(self.layout, manifest.version, self.maker.used)
            analyzed = to_bytes(self.analyzed) if self.analyzed is not None else None
            publish(
                self.layout, made.folder, manifest, spec, schema=schema, statistics=made.statistics, analyzed=analyzed
            )
        note_rates(self.layout, num_bytes=self.maker.num_bytes, seconds=self.maker.clock.steps)
        result = self._result(manifest, up_to_date=False, made=made, partitions=len(partitions))
        note_report(self.layout, result)
        note_events(self.layout, result, before=latest.version if latest is not None else None)
        return result

    def _build_ahead(self, partitions: Sequence[Partition]) -> None:
        """Without a given schema, guesses it from partitions that are known, or else from a few, and builds the others
        while it looks at their rows.

        So the source is read once, unless the others say another schema: then their blocks are made when it is known.
        """
        config, cache = self.config, self.maker.cache
        if config.preprocess or config.schema_path or config.source.format not in BUILT_AHEAD:
            return
        known = profile_tasks(config, partitions, cache)
        tasks = [task for task in known if not os.path.exists(task.output)]
        sample: list[Task] = []
        if len(tasks) == len(known):
            if len(tasks) <= 2 * GUESSED_FROM:
                return
            sample = tasks[:: len(tasks) // GUESSED_FROM][:GUESSED_FROM]
        with self.maker.clock.step("schema"):
            self.maker.note("schema", sample)
            guessed = guess(config, sample, known, workers=self.maker.threads, work_dir=self.work_dir)
        schema = to_schema(guessed)
        if not schema.features:
            return
        spec = build_spec(config, row_spec(config, schema), partitions, None)
        with self.maker.clock.step("build"):
            self.maker.build_ahead([task for task in tasks if task not in sample], spec, guessed)

    def _where(self, workers: Workers) -> _Where:
        return {"cache": self.maker.cache, "workers": workers, "work_dir": self.work_dir}

    def _transform(
        self, rows: RowSpec, partitions: Sequence[Partition], latest: Manifest | None, inputs: str | None
    ) -> Transform | None:
        if self.config.preprocess_path is None:
            return None
        kept = kept_transform(self.config, self.layout, latest, inputs=inputs)
        if self.config.preprocess_refresh == "on_drift":
            with self.maker.clock.step("drift"):
                kept = self._unless_drifted(rows, partitions, latest, kept)
        if kept is not None:
            return kept
        with self.maker.clock.step("analyze"):
            self.maker.num_bytes["analyze"] = sum(partition.num_bytes for partition in partitions)
            made = make_transform(self.config, rows, partitions, **self._where(self.maker.workers))
        accumulators = accumulator_folders(self.config, rows, partitions, self.maker.cache)
        self.maker.used |= dict.fromkeys([made.path, *accumulators])
        return made

    def _check_moves(self, schema: Schema, made: Made, latest: Manifest | None) -> None:
        before = statistics_of(self.layout, latest.version) if latest is not None else None
        version = latest.version if latest is not None else None
        self.moves = find_moves(self.config, schema, parse_statistics(made.statistics), before, version=version)
        check_moves(self.config, self.moves)

    def _unless_drifted(
        self, rows: RowSpec, partitions: Sequence[Partition], latest: Manifest | None, kept: Transform | None
    ) -> Transform | None:
        """The graph that is kept, unless the data moved too far from what it was made from."""
        self.maker.note("drift", histogram_tasks(self.config, rows, partitions, self.maker.cache))
        self.analyzed = histograms(self.config, rows, partitions, **self._where(self.maker.threads))
        old = analyzed_histograms(self.layout, latest) if latest is not None and kept is not None else None
        if old is None:
            return None
        moved = drifted(self.config, rows, old, self.analyzed)
        self.drift = [
            f"drift: `{name}` moved by {by:.3g}, more than {limit:.3g}" for name, (by, limit) in moved.items()
        ]
        if moved:
            return None
        self.analyzed = old
        return kept

    def _latest(self) -> Manifest | None:
        """The manifest of the latest version, if its files are all there."""
        latest = self.layout.latest()
        if latest is None:
            return None
        try:
            manifest = Manifest.load(self.layout.manifest_path(latest))
        except CorruptError as error:
            log.warning("%s; it is built again", error)
            return None
        damage = find_missing(self.layout, manifest)
        if damage is not None:
            log.warning("%s: the version is built again", damage)
            return None
        return manifest

    def _rolled_back(self, key: str) -> Manifest | None:
        """A whole version with the key, from which readers were led away by a rollback: they are led back to it."""
        for version in reversed(self.layout.published()):
            try:
                with open(self.layout.manifest_path(version), encoding="utf-8") as stream:
                    text = stream.read()
                if key not in text:  # there may be many versions, and large manifests
                    continue
                manifest = Manifest.from_json(text, path=stream.name)
            except (OSError, UnicodeDecodeError, CorruptError):
                continue
            if manifest.key == key and find_missing(self.layout, manifest) is None:
                log.warning(
                    "version %s is what the config says: readers take it again, instead of %s",
                    version,
                    self.layout.latest(),
                )
                self.layout.point_to(version)
                return manifest
        return None

    def _schema_of(self, manifest: Manifest) -> Schema:
        with open(os.path.join(self.layout.version_dir(manifest.version), SCHEMA), encoding="utf-8") as stream:
            return Schema.from_text(stream.read(), path=stream.name)

    def _result(self, manifest: Manifest, *, up_to_date: bool, made: Made | None, partitions: int) -> BuildResult:
        times = read_times(self.work_dir)
        splits = {
            split: SplitResult(
                rows=sum(s.num_records for s in shards), shards=len(shards), num_bytes=sum(s.num_bytes for s in shards)
            )
            for split, shards in manifest.splits.items()
        }
        return BuildResult(
            version=manifest.version,
            path=self.layout.version_dir(manifest.version),
            up_to_date=up_to_date,
            rows_read=manifest.totals.read,
            bad_rows=manifest.totals.bad,
            dropped_rows=manifest.totals.dropped,
            removed_rows=manifest.totals.removed,
            bad_rows_file=os.path.join(self.layout.version_dir(manifest.version), FILE)
            if manifest.totals.bad
            else None,
            splits=splits,
            num_bytes=sum(split.num_bytes for split in splits.values()),
            seconds=self.maker.clock.seconds,
            built_partitions=made.built if made else 0,
            reused_partitions=partitions - (made.built if made else 0),
            built_shards=len(made.shards) - made.taken_shards if made else 0,
            reused_shards=made.taken_shards if made else len(manifest.shards),
            reasons=tuple(self.reasons),
            warnings=tuple(self.warnings.messages),
            steps=dict(self.maker.clock.steps),
            moves=tuple(self.moves),
            stages=by_stage(times),
            tasks=times,
        )
