"""What a build has to do: the partitions of the source, the schema, and the place of each result in the cache."""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from pipeline.config import Config
from pipeline.stages import Task, Workers, run_stage
from transforms.bucket import num_buckets
from transforms.build import BuildSpec, Transform
from transforms.compression import Compression
from transforms.errors import BadRowsError, ConfigError, CorruptError, RecordmillError, SchemaError, shorten
from transforms.files import read_checked
from transforms.fingerprint import digest
from transforms.infer import Profile, merge, to_schema
from transforms.partition import BadRow, Partition
from transforms.passes import profile_partition
from transforms.reading import Reader
from transforms.rows import RowSpec
from transforms.schema import Schema
from transforms.sources.nested import find
from transforms.split import Splitter

PARTITION_BYTES = 64 << 20  # raw bytes of the source: the unit of work and of the cache
LOOKED_AT = 100  # files, for the names of their columns
PROFILE_FORMAT = 1  # raised when the same rows give another profile

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class Cache:
    """Files named by the hash of all that they were made from: what is there need not be made again."""

    folder: str

    def path(self, kind: str, key: str, suffix: str) -> str:
        return os.path.join(self.folder, kind, key + suffix)


def remove_damaged(paths: Iterable[str], read: Callable[[str], object]) -> None:
    """Removes the entries of the cache that ``read`` finds damaged, so that they are made again, and says so."""
    for path in paths:
        if os.path.exists(path):
            try:
                read(path)
            except CorruptError as error:
                log.warning("%s", error)
                os.unlink(path)


def list_partitions(config: Config, files_by_span: Mapping[str, Sequence[str]] | None = None) -> list[Partition]:
    """The source, or some files of it, cut into partitions; all of it is read once, for the hashes of its content."""
    source = config.source_spec.open()
    begun = Counter[str]()
    placed = []
    for span, paths in (config.files_by_span if files_by_span is None else files_by_span).items():
        for partition in source.partitions(paths, target_bytes=PARTITION_BYTES):
            name = config.written(partition.slices[0].path)
            placed.append(replace(partition, span=span, place=f"{name}#{begun[name]}"))
            begun[name] += 1
    return placed


def profile_tasks(config: Config, partitions: Sequence[Partition], cache: Cache) -> list[Task]:
    """What makes the profile of each partition, for a config without a schema; none where there is one."""
    if config.schema_path is not None:
        return []
    form = [PROFILE_FORMAT, config.source_spec.key(), version("pyarrow")]
    return [
        Task(p, cache.path("profiles", digest([p.fingerprint, *form]), ".json"), p.name, p.num_bytes)
        for p in partitions
    ]


def given_schema(config: Config) -> Schema | None:
    """The schema of the file that the config names, if it names one."""
    if config.schema_path is None:
        return None
    with open(config.schema_path, encoding="utf-8") as stream:
        schema = Schema.from_text(stream.read(), path=config.schema_path)
    if not schema.features:
        raise SchemaError(f"{config.schema_path}: declares no features; leave schema out to have it inferred")
    return schema


def read_schema(
    config: Config, partitions: Sequence[Partition], *, cache: Cache, workers: Workers, work_dir: str
) -> Schema:
    """The schema that the config names or, without one, what all rows of the source say."""
    given = given_schema(config)
    if given is not None:
        _compare_columns(config, given, partitions)
        return given
    tasks = profile_tasks(config, partitions, cache)
    remove_damaged((task.output for task in tasks), read_checked)
    _run_profiles(config, tasks, workers=workers, work_dir=work_dir)
    return merged_schema(config, partitions, [read_checked(task.output) for task in tasks])


def guess_schema(
    config: Config,
    sample: Sequence[Task],
    partitions: Sequence[Partition],
    *,
    cache: Cache,
    workers: Workers,
    work_dir: str,
) -> Profile:
    """What the partitions whose profiles are known, and those of the sample, say together."""
    tasks = profile_tasks(config, partitions, cache)
    remove_damaged((task.output for task in tasks), read_checked)
    _run_profiles(config, sample, workers=workers, work_dir=work_dir)
    known = [read_checked(task.output) for task in tasks if os.path.exists(task.output)]
    return merge(Profile.from_json(profile.decode()) for profile in known)


