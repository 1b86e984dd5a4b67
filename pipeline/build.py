"""One build: plan, analyze, build blocks, assemble shards, publish."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.analysis import make_transform
from pipeline.config import Config
from pipeline.layout import SCHEMA, Layout, Manifest
from pipeline.plan import Cache, build_spec, list_partitions, profile_tasks, read_schema, remove_damaged, row_spec
from pipeline.publish import draft_manifest, finish_manifest, publish
from pipeline.rates import note_rates
from pipeline.reasons import reasons
from pipeline.refresh import graph_inputs, kept_transform
from pipeline.shards import PlacedFile, make_shards, plan_shards
from pipeline.stages import Task, Workers, run_stage
from transforms.assemble import ShardInfo
from transforms.blockfile import BlockFile, find_damage, read_block_file
from transforms.bucket import Bucket, shuffle_bucket
from transforms.build import BuildSpec, build_partition
from transforms.errors import BuildError, CorruptError
from transforms.files import remove_leftovers, temporary_folder
from transforms.partition import Partition
from transforms.preprocess import Preprocessing
from transforms.schema import Schema

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class SplitResult:
    rows: int
    shards: int
    num_bytes: int


@dataclass(frozen=True)
class BuildResult:
    """What a build did.  ``reasons``: what is different from the version before.

    ``seconds``: from the first look at the source to the published version; ``steps``: each."""

    version: str
    path: str
    up_to_date: bool
    rows_read: int
    bad_rows: int
    splits: Mapping[str, SplitResult]
    num_bytes: int
    seconds: float
    built_partitions: int
    reused_partitions: int
    built_shards: int
    reused_shards: int
    reasons: Sequence[str]
    warnings: Sequence[str]
    steps: Mapping[str, float]

    @property
    def rows_per_second(self) -> float:
        return self.rows_read / self.seconds if self.seconds else 0.0


@dataclass
class _Clock:
    """Seconds since the start, and of each step."""

    start: float = field(default_factory=time.monotonic)
    steps: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self.steps[name] += time.monotonic() - begin

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start


class _Warnings(logging.Handler):
    """Collects what is said to the log as a warning, once each, for the summary."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.messages[record.getMessage()] = None


def build(config: Config, partitions: Sequence[Partition] | None = None) -> BuildResult:
    """Builds what the config says and publishes it as a new version, or finds that the latest version is that already.

    What earlier builds left in the cache is used again.  ``partitions``: a part of the source (None: all).  Raises a
    RecordmillError, and leaves the published versions as they were, when anything is wrong.
    """
    layout = Layout(config.output_dir)
    layout.claim()
    remove_leftovers(layout.dir)
    warnings = _Warnings()
    log.addHandler(warnings)
    try:
        with temporary_folder(layout.cache_dir, "work") as work_dir:
            return _Build(config, layout, work_dir, warnings).run(partitions)
    finally:
        log.removeHandler(warnings)
        remove_leftovers(layout.dir)  # of worker threads that are still at it after Ctrl-C


@dataclass(frozen=True)
class _Made:
    """What a version is made of.

    ``built``: partitions that were not in the cache; ``taken_shards``: shards that an earlier version had.
    """

    folder: str
    block_files: list[BlockFile]
    built: int
    shards: list[ShardInfo]
    taken_shards: int


