"""Why a build took as long as it did, in sentences: what its workers did with their time, and what would change it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.config import Config
from pipeline.measure import feature_seconds, levels
from pipeline.plan import PARTITION_BYTES
from pipeline.printing import duration
from pipeline.result import BuildResult
from pipeline.sample import Sample, take_sample
from pipeline.times import OTHER, by_step
from pipeline.values import processors
from transforms.compression import Compression
from transforms.timing import ANALYZER

LARGE = 0.25  # of the workers' time: a step that took more is worth a sentence
ALONE = 0.6  # of a stage's time: a task that took more, while others could have worked, held it up
NOTABLE = 0.05  # of the build: what would save less is not told
SHOWN = 3  # features

_COMPRESSED = re.compile(r"\.(gz|bz2|zst|xz)\b")

# What each step is, for people.
STEPS = {
    "read": "reading and parsing the source",
    "infer": "looking for the schema",
    "prepare": "the function of `prepare`",
    "load": "loading TensorFlow and the transform graph",
    "preprocess": "the transform graph",
    "accumulate": "analysis",
    "graph": "the graph before the analyzers",
    "convert": "making features of columns",
    "encode": "encoding Examples",
    "compress": "compression",
    "cut": "shuffling and cutting blocks",
    "write": "writing files",
    "statistics": "statistics",
    OTHER: "the start of tasks",
}


@dataclass(frozen=True)
class Finding:
    """``seconds``: that the build would have been shorter, about; 0 where that is not known."""

    text: str
    seconds: float = 0.0


def bottlenecks(config: Config, result: BuildResult) -> list[Finding]:
    """What held the build up, the worst first; what is said of codecs and features is measured on a sample now."""
    if not result.stages:
        return []
    found = [*_workers(config, result), *_alone(config, result), *_steps(config, result)]
    return sorted(found, key=lambda finding: -finding.seconds)


def _workers(config: Config, result: BuildResult) -> Iterator[Finding]:
    runner, here = config.runner, processors()
    if runner.name != "direct" or runner.workers >= here:
        return
    shorter = 0.0
    for stage in result.stages:
        could = max(stage.longest_seconds, stage.busy / here)
        shorter += max(0.0, stage.seconds - could)
    if shorter > NOTABLE * result.seconds:
        yield Finding(
            f"runner.workers is {runner.workers}, and this machine has {here} processors: with runner.workers: {here} "
            f"the build would take about {duration(result.seconds - shorter)} instead of {duration(result.seconds)}",
            shorter,
        )


def _alone(config: Config, result: BuildResult) -> Iterator[Finding]:
    """Stages that waited for one partition while other workers had nothing to do."""
    workers = config.runner.workers
    for stage in result.stages:
        shorter = stage.seconds - stage.busy / workers
        if stage.longest_seconds < ALONE * stage.seconds or shorter < NOTABLE * result.seconds:
            continue
        if not _COMPRESSED.search(stage.longest) and stage.longest_bytes < PARTITION_BYTES:
            continue  # there is not enough data for two
        yield Finding(
            f"{stage.stage} waited for one task: {stage.longest} took {duration(stage.longest_seconds)} of its "
            f"{duration(stage.seconds)}, while other workers had nothing to do: a file that cannot be cut into parts "
            "is read by one; leave it uncompressed, or give Parquet or several files",
            shorter,
        )


def _steps(config: Config, result: BuildResult) -> Iterator[Finding]:
    """The steps that took most of the workers' time."""
    seconds = by_step(result.stages)
    busy = sum(seconds.values())
    large = [name for name, of_step in seconds.items() if of_step > LARGE * busy] or [next(iter(seconds))]
    with tempfile.TemporaryDirectory() as folder:
        sample = take_sample(config, folder) if {"compress", "preprocess"} & set(large) else None
        yield from _large_steps(config, result, seconds, large, sample)


def _large_steps(
    config: Config, result: BuildResult, seconds: Mapping[str, float], large: Sequence[str], sample: Sample | None
) -> Iterator[Finding]:
    busy = sum(seconds.values())
    for name in large:
        share = seconds[name] / busy
        called = f"the {name}" if name.startswith(ANALYZER) else STEPS.get(name, name)
        text = f"{called} took {share:.0%} of the workers' time"
        spent = share * result.seconds
        if name == "compress" and sample is not None:
            yield _compression(config, sample, text, spent)
        elif name == "preprocess" and sample is not None:
            yield _graph(sample, text, spent)
        else:
            yield Finding(text + _cure(name, config))


def _cure(step: str, config: Config) -> str:
    if step == "read" and config.source.format in ("csv", "jsonl", "text"):
        return f": Parquet, with its types and columns, takes less of it than {config.source.format}"
    if step == "prepare":
        return f": {config.prepare} works fastest on whole columns (pyarrow.compute), not row by row"
    return ""


def _compression(config: Config, sample: Sample, text: str, spent: float) -> Finding:
    output = config.output
    now = Compression(output.compression, output.level, output.gzip_members)
    codecs = levels(sample, now)
    current = next(codec for codec in codecs if codec.compression == now)
    fastest = max(codecs, key=lambda codec: codec.write)
    if fastest.write < 1.2 * current.write:
        return Finding(f"{text}, and no level is much faster than {current.name}")
    larger = fastest.num_bytes / current.num_bytes - 1
    size = f"{larger:.0%} larger" if larger >= 0 else f"{-larger:.0%} smaller"
    return Finding(
        f"{text}: output.level: {fastest.compression.level} would be {fastest.write / current.write:.1f}× faster than "
        f"{current.name}, and {size}",
        spent * (1 - current.write / fastest.write),
    )


def _graph(sample: Sample, text: str, spent: float) -> Finding:
    costs = feature_seconds(sample)
    return Finding(f"{text}{_costliest(costs)}", spent * _excess(costs))


def _costliest(costs: Mapping[str, float]) -> str:
    total = sum(costs.values())
    if len(costs) < 2 or not total:
        return ""
    first: Sequence[str] = sorted(costs, key=lambda name: -costs[name])[:SHOWN]
    told = ", ".join(f"`{name}` {costs[name] / total:.0%}" for name in first)
    return f": of what each of its {len(costs)} features takes alone, {told}"


def _excess(costs: Mapping[str, float]) -> float:
    """The part that would be gone if the costliest feature were as cheap as the middle one."""
    ordered = sorted(costs.values())
    return (ordered[-1] - ordered[len(ordered) // 2]) / sum(ordered) if sum(ordered) else 0.0
