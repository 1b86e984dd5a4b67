"""What would make a build faster or its files smaller, measured on a sample of the user's own data."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ruamel.yaml import YAML

from pipeline.columns import Advice, look_at_columns
from pipeline.config import Config
from pipeline.layout import Layout, Manifest
from pipeline.measure import Codec, feature_bytes, feature_seconds, levels
from pipeline.plan import PARTITION_BYTES
from pipeline.printing import size
from pipeline.sample import Sample, take_sample
from pipeline.source import DATABASES
from pipeline.values import processors
from transforms.compression import Compression
from transforms.files import write_committed
from transforms.sources.compressed import compression_of
from transforms.storage import is_remote

LARGER = 0.15  # that files may become for a level that is FASTER times as fast
FASTER = 2.0
SMALLER = 0.15  # that files have to become for one that is no more than FASTER times as slow
SHARDS_PER_HOST = 10  # at least, so that readers can share and shuffle them
LEAST_SHARD = 10 << 20  # bytes, where that makes fewer of them
COSTLY = 3.0  # times the middle feature, and a third of all: a feature that is worth a word


@dataclass(frozen=True)
class Advised:
    """``rows``: of the sample.  ``codecs``: from the fastest.  ``bytes``, ``seconds``: of the sample by feature, stored
    as things are, and in the transform graph alone.  ``advice``: the weightiest first."""

    rows: int
    codecs: tuple[Codec, ...]
    now: Compression
    bytes: Mapping[str, int]
    seconds: Mapping[str, float]
    analyzer_seconds: Mapping[str, float]
    advice: tuple[Advice, ...]
    output_bytes: int | None


def advise(config: Config, *, hosts: int | None = None) -> Advised:
    """Measures, and changes nothing.  ``hosts``: that will read the shards, each a part of them."""
    with tempfile.TemporaryDirectory() as folder:
        return _advise(config, take_sample(config, folder), hosts)


def _advise(config: Config, sample: Sample, hosts: int | None) -> Advised:
    output = config.output
    now = Compression(output.compression, output.level, output.gzip_members)
    codecs = levels(sample, now, read=True)
    sizes, seconds = feature_bytes(sample, now), feature_seconds(sample)
    total = _output_bytes(config, sample, next(codec for codec in codecs if codec.compression == now))
    advice = [
        *_compression(codecs, now),
        *_workers(config),
        *_files(config),
        *_shards(config, total, hosts),
        *_graph(seconds),
        *_analyzers(sample.analyzer_seconds),
        *look_at_columns(config, sample, now),
    ]
    return Advised(
        sample.num_rows,
        tuple(codecs),
        now,
        sizes,
        seconds,
        sample.analyzer_seconds,
        tuple(sorted(advice, key=lambda found: -found.weight)),
        total,
    )


def _compression(codecs: list[Codec], now: Compression) -> Iterator[Advice]:
    current = next(codec for codec in codecs if codec.compression == now)
    best, text, weight = current, "", 0.0
    for codec in codecs:
        larger = codec.num_bytes / current.num_bytes - 1
        faster = codec.write / current.write
        if larger <= LARGER and faster >= FASTER and codec.write > best.write:
            files = f"{larger:.0%} larger" if larger > 0 else f"{-larger:.0%} smaller"
            best, text, weight = codec, f"{faster:.1f}× faster to compress, and the files {files}", 1 - 1 / faster
        elif best is current and larger <= -SMALLER and faster >= 1 / FASTER:
            best, weight = codec, -larger
            rates = f"{codec.write / 1e6:,.0f} MB/s instead of {current.write / 1e6:,.0f}"
            text = f"the files {-larger:.0%} smaller, at {rates}"
    if best is not current:
        kind, level = best.compression.name, best.compression.level
        change = {"output.compression": kind} if kind != now.name else {"output.level": level}
        told = ", ".join(f"{key}: {value}" for key, value in change.items())
        yield Advice(f"{told} instead of {current.name}: {text}", weight, tuple(change.items()))


def _workers(config: Config) -> Iterator[Advice]:
    runner, here = config.runner, processors()
    if runner.name == "direct" and runner.workers < here:
        yield Advice(
            f"runner.workers: {here} instead of {runner.workers}: this machine has {here} processors, and a build of "
            f"enough partitions would take about {runner.workers / here:.0%} of its time",
            1 - runner.workers / here,
            (("runner.workers", here),),
        )


def _files(config: Config) -> Iterator[Advice]:
    """Files that cannot be cut, and are a large part of all."""
    if config.source.format in DATABASES:
        return
    sizes = {path: os.path.getsize(path) for path in config.files if not is_remote(path)}
    total = sum(sizes.values())
    for path, found in sizes.items():
        if compression_of(path) and found >= PARTITION_BYTES // 4 and found > total / max(2, config.runner.workers):
            yield Advice(
                f"{config.written(path)} is {found / total:.0%} of the source and compressed, so one worker reads it "
                f"alone: leave it uncompressed, or give Parquet or several files, and {config.runner.workers} could",
                found / total / 2,
            )


def _output_bytes(config: Config, sample: Sample, current: Codec) -> int | None:
    """Of all shards: what the latest version has, or what the source's size lets expect; None: not known."""
    layout = Layout(config.output_dir)
    latest = layout.latest() if os.path.isdir(layout.versions_dir) else None
    if latest is not None:
        return sum(shard.num_bytes for shard in Manifest.load(layout.manifest_path(latest)).shards)
    if sample.rows_per_byte is None or config.source.format in DATABASES or any(map(is_remote, config.files)):
        return None
    rows = sample.rows_per_byte * sum(os.path.getsize(path) for path in config.files)
    per_row = current.num_bytes / current.raw_bytes * sample.num_bytes / sample.num_rows
    return round(per_row * rows)


