"""The files of a version from its partitions: block files, or what the cache has of them, and shards."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.config import Config
from pipeline.layout import Layout
from pipeline.plan import Cache, remove_damaged
from pipeline.shards import PlacedFile, make_shards, plan_shards
from pipeline.stages import Task, Workers, run_stage
from pipeline.statistics import of_version
from transforms.assemble import ShardInfo
from transforms.blockfile import BlockFile, find_damage, read_block_file
from transforms.bucket import Bucket, shuffle_bucket
from transforms.build import BuildSpec, bad_rows, build_ahead, build_partition
from transforms.errors import BadRowsError, BuildError, CorruptError
from transforms.infer import Profile
from transforms.partition import Partition, redacted

log = logging.getLogger("recordmill")


@dataclass
class Clock:
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


@dataclass(frozen=True)
class Made:
    """What a version is made of.

    ``built``: partitions that were not in the cache; ``taken_shards``: shards that an earlier version had.
    """

    folder: str
    block_files: list[BlockFile]
    built: int
    shards: list[ShardInfo]
    taken_shards: int
    statistics: bytes  # the content of ``statistics.STATISTICS``


@dataclass
class Maker:
    """Makes versions of one config.  ``used``: entries of the cache; ``num_bytes``: that each step went through."""

    config: Config
    layout: Layout
    work_dir: str
    clock: Clock = field(default_factory=Clock)
    used: dict[str, None] = field(default_factory=dict)
    num_bytes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    ahead: set[str] = field(default_factory=set)  # block files that ``build_ahead`` made

    @property
    def cache(self) -> Cache:
        return Cache(self.layout.cache_dir)

    @property
    def workers(self) -> Workers:
        return replace(self.threads, processes=self.config.preprocess is not None)

    @property
    def threads(self) -> Workers:
        """For steps in which no TensorFlow is at work."""
        return Workers(self.config.runner.workers, settings=self.config.runner.settings)

    def make(self, partitions: Sequence[Partition], spec: BuildSpec) -> Made:
        """Block files and shards; what is damaged in the cache is made again.

        Raises a RecordmillError when something is wrong with the data, or nothing is there.
        """
        try:
            return self._make(partitions, spec, "version")
        except CorruptError as error:
            if not self._remove_damaged():
                raise
            log.info("%s", error)
            return self._make(partitions, spec, "version-again")

    def build_ahead(self, profiles: Sequence[Task], spec: BuildSpec, guess: Profile) -> None:
        """``transforms.build.build_ahead`` for the partitions that lack a profile, by the tasks that would make it."""
        blocks = [self._block_task(task.argument, spec) for task in profiles]
        self.note("build", blocks)
        tasks = [
            Task((profile.argument, block.output), profile.output, profile.name, profile.num_bytes)
            for profile, block in zip(profiles, blocks, strict=True)
        ]
        function = functools.partial(build_ahead, spec=spec, guess=guess)
        missing = [block.output for block in blocks if not os.path.exists(block.output)]
        run_stage("BuildAhead", function, tasks, workers=self.workers, work_dir=self.work_dir)
        self.ahead |= {path for path in missing if os.path.exists(path)}

    def _block_task(self, partition: Partition, spec: BuildSpec) -> Task:
        path = self.cache.path("blocks", spec.key(partition), ".blocks")
        return Task(partition, path, partition.name, partition.num_bytes)

    def note(self, step: str, tasks: Iterable[Task]) -> None:
        """Takes note of what a step has to do, for its rate, and of the files that it makes or finds."""
        for task in tasks:
            self.used[task.output] = None
            self.num_bytes[step] += task.num_bytes * (not os.path.exists(task.output))

    def _make(self, partitions: Sequence[Partition], spec: BuildSpec, name: str) -> Made:
        """Block files and shards, in a folder of the name."""
        with self.clock.step("build"):
            block_files, built = self._build_blocks(partitions, spec)
        self._check_rows(partitions, block_files)
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
                workers=self.threads,
                work_dir=self.work_dir,
            )
            self.num_bytes["assemble"] += sum(shard.num_bytes for shard in shards) if not taken else 0
        rows = {split: sum(s.num_records for s in shards if s.split == split) for split in self.config.split_names}
        with self.clock.step("statistics"):
            return Made(folder, block_files, built, shards, taken, of_version(block_files, rows))

    def _remove_damaged(self) -> bool:
        """Removes the entries of the cache that are damaged, so that they are made again; says whether there were any.

        A build trusts what a block file's index says, and meets damaged blocks only when it joins them.
        """
        damaged = {path: damage for path in self.used if (damage := find_damage(path))}
        for path, damage in damaged.items():
            log.warning("%s", damage)
            os.unlink(path)
        return bool(damaged)

    def _build_blocks(self, partitions: Sequence[Partition], spec: BuildSpec) -> tuple[list[BlockFile], int]:
        """The block file of each partition, and how many had to be built."""
        tasks = [self._block_task(partition, spec) for partition in partitions]
        self.note("build", tasks)
        return self._make_block_files("BuildBlocks", functools.partial(build_partition, spec=spec), tasks, self.workers)

    def _make_block_files(
        self, label: str, function: Callable[[Any, str], None], tasks: Sequence[Task], workers: Workers
    ) -> tuple[list[BlockFile], int]:
        """Runs the stage for what the cache lacks; an entry of the cache that is damaged is reported and made again."""
        remove_damaged((task.output for task in tasks), read_block_file)
        self.used.update(dict.fromkeys(task.output for task in tasks))
        built = len({t.output for t in tasks if t.output in self.ahead or not os.path.exists(t.output)})
        if built < len(tasks):
            log.info("%s: %d of %d are in the cache", label, len(tasks) - built, len(tasks))
        run_stage(label, function, tasks, workers=workers, work_dir=self.work_dir)
        return [read_block_file(task.output) for task in tasks], built

    def _check_rows(self, partitions: Sequence[Partition], block_files: Sequence[BlockFile]) -> None:
        limit = self.config.max_bad_rows
        if not limit.allows(
            sum(f.counts.bad_rows for f in block_files), read=sum(f.counts.rows_read for f in block_files)
        ):
            found = [row for pair in zip(partitions, block_files, strict=True) for row in bad_rows(*pair)]
            raise BadRowsError(redacted(found, self.config.redact or ()), str(limit))
        keyless = sum(file.counts.keyless_rows for file in block_files)
        if keyless:
            log.warning(
                "%d rows have no value in split_by (%s): the whole row decided their split",
                keyless,
                ", ".join(self.config.split_by or ()),
            )
        if not any(file.counts.rows_written for file in block_files) and not self.config.allow_empty:
            raise BuildError(
                f"{self.config.source.called}: the source has no rows, so "
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
        files, _ = self._make_block_files("ShuffleRows", function, tasks, self.threads)
        shuffled: dict[str, list[PlacedFile]] = {span: [] for span in by_span}
        for task, file in zip(tasks, files, strict=True):
            shuffled[task.argument.span].append(PlacedFile("", file))
        return shuffled
