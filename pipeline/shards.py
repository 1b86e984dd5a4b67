"""The shards of a version: which there are to be, and how they come about.

A shard that an earlier version has already, made of the same pieces of the same blocks, is taken from there.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.config import Config
from pipeline.layout import Layout, Manifest, shard_from_plain, shard_to_plain
from pipeline.stages import Task, Workers, run_stage
from transforms.assemble import ShardInfo, assemble_shard, shard_crc32c, take_shard
from transforms.blockfile import BlockFile
from transforms.build import BuildSpec
from transforms.compression import Compression
from transforms.deal import Piece, ShardPlan, deal, num_shards, order_blocks, sections, shard_name
from transforms.errors import CorruptError
from transforms.files import read_checked, write_checked

LOOKED_AT = 4  # versions whose shards may be taken: the latest, and the newest others

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class PlacedFile:
    """A block file and its place in the source, which decides the section that it belongs to."""

    place: str
    file: BlockFile


@dataclass(frozen=True)
class Earlier:
    """A shard that an earlier version has."""

    path: str
    info: ShardInfo


def plan_shards(config: Config, spec: BuildSpec, by_span: Mapping[str, Sequence[PlacedFile]]) -> list[ShardPlan]:
    """All shards in order.  Each split and span has its own; the config's number of shards is that of each span."""
    plans = []
    for split in config.split_names:
        found: list[ShardPlan] = []
        for span, files in by_span.items():
            dealt = [
                run
                for part in parts(config, spec, split, [file.place for file in files])
                for run in runs(config, spec, split, [files[i] for i in part])
            ]
            stem = "-".join([config.name, split, *([span] if span else [])])
            for i, run in enumerate(dealt):
                name = shard_name(stem, i, count=len(dealt), suffix=spec.compression.suffix)
                found.append(ShardPlan(split, name, run, span))
        if not found:
            log.warning("the split %r has no rows: it has no shards", split)
        plans += found
    return plans


def parts(config: Config, spec: BuildSpec, split: str, places: Sequence[str]) -> list[list[int]]:
    """The block files of a span that shards of the split are made of together, as indexes: sections, or all."""
    if config.output.num_shards(split) is not None or spec.shuffle == "rows":
        return [list(range(len(places)))] if places else []
    return sections(places, shuffle_seed=spec.seed if spec.shuffle == "blocks" else None)


def runs(config: Config, spec: BuildSpec, split: str, files: Sequence[PlacedFile]) -> list[tuple[Piece, ...]]:
    """What each shard of one part holds."""
    seed = f"{spec.seed} {files[0].place}" if spec.shuffle == "blocks" else None
    pieces = order_blocks([file.file for file in files], split, shuffle_seed=seed)
    count = num_shards(pieces, shards=config.output.num_shards(split), shard_bytes=config.output.shard_bytes)
    return deal(pieces, count)


def make_shards(
    plans: Sequence[ShardPlan],
    *,
    layout: Layout,
    compression: Compression,
    staged: str,
    workers: Workers,
    work_dir: str,
) -> tuple[list[ShardInfo], int]:
    """Makes the shards below the folder ``staged``.  Returns them in order, and how many were taken as they are."""
    known = earlier_shards(layout)
    found = {plan.name: earlier for plan in plans if (earlier := known.get(plan.key(compression)))}
    folder = f"{staged}.shards"  # what each is like: beside the shards, so that one cannot be without the other
    os.makedirs(staged)
    takes = []
    for plan in plans:
        if earlier := found.get(plan.name):
            take = Take(
                earlier.path,
                os.path.join(staged, plan.split, plan.name),
                earlier.info.num_bytes,
                shard_crc32c(earlier.info, compression),
            )
            takes.append(Task(take, os.path.join(folder, f"{plan.name}.taken"), plan.name))
    run_stage("TakeShards", _take_shard, takes, workers=workers, work_dir=work_dir)
    taken = {task.name for task in takes if read_checked(task.output) == _TAKEN}
    function = functools.partial(_make_shard, folder=staged, compression=compression)
    tasks = [
        Task(plan, os.path.join(folder, f"{plan.name}.json"), plan.name) for plan in plans if plan.name not in taken
    ]
    run_stage("AssembleShards", function, tasks, workers=workers, work_dir=work_dir)
    made = {t.name: shard_from_plain(json.loads(read_checked(t.output)), t.argument.split) for t in tasks}
    infos = [
        replace(found[plan.name].info, split=plan.split, name=plan.name, span=plan.span)
        if plan.name in taken
        else made[plan.name]
        for plan in plans
    ]
    return infos, len(taken)


def earlier_shards(layout: Layout) -> dict[str, Earlier]:
    """By key, the shards of the versions from which they may be taken."""
    known: dict[str, Earlier] = {}
    for version in reversed(layout.published()[-LOOKED_AT:]):
        try:
            manifest = Manifest.load(layout.manifest_path(version))
        except CorruptError as error:
            log.warning("%s; none of its shards is taken", error)
            continue
        for shard in manifest.shards:
            known.setdefault(
                shard.key, Earlier(os.path.join(layout.split_dir(version, shard.split), shard.name), shard)
            )
    return known


@dataclass(frozen=True)
class Take:
    """A shard of an earlier version, the file ``earlier``, that gets the name ``path`` too if it is still the same."""

    earlier: str
    path: str
    num_bytes: int
    checksum: int  # CRC-32C


_TAKEN, _DAMAGED = b"taken", b"damaged"


def _take_shard(take: Take, path: str) -> None:
    """Takes the shard, and commits as ``path`` whether that could be done."""
    try:
        take_shard(take.earlier, take.path, num_bytes=take.num_bytes, checksum=take.checksum)
    except CorruptError as error:
        log.warning("%s", error)
        write_checked(path, _DAMAGED)
    else:
        write_checked(path, _TAKEN)


def _make_shard(plan: ShardPlan, path: str, *, folder: str, compression: Compression) -> None:
    """Makes the shard in its split's folder below ``folder``, and commits what it is like as the JSON ``path``."""
    info = assemble_shard(plan, os.path.join(folder, plan.split), compression=compression)
    write_checked(path, json.dumps(shard_to_plain(replace(info, key=plan.key(compression)))))