class _Build:
    def __init__(self, config: Config, layout: Layout, work_dir: str, warnings: _Warnings) -> None:
        self.config = config
        self.layout = layout
        self.work_dir = work_dir
        self.warnings = warnings
        self.cache = Cache(layout.cache_dir)
        self.workers = Workers(config.runner.workers, processes=config.preprocess is not None)
        self.clock = _Clock()
        self.used: dict[str, None] = {}  # entries of the cache
        self.reasons: list[str] = []
        self.num_bytes: defaultdict[str, int] = defaultdict(int)  # that each step went through

    def run(self, partitions: Sequence[Partition] | None = None) -> BuildResult:
        with self.clock.step("plan"):
            partitions = list_partitions(self.config) if partitions is None else partitions
            profiles = profile_tasks(self.config, partitions, self.cache)
            self._note("schema", (task for task in profiles if not os.path.exists(task.output)))
            self.used.update(dict.fromkeys(task.output for task in profiles))
        with self.clock.step("schema"):
            schema = read_schema(
                self.config, partitions, cache=self.cache, workers=self._threads, work_dir=self.work_dir
            )
            rows = row_spec(self.config, schema)
        latest, inputs = self._latest(), graph_inputs(self.config, rows)
        transform = kept_transform(self.config, self.layout, latest, inputs=inputs)
        if transform is None and self.config.preprocess_path is not None:
            with self.clock.step("analyze"):
                self.num_bytes["analyze"] = sum(partition.num_bytes for partition in partitions)
                transform = make_transform(
                    self.config, rows, partitions, cache=self.cache, workers=self.workers, work_dir=self.work_dir
                )
        spec = build_spec(self.config, rows, partitions, transform)
        draft = draft_manifest(self.config, spec, partitions, code=self._code(), graph_inputs=inputs)
        if latest is not None and latest.key == draft.key:
            return self._result(latest, up_to_date=True, made=None, partitions=len(partitions))
        if latest is not None:
            self.reasons = self._reasons(latest, draft, schema)
        try:
            made = self._make(partitions, spec, "version")
        except CorruptError as error:
            if not self._remove_damaged():
                raise
            log.info("%s", error)
            made = self._make(partitions, spec, "version-again")
        manifest = finish_manifest(draft, block_files=made.block_files, shards=made.shards)
        with self.clock.step("publish"):
            publish(self.layout, made.folder, manifest, spec)
        note_rates(self.layout, num_bytes=self.num_bytes, seconds=self.clock.steps)
        return self._result(manifest, up_to_date=False, made=made, partitions=len(partitions))

    def _note(self, step: str, tasks: Iterable[Task]) -> None:
        """What a step has to do, for its rate."""
        self.num_bytes[step] += sum(task.num_bytes for task in tasks)

    def _make(self, partitions: Sequence[Partition], spec: BuildSpec, name: str) -> _Made:
        """Block files and shards, in a folder of the name."""
        with self.clock.step("build"):
            block_files, built = self._build_blocks(partitions, spec)
        self._check_rows(block_files)
        by_span: dict[str, list[PlacedFile]] = {}
        if spec.shuffle == "rows":
            with self.clock.step("shuffle"):
                by_span = self._shuffle_rows(partitions, block_files, spec)
        else:
            for partition, file in zip(partitions, block_files, strict=True):
                by_span.setdefault(partition.span, []).append(PlacedFile(partition.place, file))
        with self.clock.step("assemble"):
            folder = os.path.join(self.work_dir, name)
            shards, taken = make_shards(
                plan_shards(self.config, spec, by_span),
                layout=self.layout,
                compression=spec.compression,
                staged=folder,
                workers=self._threads,
                work_dir=self.work_dir,
            )
            self.num_bytes["assemble"] += sum(shard.num_bytes for shard in shards) if not taken else 0
        return _Made(folder, block_files, built, shards, taken)

    def _remove_damaged(self) -> bool:
        """Removes the entries of the cache that are damaged, so that they are made again; says whether there were any.

        A build trusts what a block file's index says, and meets damaged blocks only when it joins them.
        """
        damaged = {path: damage for path in self.used if (damage := find_damage(path))}
        for path, damage in damaged.items():
            log.warning("%s", damage)
            os.unlink(path)
        return bool(damaged)

    @property
    def _threads(self) -> Workers:
        """For steps in which no TensorFlow is at work."""
        return Workers(self.workers.number)

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
        sizes = {os.path.join(shard.split, shard.name): shard.num_bytes for shard in manifest.shards}
        for name in [*sizes, *manifest.files]:
            path = os.path.join(self.layout.version_dir(latest), name)
            if not os.path.exists(path) or os.path.getsize(path) != sizes.get(name, os.path.getsize(path)):
                log.warning("%s is not as it was published; the version is built again", path)
                return None
        return manifest

    def _reasons(self, latest: Manifest, draft: Manifest, schema: Schema) -> list[str]:
        with open(os.path.join(self.layout.version_dir(latest.version), SCHEMA), encoding="utf-8") as stream:
            before = Schema.from_text(stream.read(), path=stream.name)
        return reasons(latest, draft, schema_before=before, schema=schema)

    def _code(self) -> dict[str, dict[str, list[str]]]:
        path = self.config.preprocess_path
        return Preprocessing.load(path).outline() if path is not None else {}

    def _build_blocks(self, partitions: Sequence[Partition], spec: BuildSpec) -> tuple[list[BlockFile], int]:
        """The block file of each partition, and how many had to be built."""
        tasks = [Task(p, self.cache.path("blocks", spec.key(p), ".blocks"), p.name, p.num_bytes) for p in partitions]
        self._note("build", (task for task in tasks if not os.path.exists(task.output)))
        return self._make_block_files("BuildBlocks", functools.partial(build_partition, spec=spec), tasks, self.workers)

    def _make_block_files(
        self, label: str, function: Callable[[Any, str], None], tasks: Sequence[Task], workers: Workers
    ) -> tuple[list[BlockFile], int]:
        """Runs the stage for what the cache lacks; an entry of the cache that is damaged is reported and made again."""
        remove_damaged((task.output for task in tasks), read_block_file)
        self.used.update(dict.fromkeys(task.output for task in tasks))
        built = len({task.output for task in tasks if not os.path.exists(task.output)})
        if built < len(tasks):
            log.info("%s: %d of %d are in the cache", label, len(tasks) - built, len(tasks))
        run_stage(label, function, tasks, workers=workers, work_dir=self.work_dir)
        return [read_block_file(task.output) for task in tasks], built

    def _check_rows(self, block_files: Sequence[BlockFile]) -> None:
        keyless = sum(file.counts.keyless_rows for file in block_files)
        if keyless:
            log.warning(
                "%d rows have no value in split_by (%s): the whole row decided their split",
                keyless,
                ", ".join(self.config.split_by or ()),
            )
        if not any(file.counts.rows_written for file in block_files) and not self.config.allow_empty:
            raise BuildError(
                f"{', '.join(pattern.text for pattern in self.config.source.files)}: the source has no rows, so "
                "nothing was published; set allow_empty: true if an empty dataset is right"
            )

    def _shuffle_rows(
        self, partitions: Sequence[Partition], block_files: Sequence[BlockFile], spec: BuildSpec
    ) -> dict[str, list[PlacedFile]]:
        """By span, the block files of the shuffled buckets of each split, in order."""
        tasks: list[Task] = []
        by_span: dict[str, list[tuple[Partition, BlockFile]]] = {}
        for partition, file in zip(partitions, block_files, strict=True):
            by_span.setdefault(partition.span, []).append((partition, file))
        for span, found in by_span.items():
            keys, paths = [spec.key(p) for p, _ in found], tuple(file.path for _, file in found)
            number = spec.buckets_of(span)
            for bucket in (Bucket(s, i, paths, span) for s in self.config.split_names for i in range(number)):
                path = self.cache.path("buckets", bucket.key(spec, keys), ".blocks")
                tasks.append(Task(bucket, path, f"{bucket.split} {span} {bucket.number}"))
        function = functools.partial(shuffle_bucket, spec=spec)
        files, _ = self._make_block_files("ShuffleRows", function, tasks, self._threads)
        shuffled: dict[str, list[PlacedFile]] = {span: [] for span in by_span}
        for task, file in zip(tasks, files, strict=True):
            shuffled[task.argument.span].append(PlacedFile("", file))
        return shuffled

    def _result(self, manifest: Manifest, *, up_to_date: bool, made: _Made | None, partitions: int) -> BuildResult:
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
            splits=splits,
            num_bytes=sum(split.num_bytes for split in splits.values()),
            seconds=self.clock.seconds,
            built_partitions=made.built if made else 0,
            reused_partitions=partitions - (made.built if made else 0),
            built_shards=len(made.shards) - made.taken_shards if made else 0,
            reused_shards=made.taken_shards if made else len(manifest.shards),
            reasons=tuple(self.reasons),
            warnings=tuple(self.warnings.messages),
            steps=dict(self.clock.steps),
        )