def _run_profiles(config: Config, tasks: Sequence[Task], *, workers: Workers, work_dir: str) -> None:
    profiler = functools.partial(
        profile_partition, source=config.source_spec, bad_row_limit=config.max_bad_rows, redact=config.redact or ()
    )
    run_stage("InferSchema", profiler, tasks, workers=workers, work_dir=work_dir)


def merged_schema(config: Config, partitions: Sequence[Partition], profiles: Iterable[bytes]) -> Schema:
    """What the profiles of all partitions (as JSON) say together."""
    merged = merge([Profile.from_json(profile.decode()) for profile in profiles])
    schema = to_schema(merged)
    if not schema.features and (merged.rows or not config.allow_empty):
        raise _no_columns(config, partitions)
    _check_keys(config, schema)
    return schema


def _compare_columns(config: Config, schema: Schema, partitions: Sequence[Partition]) -> None:
    """Warns of features that no file seems to have, and of columns that the schema leaves out, by their names.

    Looks at the beginning of one file after the other until it has met all features, and at ``LOOKED_AT`` at most.
    """
    kinds = row_spec(config, schema).kinds
    absent = {feature.name: feature.source for feature in schema.features}
    left_out: dict[str, None] = {}
    roots = {feature.source[0] for feature in schema.features} | set(config.split_by or ())
    files = [piece for partition in partitions for piece in partition.slices if piece.first_row == 0]
    for piece in files[:LOOKED_AT]:
        reader = Reader(Partition((piece,)), config.source_spec, lambda row: None)
        for raw in itertools.islice(reader.read(declared=kinds), 2):
            absent = {name: path for name, path in absent.items() if find(raw.data, path) is None}
            left_out |= dict.fromkeys(name for name in raw.data.schema.names if name not in roots)
        if not absent:
            break
    if absent and 0 < len(files) <= LOOKED_AT:
        log.warning(
            "%s: no file has %s, so these features are missing in all rows; see how the columns are spelled, and that "
            'fields of structs have the tag source: ["struct", "field"]',
            config.schema_path,
            shorten(", ".join(absent), 200),
        )
    if left_out:
        log.warning("%s leaves out columns of the data: %s", config.schema_path, shorten(", ".join(left_out), 200))


def _no_columns(config: Config, partitions: Sequence[Partition]) -> RecordmillError:
    """Why there are none: rows that the source can make nothing of, if it has any."""
    bad: list[BadRow] = []
    for partition in partitions:
        for _ in Reader(partition, config.source_spec, bad.append).read():
            pass
        if bad:
            return BadRowsError(bad)
    return SchemaError(f"{config.path}: the source has no columns; see that the files are not empty, or give a schema")


def _check_keys(config: Config, schema: Schema) -> None:
    """An inferred schema has all columns of the data, so a key that it lacks is nowhere."""
    names = [".".join(feature.source) for feature in schema.features]
    known = {name[:end] for name in names for end in (len(name), *(i for i, c in enumerate(name) if c == "."))}
    for key in config.split_by or ():
        if schema.features and key not in known:
            raise ConfigError(
                f"{config.path}: split_by names the column {key!r}, which is not in the data; it has "
                f"{shorten(', '.join(dict.fromkeys(names)), 200)}"
            )


def row_spec(config: Config, schema: Schema) -> RowSpec:
    if schema.sequence and config.preprocess:
        raise ConfigError(
            f"{config.path}: preprocess takes Examples, and the schema makes SequenceExamples of feature lists "
            f"({', '.join(sorted(schema.sequence))}); leave preprocess out, or declare these features as ragged"
        )
    return RowSpec(
        source=config.source_spec,
        schema_text=schema.to_text(),
        splitter=Splitter.of(config.split_fractions, keys=config.split_by or ()),
        bad_row_limit=config.max_bad_rows,
        redact=config.redact or (),
    )


def build_spec(
    config: Config, rows: RowSpec, partitions: Sequence[Partition], transform: Transform | None
) -> BuildSpec:
    output = config.output
    num_bytes = Counter[str]()
    for partition in partitions:
        num_bytes[partition.span] += partition.num_bytes
    return BuildSpec(
        rows=rows,
        compression=Compression(name=output.compression, level=output.level, gzip_members=output.gzip_members),
        transform=transform,
        shuffle=output.shuffle,
        seed=output.seed,
        buckets={span: num_buckets(size) for span, size in num_bytes.items()} if output.shuffle == "rows" else {},
    )
