"""``recordmill schema``: a schema.pbtxt of what all rows say, or what differs from the one that the config names."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.config import Config
from pipeline.layout import Layout
from pipeline.plan import Cache, list_partitions, remove_damaged, row_spec
from pipeline.profiles import inferred_schema, make_profiles, profile_tasks
from pipeline.schema import compare, given_schema, strays_in_words
from pipeline.stages import Task, Workers, run_stage
from transforms.domains import FeatureValues, add, from_plain, too_many, widened, with_domains
from transforms.errors import ConfigError
from transforms.files import read_checked, temporary_folder, write_committed
from transforms.fingerprint import digest, library_version
from transforms.infer import merge
from transforms.partition import BadRowLimit, Partition
from transforms.passes import observe_partition
from transforms.rows import RowSpec
from transforms.schema import Schema

SCHEMA_FILE = "schema.pbtxt"
OBSERVED_FORMAT = 1  # raised when the same rows give other values


@dataclass(frozen=True)
class SchemaResult:
    """``schema``: what fits all rows.  ``differences``: from the schema that the config names, in words.

    ``written``: the file; None: nothing was written.  ``rows``: that were looked at.
    """

    schema: Schema
    rows: int
    differences: tuple[str, ...]
    written: str | None


def look_at_schema(config: Config, *, output: str | None, update: bool, force: bool) -> SchemaResult:
    """Looks at all rows, and writes a schema where the config names none, or where ``update`` asks for a fitting one.

    ``output``: the file (None: ``schema.pbtxt`` beside the config, or the file that it names).  What was looked at goes
    to the cache of the output folder, for the build.  Raises ConfigError before any work when the file is there and not
    ``force``; SchemaError when the data come to no schema.
    """
    given = given_schema(config)
    path = output or config.schema_path or os.path.join(os.path.dirname(config.path), SCHEMA_FILE)
    writes = given is None or update or output is not None
    if writes and os.path.lexists(path) and not force and not (update and path == config.schema_path):
        raise ConfigError(f"{path}: already there; name another file by -o, or say --force")
    layout = Layout(config.output_dir)
    layout.claim()
    cache, workers = Cache(layout.cache_dir), Workers(config.runner.workers, settings=config.runner.settings)
    with temporary_folder(layout.cache_dir, "work") as work_dir:
        partitions = list_partitions(config)
        tasks = profile_tasks(config, partitions, cache, given_too=True)
        profile = merge(make_profiles(config, tasks, workers=workers, work_dir=work_dir))
        drift = compare(given, profile) if given is not None else None
        schema = drift.adapted if drift else inferred_schema(config, partitions, profile)
        rows = replace(row_spec(config, schema), bad_row_limit=BadRowLimit(fraction=1.0))
        observed = _observed(partitions, rows, cache=cache, workers=workers, work_dir=work_dir)
    differences = list(drift.differences if drift else ())
    if given is None:
        schema = with_domains(schema, observed.values)
    else:
        strays = too_many(schema, observed.strays, observed.in_domains)
        differences += strays_in_words(strays, observed.in_domains, hidden=config.redact or ())
        schema = widened(schema, strays)
    if writes:
        write_committed(path, schema.to_text())
    return SchemaResult(schema, profile.rows, tuple(differences), path if writes else None)


@dataclass(frozen=True)
class _Observed:
    values: FeatureValues
    strays: FeatureValues
    in_domains: dict[str, int]


def _observed(
    partitions: Sequence[Partition], rows: RowSpec, *, cache: Cache, workers: Workers, work_dir: str
) -> _Observed:
    form = [OBSERVED_FORMAT, rows.key(), library_version("pyarrow")]
    tasks = [
        Task(p, cache.path("values", digest([p.fingerprint, *form]), ".json"), p.name, p.num_bytes) for p in partitions
    ]
    remove_damaged((task.output for task in tasks), read_checked)
    run_stage(
        "ObserveValues", functools.partial(observe_partition, rows=rows), tasks, workers=workers, work_dir=work_dir
    )
    found = [json.loads(read_checked(task.output)) for task in tasks]
    in_domains: dict[str, int] = {}
    for part in found:
        for name, count in part["in_domains"].items():
            in_domains[name] = in_domains.get(name, 0) + count
    return _Observed(
        add(from_plain(part["values"]) for part in found), add(from_plain(part["strays"]) for part in found), in_domains
    )
