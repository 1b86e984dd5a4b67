"""Parquet: exact types, row groups as slices, and files that change."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from transforms.errors import SourceError
from transforms.infer import profile, to_schema
from transforms.partition import Partition, RawBatch
from transforms.prepare import Preparer
from transforms.sources import open_source
from transforms.sources.parquet import ParquetSource


def write(path: Path, rows: int = 1000, *, row_group: int = 100, **columns: Any) -> Path:
    table = pa.table(columns or {"id": pa.array(range(rows), pa.int64()), "t": [f"text {i}" for i in range(rows)]})
    parquet.write_table(table, path, row_group_size=row_group)
    return path


def partitions(*paths: Path, target: int = 1 << 20) -> list[Partition]:
    return ParquetSource().partitions([str(path) for path in paths], target_bytes=target)


def read(found: list[Partition], columns: frozenset[str] | None = None) -> list[RawBatch]:
    return [batch for part in found for batch in ParquetSource().read(part, columns=columns, on_bad_row=pytest.fail)]


@pytest.mark.parametrize("target", [1, 3000, 1 << 20])
def test_row_groups_are_never_cut(tmp_path: Path, target: int) -> None:
    found = partitions(write(tmp_path / "a.parquet"), write(tmp_path / "b.parquet", 50), target=target)
    assert len(found) == {1: 11, 3000: len(found), 1 << 20: 1}[target]
    batches = read(found)
    ids = [row["id"] for batch in batches for row in batch.data.to_pylist()]
    assert ids == [*range(1000), *range(50)]
    assert [int(row) for batch in batches for row in batch.rows] == ids
    assert all(batch.typed for batch in batches)


def test_columns_are_chosen_by_their_whole_name(tmp_path: Path) -> None:
    columns = {"a": pa.array([{"b": 1, "c": 2}]), "a.b": pa.array([3]), "d": pa.array([4])}
    found = partitions(write(tmp_path / "a.parquet", **columns))
    assert [batch.data.to_pylist() for batch in read(found, frozenset({"a.b"}))][-1] == [{"a.b": 3}]
    assert [batch.data.to_pylist() for batch in read(found, frozenset({"a", "gone"}))][-1] == [{"a": {"b": 1, "c": 2}}]
    assert sum(batch.data.num_rows for batch in read(found, frozenset({"gone"}))) == 1
    assert sum(batch.data.num_rows for batch in read(found, frozenset())) == 1


def test_integers_and_times_are_exact(tmp_path: Path) -> None:
    values = [2**53 + 1, None, 4873214862074861313, -(2**63), 2**63 - 1, 16777217]
    times = [datetime.datetime(2024, 10, 27, hour, 30, tzinfo=datetime.timezone.utc) for hour in range(6)]
    columns = {"row": range(6), "id": values, "when": pa.array(times, pa.timestamp("us", "Europe/Berlin"))}
    batches = read(partitions(write(tmp_path / "ids.parquet", **columns)))
    schema = to_schema(profile(batches))
    assert [(f.name, f.kind, f.required, f.time_unit) for f in schema.features] == [
        ("row", "int", True, None),
        ("id", "int", False, None),
        ("when", "int", True, "us"),
    ]
    rows = [row for batch in batches for row in Preparer(schema).prepare(batch, on_bad_row=pytest.fail)[0].to_pylist()]
    assert [row["id"] for row in rows] == values
    assert [row["when"] for row in rows] == [int(time.timestamp()) * 10**6 for time in times]


def test_types_that_differ_between_files(tmp_path: Path) -> None:
    one = write(tmp_path / "1.parquet", c=pa.array([1, 2]))
    two = write(tmp_path / "2.parquet", c=pa.array([0.5]))
    batches = read(partitions(one, two))
    schema = to_schema(profile(batches))
    found = [Preparer(schema).prepare(batch, on_bad_row=pytest.fail)[0].column(0).to_pylist() for batch in batches]
    assert schema.features[0].kind == "float" and [value for part in found for value in part] == [1.0, 2.0, 0.5]


def test_batches_are_small(tmp_path: Path) -> None:
    wide = pa.array([b"x" * 100_000] * 300)
    found = partitions(write(tmp_path / "wide.parquet", row_group=1000, w=wide), target=1 << 30)
    assert max(batch.data.nbytes for batch in read(found)) < 10 << 20
    found = partitions(write(tmp_path / "long.parquet", 50_000, row_group=50_000), target=1 << 30)
    assert max(batch.data.num_rows for batch in read(found)) == 16_384


def test_no_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (batch,) = read(partitions(write(tmp_path / "a.parquet", 0)))
    assert batch.data.num_rows == 0 and batch.data.schema.names == ["id", "t"] and batch.rows.dtype == np.int64
    (tmp_path / "empty.parquet").touch()
    with caplog.at_level(logging.WARNING, "recordmill"):
        assert partitions(tmp_path / "empty.parquet") == []
    assert "empty.parquet: the file is empty" in caplog.text


def test_a_fingerprint_is_of_row_groups_and_schema(tmp_path: Path) -> None:
    one = write(tmp_path / "1.parquet", 200)
    more = write(tmp_path / "2.parquet", 300)
    prints = [[part.fingerprint for part in partitions(path, target=1)] for path in (one, more)]
    assert prints[0] == prints[1][:2] and len(set(prints[1])) == 3
    renamed = write(tmp_path / "3.parquet", other=pa.array(range(200)), t=pa.array([f"text {i}" for i in range(200)]))
    assert not {part.fingerprint for part in partitions(renamed, target=1)} & set(prints[0])


def test_a_file_that_changes_after_it_was_cut_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 100)
    found = partitions(path)
    write(path, id=pa.array(range(1, 101)), t=pa.array([f"text {i}" for i in range(100)]))
    with pytest.raises(SourceError, match="a.parquet: the file changed while it was read"):
        read(found)
    found = partitions(write(path, 1000), target=1)
    write(path, 10)
    with pytest.raises(SourceError, match="a.parquet: the file changed while it was read"):
        read(found[-1:])


def test_what_is_no_parquet_file(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet").read_bytes()
    for content in (b"<html>", whole[:-20]):
        (tmp_path / "bad.parquet").write_bytes(content)
        with pytest.raises(SourceError, match="bad.parquet: cannot be read as Parquet"):
            partitions(tmp_path / "bad.parquet")
    damaged = bytearray(whole)
    damaged[10:400] = bytes(390)
    (tmp_path / "bad.parquet").write_bytes(damaged)
    with pytest.raises(SourceError, match="bad.parquet"):
        read(partitions(tmp_path / "bad.parquet"))
    with pytest.raises(SourceError, match="gone.parquet: cannot be read"):
        partitions(tmp_path / "gone.parquet")


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    parquet.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(SourceError, match="twice.parquet: has the column 'a' twice"):
        read(partitions(tmp_path / "twice.parquet"))


def test_open_source_knows_the_formats() -> None:
    assert isinstance(open_source("parquet", {}), ParquetSource)
