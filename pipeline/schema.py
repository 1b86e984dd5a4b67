"""The schema of a build: the file that the config names, or what the data say, and what is done where the two differ.

``on_schema_drift``: ``warn`` says what differs, as far as the names of the columns and the values show it; ``fail``
and ``adapt`` look at all rows, and refuse the data or change the schema.  Without a file, the schema is inferred, and
is held against that of the version before.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.config import Config
from pipeline.plan import Cache, row_spec
from pipeline.profiles import inferred_schema, make_profiles, profile_tasks
from pipeline.reasons import schema_changes
from pipeline.stages import Workers
from transforms.blockfile import BlockFile
from transforms.domains import FeatureValues, add, too_many, widened
from transforms.errors import SchemaError, shorten
from transforms.infer import ColumnProfile, Profile, merge, to_schema
from transforms.partition import Partition
from transforms.reading import Reader
from transforms.schema import Feature, Schema
from transforms.sources.nested import find

LOOKED_AT = 100  # files, for the names of their columns
SHOWN = 20  # differences

log = logging.getLogger("recordmill")


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
    """The schema that the config names or, without one, what all rows of the source say.

    Raises SchemaError where the data differ from it and ``on_schema_drift`` is ``fail``.
    """
    tasks = profile_tasks(config, partitions, cache)
    profiles = make_profiles(config, tasks, workers=workers, work_dir=work_dir)
    given = given_schema(config)
    if given is not None and not tasks:
        _compare_columns(config, given, partitions)
    return reconciled(config, given, partitions, profiles)


def reconciled(
    config: Config, given: Schema | None, partitions: Sequence[Partition], profiles: Sequence[Profile]
) -> Schema:
    """``read_schema``, once the profiles of ``profile_tasks`` are there."""
    if given is None:
        return inferred_schema(config, partitions, merge(profiles))
    if not profiles:
        return given
    drift = compare(given, merge(profiles))
    if drift.differences and config.on_schema_drift == "fail":
        raise _refused(config, f"{config.schema_path}: the data differ from the schema", drift.differences)
    for difference in drift.differences:
        log.warning("%s: the schema is adapted: %s", config.schema_path, difference)
    return drift.adapted


def _refused(config: Config, what: str, differences: Sequence[str]) -> SchemaError:
    more = len(differences) - SHOWN
    lines = [*differences[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
    cure = (
        f"`recordmill schema {config.path} --update` writes a schema that fits, on_schema_drift: adapt makes one in "
        "each build"
        if config.schema_path
        else "on_schema_drift: adapt accepts it"
    )
    return SchemaError("\n  ".join([f"{what}, and on_schema_drift is fail; {cure}:", *lines]))


# ---- columns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnDrift:
    """``differences``: in words.  ``adapted``: the schema with what the data have instead."""

    differences: tuple[str, ...]
    adapted: Schema


def compare(schema: Schema, profile: Profile) -> ColumnDrift:
    """How the columns of the profiled rows differ from the schema: new and missing ones, types, numbers of values.

    A column that differs is adapted to what the rows say; one that no row has becomes optional.
    """
    columns = {column.source: column for column in profile.columns}
    differences, features = [], []
    for feature in schema.features:
        column = columns.get(feature.source)
        found = None if feature.row_lengths_of or feature.steps else _difference(feature, column, profile.rows)
        if found is not None:
            differences.append(f"column {'.'.join(feature.source)!r} {found}")
            feature = _adapted(feature, column, profile.rows)
        features.append(feature)
    known = {feature.source[0] for feature in schema.features}
    new = tuple(column for column in profile.columns if column.source[0] not in known)
    for column in new:
        example = f", such as {column.evidence[0]}" if column.evidence else ""
        differences.append(
            f"column {'.'.join(column.source)!r} is not in the schema; {column.present:,} of {profile.rows:,} rows "
            f"have it{example}"
        )
    features.extend(to_schema(Profile(profile.rows, new)).features)
    return ColumnDrift(tuple(differences), replace(schema, features=tuple(features)))


def _difference(feature: Feature, column: ColumnProfile | None, rows: int) -> str | None:
    present = column.present if column else 0
    if rows and not present:
        return "has no value in any row"
    if column is None:
        return None
    for evidence in column.evidence:
        if not _fits(feature, evidence.kind):
            return f"is {feature.kind} in the schema, and holds {evidence}"
    if feature.required and feature.default is None and present < rows:
        return f"is required, and {rows - present:,} of {rows:,} rows have no value"
    wanted = feature.num_values
    if present and wanted is not None and not (column.least == column.most == wanted) and feature.default is None:
        return f"has {wanted} values in the schema, and {column.least:,} to {column.most:,} in the rows"
    return None


def _fits(feature: Feature, kind: str) -> bool:
    if feature.kind == "bytes" or kind == "undecided":
        return True
    whole = kind in ("int", "integer cell") or kind.startswith(("time in ", "duration in "))
    return whole or (feature.kind == "float" and kind in ("float", "decimal", "decimal cell", "NaN or infinity cell"))


def _adapted(feature: Feature, column: ColumnProfile | None, rows: int) -> Feature:
    if column is None or not column.present:
        return replace(feature, required=False)
    if all(_fits(feature, evidence.kind) for evidence in column.evidence) and (column.least, column.most) == (1, 1):
        return replace(feature, required=feature.required and column.present == rows)
    found = to_schema(Profile(rows, (column,))).features[0]
    return replace(found, name=feature.name, default=feature.default if found.kind == feature.kind else None)


def _compare_columns(config: Config, schema: Schema, partitions: Sequence[Partition]) -> None:
    """Warns of features that no file seems to have, and of columns that the schema leaves out, by their names.

    Looks at the beginnings of ``LOOKED_AT`` files at most: at rows of them until it has met all features.
    """
    kinds = row_spec(config, schema).kinds
    absent = {feature.name: feature.source for feature in schema.features}
    left_out: dict[str, None] = {}
    roots = {feature.source[0] for feature in schema.features} | set(config.split_by or ())
    files = [piece for partition in partitions for piece in partition.slices if piece.first_row == 0]
    for piece in files[:LOOKED_AT]:
        reader = Reader(Partition((piece,)), config.source_spec, lambda row: None)
        for raw in itertools.islice(reader.read(declared=kinds), 2 if absent else 1):
            absent = {name: path for name, path in absent.items() if find(raw.data, path) is None}
            left_out |= dict.fromkeys(name for name in raw.data.schema.names if name not in roots)
    if absent and 0 < len(files) <= LOOKED_AT:
        log.warning(
            "%s: no file has %s, so these features are missing in all rows; see how the columns are spelled, and that "
            'fields of structs have the tag source: ["struct", "field"]',
            config.schema_path,
            shorten(", ".join(absent), 200),
        )
    if left_out:
        log.warning("%s leaves out columns of the data: %s", config.schema_path, shorten(", ".join(left_out), 200))


# ---- against the version before --------------------------------------------------------------------------------------


def check_inferred(config: Config, before: Schema, schema: Schema, *, version: str) -> None:
    """Holds an inferred schema against that of the version before, where ``on_schema_drift`` asks for it.

    Raises SchemaError when they differ and it is ``fail``.
    """
    changes = list(schema_changes(before, schema))
    if not changes or config.schema_path is not None:
        return
    if config.on_schema_drift == "fail":
        raise _refused(config, f"the data have another schema than version {version}", changes)
    for change in changes if config.on_schema_drift == "warn" else ():
        log.warning("the data have another schema than version %s: %s", version, change)


# ---- values ----------------------------------------------------------------------------------------------------------


def check_values(config: Config, schema: Schema, block_files: Sequence[BlockFile]) -> Schema:
    """The schema to publish, after a look at the values outside of its domains.

    Raises SchemaError where there are any, more than their domain allows, and ``on_schema_drift`` is ``fail``.
    """
    strays: FeatureValues = add(file.strays for file in block_files)
    values: dict[str, int] = {}
    for file in block_files:
        for name, count in file.in_domains.items():
            values[name] = values.get(name, 0) + count
    found = too_many(schema, strays, values)
    differences = list(strays_in_words(found, values, hidden=config.redact or ()))
    if differences and config.on_schema_drift == "fail":
        raise _refused(config, f"{config.schema_path}: values are outside of the domains of the schema", differences)
    for difference in differences:
        adapted = ": the schema is adapted" if config.on_schema_drift == "adapt" else ""
        log.warning("%s%s: %s", config.schema_path, adapted, difference)
    return widened(schema, found) if config.on_schema_drift == "adapt" else schema


def strays_in_words(found: FeatureValues, values: Mapping[str, int], *, hidden: Sequence[str]) -> Iterator[str]:
    """What is outside of the domains, a line for each feature; without the values of those that are ``hidden``."""
    for name, strays in found.items():
        shown = "" if name in hidden else f": {strays}"
        yield f"feature {name!r} has {strays.count:,} of {values[name]:,} values outside of its domain{shown}"
