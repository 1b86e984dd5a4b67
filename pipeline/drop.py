"""``drop_rows``: the keys of a wipe-out request, and the partitions that hold them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyarrow import csv

from pipeline.config import Config
from pipeline.plan import Cache, remove_damaged
from pipeline.stages import Task, Workers, run_stage
from transforms.drop import drop_keys, key_hashes, read_index, write_keys
from transforms.errors import ConfigError, CorruptError, shorten
from transforms.fingerprint import digest, library_version
from transforms.partition import Partition
from transforms.passes import index_partition

INDEX_FORMAT = 1  # raised when the same rows give another index

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class DropList:
    """``keys``: distinct rows of text columns; ``digest``: of all of them, in any order."""

    path: str
    keys: pa.RecordBatch
    digest: str

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.keys.schema.names)


def read_drop_list(path: str) -> DropList:
    """A CSV whose header names key columns, with a key a line.  Raises ConfigError, which names file and row, when it
    makes no sense."""
    try:
        header = csv.open_csv(path, convert_options=csv.ConvertOptions(check_utf8=True)).schema.names
        table = csv.read_csv(
            path,
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in header}, strings_can_be_null=True, null_values=[""]
            ),
        )
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"drop_rows: {path}: cannot be read as CSV ({error}); its first line names the key columns, and each of "
            "the others is a key"
        ) from error
    _check(path, table)
    keys = table.group_by(header, use_threads=False).aggregate([]).select(header).combine_chunks()
    batch = pa.RecordBatch.from_arrays([_array(keys.column(name)) for name in header], names=header)
    texts = sorted(map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True)))
    return DropList(path, batch, digest([list(header), texts]))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], pa.string())


def _check(path: str, table: pa.Table) -> None:
    names = table.schema.names
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise ConfigError(f"drop_rows: {path}: the header names {twice!r} twice; leave one of them out")
    for name, column in zip(names, table.columns, strict=True):
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            raise ConfigError(
                f"drop_rows: {path}, row {row + 1}: the column {name!r} is empty, which would drop all rows without a "
                "value; give the key, or leave the row out"
            )


def index_tasks(config: Config, partitions: Sequence[Partition], columns: Sequence[str], cache: Cache) -> list[Task]:
    """What makes the index of each partition's keys."""
    form = [INDEX_FORMAT, config.source.format, config.source.options, list(columns), library_version("pyarrow")]
    return [
        Task(p, cache.path("keys", digest([p.fingerprint, *form]), ".arrow"), p.name, p.num_bytes) for p in partitions
    ]


def mark(
    config: Config,
    partitions: Sequence[Partition],
    drop_list: DropList,
    *,
    cache: Cache,
    workers: Workers,
    work_dir: str,
) -> list[Partition]:
    """The partitions, those that hold rows to drop with the keys of these rows.

    Raises ConfigError when no partition has a key column; warns of keys that no row has.
    """
    tasks = index_tasks(config, partitions, drop_list.columns, cache)
    remove_damaged((task.output for task in tasks), read_index)
    function = functools.partial(
        index_partition,
        source=config.source_spec,
        columns=drop_list.columns,
    )
    run_stage("IndexKeys", function, tasks, workers=workers, work_dir=work_dir)
    found = [_keys_there(task.output, drop_list) for task in tasks]
    _check_columns(drop_list, [task.output for task in tasks])
    _warn_of_lost(drop_list, found)
    marked = []
    for partition, there in zip(partitions, found, strict=True):
        if there.any():
            keys = drop_list.keys.filter(pa.array(there))
            drop = drop_keys(keys, lambda name: cache.path("drop", name, ".arrow"))
            write_keys(keys, drop.path)
            partition = replace(partition, drop=drop)
        marked.append(partition)
    return marked


def mark_known(
    config: Config, partitions: Sequence[Partition], drop_list: DropList, *, cache: Cache
) -> tuple[list[Partition], list[Partition]]:
    """What ``mark`` would give where the index is there, with nothing written; and the partitions without an index."""
    marked, missing = [], []
    for partition, task in zip(partitions, index_tasks(config, partitions, drop_list.columns, cache), strict=True):
        try:
            there = _keys_there(task.output, drop_list)
        except CorruptError:  # not there, or damaged
            missing.append(partition)
        else:
            if there.any():
                keys = drop_list.keys.filter(pa.array(there))
                partition = replace(partition, drop=drop_keys(keys, lambda name: ""))
        marked.append(partition)
    return marked, missing


def _keys_there(index: str, drop_list: DropList) -> np.ndarray:
    """Which keys a partition has (bool), by its index."""
    return np.isin(key_hashes(drop_list.keys), read_index(index)[0])


def _check_columns(drop_list: DropList, indexes: Sequence[str]) -> None:
    missing = frozenset(drop_list.columns)
    for index in indexes:
        missing &= read_index(index)[1]
    if missing and indexes:
        raise ConfigError(
            f"drop_rows: {drop_list.path}: names the column {sorted(missing)[0]!r}, which no row of the source has; "
            "its first line must name key columns"
        )


def _warn_of_lost(drop_list: DropList, found: Sequence[np.ndarray]) -> None:
    lost = ~np.logical_or.reduce([*found, np.zeros(drop_list.keys.num_rows, bool)])
    if lost.any():
        example = drop_list.keys.filter(pa.array(lost)).slice(0, 1).to_pylist()[0]
        log.warning(
            "drop_rows: %d of %d keys are in no row, for example %s",
            lost.sum(),
            len(lost),
            shorten(",".join(map(str, example.values()))),
        )