def _shards(config: Config, total: int | None, hosts: int | None) -> Iterator[Advice]:
    if hosts is None or total is None:
        return
    fractions, output = config.split_fractions, config.output
    wanted, weight = {}, 0.0
    for split, fraction in fractions.items():
        num_bytes = total * fraction / sum(fractions.values())
        now = output.num_shards(split) or max(1, round(num_bytes / output.shard_bytes))
        most = max(1, int(num_bytes // LEAST_SHARD))
        at_least = max(min(SHARDS_PER_HOST * hosts, most), round(num_bytes / output.shard_bytes), hosts)
        wanted[split] = now if now % hosts == 0 and now >= at_least else -(-at_least // hosts) * hosts
        if wanted[split] != now:
            weight = max(weight, 1 - min(now, wanted[split]) / max(now, wanted[split]))
    if weight:
        told = ", ".join(f"{split}: {n}" for split, n in wanted.items())
        largest = max(fractions, key=lambda split: fractions[split])
        each = size(total * fractions[largest] / sum(fractions.values()) / wanted[largest])
        yield Advice(
            f"output.shards: {{{told}}} for {hosts} hosts: the same number for each, of about {each} in {largest}",
            weight,
            (("output.shards", wanted), ("output.shard_size", None)),
        )


def _graph(seconds: Mapping[str, float]) -> Iterator[Advice]:
    if len(seconds) < 3:
        return
    ordered = sorted(seconds.values())
    middle, total = ordered[len(ordered) // 2], sum(ordered)
    for name, found in seconds.items():
        if found > COSTLY * middle and found > total / 3:
            yield Advice(
                f"`{name}` takes {found / total:.0%} of what the transform graph's {len(seconds)} features take alone, "
                f"{found / middle:.0f} times the middle one: see whether preprocessing_fn can make it more simply",
                found / total,
            )


def _analyzers(seconds: Mapping[str, float]) -> Iterator[Advice]:
    total = sum(seconds.values())
    for name, found in seconds.items():
        if len(seconds) > 2 and found > total / 2 and name != "graph":
            yield Advice(
                f"the analyzer `{name}` takes {found / total:.0%} of the analysis: preprocess_refresh: on_drift or "
                "frozen analyzes less often, and a simpler analyzer in less time",
                found / total / 2,
            )


def apply(config: Config, advice: tuple[Advice, ...]) -> list[str]:
    """Writes the advice that the config can follow into its file, comments and all; returns what was written, in words.

    None as a value takes the key out.
    """
    yaml = YAML()  # keeps comments and order
    yaml.preserve_quotes = True
    yaml.width = 1000
    with open(config.path, encoding="utf-8") as stream:
        data = yaml.load(stream)
    told = []
    for key, value in (change for found in advice for change in found.change):
        *groups, last = key.split(".")
        at = data
        for group in groups:
            at = at.setdefault(group, {})
        if value is None:
            if at.pop(last, None) is not None:
                told.append(f"{key} is gone")
        elif at.get(last) != value:
            at[last] = value
            told.append(f"{key}: {value}")
    if told:
        sink = io.StringIO()
        yaml.dump(data, sink)
        write_committed(config.path, sink.getvalue())
    return told
