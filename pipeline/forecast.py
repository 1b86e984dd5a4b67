"""What a build would do, and how long it would take; nothing in the output folder is touched."""

from __future__ import annotations

import dataclasses
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.analysis import analysis_todo
from pipeline.build import build
from pipeline.config import Config
from pipeline.drop import mark_known, read_drop_list
from pipeline.layout import SCHEMA, Layout, Manifest
from pipeline.plan import Cache, build_spec, list_partitions, row_spec
from pipeline.profiles import profile_tasks, read_profiles
from pipeline.publish import draft_manifest
from pipeline.rates import read_rates
from pipeline.reasons import reasons
from pipeline.refresh import code_outline, graph_inputs, kept_transform
from pipeline.schema import given_schema, reconciled
from pipeline.shards import PlacedFile, earlier_shards, parts, runs
from transforms.blockfile import read_block_file
from transforms.build import BuildSpec, Transform
from transforms.deal import ShardPlan
from transforms.errors import CorruptError
from transforms.partition import Partition
from transforms.schema import Schema

log = logging.getLogger("recordmill")

_Todo = tuple[str, int, int, int]  # the first four fields of a Step


@dataclass(frozen=True)
class Step:
    """What a step would do.  ``num_bytes``: of the source, or for ``assemble`` of the shards that it writes.

    ``todo`` and ``reused`` count partitions, for ``assemble`` shards.  ``seconds``: None when no rate is known.
    """

    name: str
    todo: int
    reused: int
    num_bytes: int
    seconds: float | None


@dataclass(frozen=True)
class Forecast:
    """``output_bytes``: of all shards of the version.  ``assumed``: what could turn out otherwise, in words."""

    up_to_date: bool
    partitions: int
    source_bytes: int
    output_bytes: int
    steps: tuple[Step, ...]
    rates: str  # where the rates come from, in words
    reasons: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        known = [step.seconds for step in self.steps]
        return None if None in known else sum(seconds for seconds in known if seconds is not None)


def forecast(config: Config) -> Forecast:
    """Looks at the source, of which all bytes are read for their hashes, and at what the cache has.

    Rates are those of the last builds or, before the first, measured by building one partition in a temporary folder.
    """
    layout = Layout(config.output_dir)
    layout.check()
    return _Forecaster(config, layout).run()


