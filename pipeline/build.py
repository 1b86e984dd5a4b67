"""One build: plan, analyze, build blocks, assemble shards, publish."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from pipeline.analysis import make_transform
from pipeline.config import Config
from pipeline.layout import Layout, Manifest, new_version, shard_from_plain, shard_to_plain
from pipeline.plan import Cache, build_spec, list_partitions, read_schema, row_spec
from pipeline.publish import build_key, make_manifest, publish
from pipeline.stages import Task, Workers, run_stage
from transforms.assemble import ShardInfo, ShardPlan, assemble_shard, deal, num_shards, order_blocks, shard_name
from transforms.blockfile import BlockFile, read_block_file
from transforms.bucket import Bucket, shuffle_bucket
from transforms.build import BuildSpec, build_partition
from transforms.compression import Compression
from transforms.errors import BuildError, CorruptError
from transforms.files import remove_leftovers, temporary_folder, write_committed
from transforms.partition import Partition

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class SplitResult:
    rows: int
    shards: int
    num_bytes: int


@dataclass(frozen=True)
class BuildResult:
    """What a build did.  ``seconds``: from the first look at the source to the published version; ``steps``: each."""

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


def build(config: Config) -> BuildResult:
    """Builds what the config says and publishes it as a new version, or finds that the latest version is that already.

    What earlier builds left in the cache is used again.  Raises a RecordmillError, and leaves the published versions
    as they were, when anything is wrong.
    """
    layout = Layout(config.output_dir)
    layout.claim()
    remove_leftovers(layout.dir)
    warnings = _Warnings()
    log.addHandler(warnings)
    try:
        with temporary_folder(layout.cache_dir, "work") as work_dir:
            return _Build(config, layout, work_dir, warnings).run()
    finally:
        log.removeHandler(warnings)
        remove_leftovers(layout.dir)  # of worker threads that are still at it after Ctrl-C


class _Build:
    def __init__(self, config: Config, layout: Layout, work_dir: str, warnings: _Warnings) -> None:
        self.config = config
        self.layout = layout
        self.work_dir = work_dir
        self.warnings = warnings
        self.cache = Cache(layout.cache_dir)
        self.workers = Workers(config.runner.workers, processes=config.preprocess is not None)
        self.clock = _Clock()

    def run(self) -> BuildResult:
        with self.clock.step("plan"):
            partitions = list_partitions(self.config)
        with self.clock.step("schema"):
            schema = read_schema(
                self.config, partitions, cache=self.cache, workers=self._threads, work_dir=self.work_dir
            )
            rows = row_spec(self.config, schema)
        transform = None
        if self.config.preprocess_path is not None:
            with self.clock.step("analyze"):
                transform = make_transform(
                    self.config, rows, partitions, cache=self.cache, workers=self.workers, work_dir=self.work_dir
                )
        spec = build_spec(self.config, rows, partitions, transform)
        key = build_key(self.config, spec, partitions)
        published = self._published(key)
        if published is not None:
            return self._result(published, up_to_date=True, built=0, reused=len(partitions))
        with self.clock.step("build"):
            block_files, built = self._build_blocks(partitions, spec)
        self._check_rows(block_files)
        ordered: Sequence[BlockFile] = block_files
        if spec.shuffle == "rows":
            with self.clock.step("shuffle"):
                ordered = self._shuffle_rows(partitions, block_files, spec)
        with self.clock.step("assemble"):
            version, staged = new_version(datetime.now(timezone.utc)), os.path.join(self.work_dir, "version")
            shards = self._assemble(ordered, spec, staged)
        manifest = make_manifest(
            self.config, spec, version, key=key, partitions=partitions, block_files=block_files, shards=shards
        )
        with self.clock.step("publish"):
            publish(self.layout, staged, manifest, spec)
        return self._result(manifest, up_to_date=False, built=built, reused=len(partitions) - built)

    @property
    def _threads(self) -> Workers:
        """For steps in which no TensorFlow is at work."""
        return Workers(self.workers.number)

    def _published(self, key: str) -> Manifest | None:
        """The latest version, if it was made from the same things and its shards are all there."""
        latest = self.layout.latest()
        if latest is None:
            return None
        try:
            manifest = Manifest.load(self.layout.manifest_path(latest))
        except CorruptError as error:
            log.warning("%s; it is built again", error)
            return None
        if manifest.key != key:
            return None
        for split, shards in manifest.splits.items():
            for shard in shards:
                path = os.path.join(self.layout.split_dir(latest, split), shard.name)
                if not os.path.exists(path) or os.path.getsize(path) != shard.num_bytes:
                    log.warning("%s is not as it was published; the version is built again", path)
                    return None
        return manifest

    def _build_blocks(self, partitions: Sequence[Partition], spec: BuildSpec) -> tuple[list[BlockFile], int]:
        """The block file of each partition, and how many had to be built."""
        tasks = [Task(p, self.cache.path("blocks", spec.key(p), ".blocks"), p.name, p.num_bytes) for p in partitions]
        return self._make_block_files("BuildBlocks", functools.partial(build_partition, spec=spec), tasks, self.workers)

    def _make_block_files(
        self, label: str, function: Callable[[Any, str], None], tasks: Sequence[Task], workers: Workers
    ) -> tuple[list[BlockFile], int]:
        """Runs the stage for what the cache lacks; an entry of the cache that is damaged is reported and made again."""
        for task in tasks:
            if os.path.exists(task.output):
                try:
                    read_block_file(task.output)
                except CorruptError as error:
                    log.warning("%s", error)
                    os.unlink(task.output)
        built = len({task.output for task in tasks if not os.path.exists(task.output)})
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
    ) -> Sequence[BlockFile]:
        """The block files of the shuffled buckets, in order."""
        keys = [spec.key(p) for p in partitions]
        paths = tuple(file.path for file in block_files)
        buckets = [Bucket(split, i, paths) for split in self.config.split_names for i in range(spec.buckets)]
        tasks = [
            Task(b, self.cache.path("buckets", b.key(spec, keys), ".blocks"), f"{b.split} {b.number}") for b in buckets
        ]
        function = functools.partial(shuffle_bucket, spec=spec)
        return self._make_block_files("ShuffleRows", function, tasks, self._threads)[0]

    def _assemble(self, block_files: Sequence[BlockFile], spec: BuildSpec, staged: str) -> list[ShardInfo]:
        tasks = []
        for split in self.config.split_names:
            seed = spec.seed if spec.shuffle == "blocks" else None
            pieces = order_blocks(block_files, split, shuffle_seed=seed)
            output = self.config.output
            count = num_shards(pieces, shards=output.num_shards(split), shard_bytes=output.shard_bytes)
            if count == 0:
                log.warning("the split %r has no rows: it has no shards", split)
            for i, run in enumerate(deal(pieces, count)):
                name = shard_name(f"{self.config.name}-{split}", i, count=count, suffix=spec.compression.suffix)
                report = os.path.join(self.work_dir, "shards", f"{name}.json")
                tasks.append(Task(ShardPlan(split, name, run), report, name))
        os.makedirs(staged)
        function = functools.partial(write_shard, folder=staged, compression=spec.compression)
        run_stage("AssembleShards", function, tasks, workers=self._threads, work_dir=self.work_dir)
        return [_read_shard_info(task.output, task.argument.split) for task in tasks]

    def _result(self, manifest: Manifest, *, up_to_date: bool, built: int, reused: int) -> BuildResult:
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
            built_partitions=built,
            reused_partitions=reused,
            warnings=tuple(self.warnings.messages),
            steps=dict(self.clock.steps),
        )


def write_shard(shard: ShardPlan, path: str, *, folder: str, compression: Compression) -> None:
    """Writes the shard into its split's folder below ``folder``, and commits what it is like as the JSON ``path``."""
    info = assemble_shard(shard, os.path.join(folder, shard.split), compression=compression)
    write_committed(path, json.dumps(shard_to_plain(info)))


def _read_shard_info(path: str, split: str) -> ShardInfo:
    with open(path, encoding="utf-8") as stream:
        return shard_from_plain(json.load(stream), split)
