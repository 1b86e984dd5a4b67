"""What all rows of the source say about its columns: profiles of partitions, in the cache, and the schema of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence

from pipeline.config import Config
from pipeline.plan import Cache, remove_damaged
from pipeline.stages import Task, Workers, run_stage
from transforms.errors import BadRowsError, ConfigError, RecordmillError, SchemaError, shorten
from transforms.files import read_checked
from transforms.fingerprint import digest, library_version
from transforms.infer import Profile, merge, to_schema
from transforms.partition import BadRow, Partition
from transforms.passes import profile_partition
from transforms.reading import Reader
from transforms.schema import Schema

PROFILE_FORMAT = 1  # raised when the same rows give another profile


def profile_tasks(
    config: Config, partitions: Sequence[Partition], cache: Cache, *, given_too: bool = False
) -> list[Task]:
    """What makes the profile of each partition; none where a schema is given that need not be held against all rows.

    ``given_too``: also then.
    """
    if config.schema_path is not None and config.on_schema_drift not in ("fail", "adapt") and not given_too:
        return []
    form = [PROFILE_FORMAT, config.source_spec.key(), library_version("pyarrow")]
    return [
        Task(p, cache.path("profiles", digest([p.fingerprint, *form]), ".json"), p.name, p.num_bytes)
        for p in partitions
    ]


def make_profiles(config: Config, tasks: Sequence[Task], *, workers: Workers, work_dir: str) -> list[Profile]:
    """The profiles of the tasks; what the cache lacks, or holds damaged, is made."""
    remove_damaged((task.output for task in tasks), read_checked)
    profiler = functools.partial(
        profile_partition, source=config.source_spec, bad_row_limit=config.max_bad_rows, redact=config.redact or ()
    )
    run_stage("InferSchema", profiler, tasks, workers=workers, work_dir=work_dir)
    return read_profiles(tasks)


def read_profiles(tasks: Iterable[Task]) -> list[Profile]:
    """The profiles of the tasks that the cache has."""
    return [Profile.from_json(read_checked(t.output).decode()) for t in tasks if os.path.exists(t.output)]


def guess(config: Config, sample: Sequence[Task], tasks: Sequence[Task], *, workers: Workers, work_dir: str) -> Profile:
    """What the partitions whose profiles are known, and those of the sample, say together."""
    remove_damaged((task.output for task in tasks), read_checked)
    make_profiles(config, sample, workers=workers, work_dir=work_dir)
    return merge(read_profiles(tasks))


def inferred_schema(config: Config, partitions: Sequence[Partition], profile: Profile) -> Schema:
    """What the profile of all partitions comes to.  Raises SchemaError or ConfigError where that is no schema."""
    schema = to_schema(profile)
    if not schema.features and (profile.rows or not config.allow_empty):
        raise _no_columns(config, partitions)
    _check_keys(config, schema)
    return schema


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