@dataclass
class _Forecaster:
    config: Config
    layout: Layout
    assumed: list[str] = field(default_factory=list)

    def run(self) -> Forecast:
        config, cache = self.config, Cache(self.layout.cache_dir)
        partitions = list_partitions(config)
        steps: list[_Todo] = []
        if config.drop_path is not None:
            partitions, unknown = mark_known(config, partitions, read_drop_list(config.drop_path), cache=cache)
            size = sum(partition.num_bytes for partition in unknown)
            steps.append(("keys", len(unknown), len(partitions) - len(unknown), size))
            if unknown:
                self.assumed.append("no partition whose keys are not known yet holds rows to drop")
        latest = self._latest()
        rates, rates_from = self._rates(partitions, latest)
        profiles = profile_tasks(config, partitions, cache)
        missing_profiles = {task.output: task.num_bytes for task in profiles if not os.path.exists(task.output)}
        size = sum(missing_profiles.values())
        steps.append(("schema", len(missing_profiles), len(profiles) - len(missing_profiles), size))
        schema = self._schema(partitions, latest, cache)
        if schema is None:
            return self._forecast(partitions, [*steps, *self._all_steps(partitions, rates)], rates, rates_from)
        rows = row_spec(config, schema)
        inputs = graph_inputs(config, rows)
        transform = kept_transform(config, self.layout, latest, inputs=inputs)
        if transform is not None and config.preprocess_refresh == "on_drift":
            self.assumed.append("the data has not drifted so far that it is analyzed again")
        if config.preprocess and transform is None:
            transform, missing = analysis_todo(config, rows, partitions, cache=cache)
            steps.append(("analyze", len(missing), len(partitions) - len(missing), sum(p.num_bytes for p in missing)))
            if transform is None:
                transform = self._assume_transform(latest, inputs)
        spec = build_spec(config, rows, partitions, transform)
        files = self._block_files(partitions, spec, cache)
        todo_files = {spec.key(p): p.num_bytes for p in partitions if spec.key(p) not in files}
        steps.append(("build", len(todo_files), len(partitions) - len(todo_files), sum(todo_files.values())))
        made, taken, written, kept = self._shards(partitions, spec, files, rates["output"])
        steps.append(("assemble", made, taken, written))
        if latest is None:
            return self._forecast(partitions, steps, rates, rates_from, kept_bytes=kept)
        draft = draft_manifest(config, spec, partitions, code=code_outline(config), graph_inputs=inputs)
        if draft.key == latest.key:
            return self._forecast(partitions, [], rates, rates_from, kept_bytes=sum(s.num_bytes for s in latest.shards))
        why = reasons(latest, draft, schema_before=self._published_schema(latest), schema=schema)
        return self._forecast(partitions, steps, rates, rates_from, kept_bytes=kept, why=why)

    def _all_steps(self, partitions: Sequence[Partition], rates: dict[str, float]) -> list[_Todo]:
        """What follows the schema when nothing was built yet."""
        config, size = self.config, sum(partition.num_bytes for partition in partitions)
        output = {split: int(size * rates["output"] * share) for split, share in config.split_fractions.items()}
        shards = sum(config.output.num_shards(s) or -(-output[s] // config.output.shard_bytes) for s in output)
        analysis = [("analyze", len(partitions), 0, size)] if config.preprocess else []
        return [*analysis, ("build", len(partitions), 0, size), ("assemble", shards, 0, sum(output.values()))]

    def _forecast(
        self,
        partitions: Sequence[Partition],
        steps: Sequence[_Todo],
        rates: dict[str, float],
        rates_from: str,
        *,
        kept_bytes: int = 0,
        why: Sequence[str] = (),
    ) -> Forecast:
        found = tuple(
            Step(name, todo, reused, size, (size / rates[name] if name in rates else None) if size else 0.0)
            for name, todo, reused, size in steps
        )
        return Forecast(
            up_to_date=not steps,
            partitions=len(partitions),
            source_bytes=sum(partition.num_bytes for partition in partitions),
            output_bytes=kept_bytes + sum(step.num_bytes for step in found if step.name == "assemble"),
            steps=found,
            rates=rates_from,
            reasons=tuple(why),
            assumed=tuple(self.assumed),
        )

    def _latest(self) -> Manifest | None:
        latest = self.layout.latest()
        try:
            return Manifest.load(self.layout.manifest_path(latest)) if latest else None
        except CorruptError as error:
            log.warning("%s", error)
            return None

    def _rates(self, partitions: Sequence[Partition], latest: Manifest | None) -> tuple[dict[str, float], str]:
        """Bytes per second of each step; and under ``output`` the bytes of shards for each byte of the source."""
        rates = read_rates(self.layout)
        if latest is not None and "build" in rates:
            read = sum(source.num_bytes for source in latest.sources)
            ratio = sum(shard.num_bytes for shard in latest.shards) / read if read else 0.0
            return rates | {"output": ratio}, f"the last builds in {self.layout.dir}"
        if not partitions:
            return {"output": 0.0}, "nothing: the source has no rows"
        sample = min(partitions, key=lambda partition: abs(partition.num_bytes - (16 << 20)))
        with tempfile.TemporaryDirectory(prefix="recordmill-plan-") as folder:
            output = self.config.output.model_copy(update={"dir": folder})
            config = self.config.model_copy(update={"output": output, "allow_empty": True, "on_schema_drift": None})
            result = build(config, [sample])
            measured = read_rates(Layout(folder))
        # All workers would be busy with more partitions than the one that was measured.
        scaled = {step: rate * min(config.runner.workers, len(partitions)) for step, rate in measured.items()}
        return scaled | {"output": result.num_bytes / sample.num_bytes}, f"a build of {sample.name} alone"

    def _schema(self, partitions: Sequence[Partition], latest: Manifest | None, cache: Cache) -> Schema | None:
        given = given_schema(self.config)
        tasks = profile_tasks(self.config, partitions, cache)
        try:
            profiles = read_profiles(tasks)
        except CorruptError:
            profiles = []
        if len(profiles) == len(tasks):
            return reconciled(self.config, given, partitions, profiles)
        if given is not None:
            self.assumed.append("the data are as the schema says")
            return given
        if latest is None:
            return None
        self.assumed.append(f"the schema stays as in version {latest.version}")
        return self._published_schema(latest)

    def _published_schema(self, latest: Manifest) -> Schema:
        path = os.path.join(self.layout.version_dir(latest.version), SCHEMA)
        with open(path, encoding="utf-8") as stream:
            return Schema.from_text(stream.read(), path=path)

    def _assume_transform(self, latest: Manifest | None, inputs: str | None) -> Transform:
        if latest is not None and latest.transform_digest and latest.graph_inputs == inputs:
            self.assumed.append("the results of the analysis stay as they are: else all partitions are built again")
            return Transform("", latest.transform_digest, latest.analyzers)
        return Transform("", "not made yet")

    def _block_files(self, partitions: Sequence[Partition], spec: BuildSpec, cache: Cache) -> dict[str, PlacedFile]:
        """The block files that are there, by the partition's key; the place is that of the last one with this key."""
        found = {}
        for partition in partitions:
            key = spec.key(partition)
            path = cache.path("blocks", key, ".blocks")
            if os.path.exists(path):
                try:
                    found[key] = PlacedFile(partition.place, read_block_file(path))
                except CorruptError as error:
                    log.warning("%s", error)
        return found

    def _shards(
        self, partitions: Sequence[Partition], spec: BuildSpec, files: dict[str, PlacedFile], ratio: float
    ) -> tuple[int, int, int, int]:
        """Shards to write and to take from earlier versions, and the bytes of each."""
        known, config = earlier_shards(self.layout), self.config
        made = taken = written = kept = 0
        by_span: dict[str, list[Partition]] = {}
        for partition in partitions:
            by_span.setdefault(partition.span, []).append(partition)
        for split, fraction in config.split_fractions.items():
            for inside in by_span.values():
                for part in parts(config, spec, split, [p.place for p in inside]):
                    members = [inside[i] for i in part]
                    placed = [
                        dataclasses.replace(files[key], place=p.place) for p in members if (key := spec.key(p)) in files
                    ]
                    if len(placed) < len(members) or spec.shuffle == "rows":
                        size = int(sum(p.num_bytes for p in members) * ratio * fraction)
                        made += config.output.num_shards(split) or -(-size // config.output.shard_bytes)
                        written += size
                        continue
                    for run in runs(config, spec, split, placed):
                        earlier = known.get(ShardPlan(split, "", run).key(spec.compression))
                        size = earlier.info.num_bytes if earlier else sum(piece.block.num_bytes for piece in run)
                        made, taken = made + (earlier is None), taken + (earlier is not None)
                        written, kept = written + size * (earlier is None), kept + size * (earlier is not None)
        return made, taken, written, kept
