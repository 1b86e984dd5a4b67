"""BigQuery through Google's own clients, against servers on this machine; Google's were never asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from bigquery_server import BigQueryServer

from transforms.errors import ConfigError, SourceError
from transforms.partition import Partition
from transforms.sources import open_source

google = pytest.importorskip("google.cloud.bigquery_storage")

ROWS = 1000
NAME = "project.dataset.table"


def table(rows: int = ROWS) -> pa.Table:
    keys = [None if i % 100 == 7 else 3 * i for i in range(rows)]
    return pa.table({"id": pa.array(keys, pa.int64()), "name": [f"row {i}" for i in range(rows)]})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BigQueryServer]:
    import google.auth
    import grpc
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery_storage
    from google.cloud.bigquery_storage_v1.services.big_query_read.transports import BigQueryReadGrpcTransport

    found = BigQueryServer(table())
    client = bigquery_storage.BigQueryReadClient
    channel = grpc.insecure_channel(found.grpc)
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", found.http)
    monkeypatch.setattr(google.auth, "default", lambda *_, **__: (AnonymousCredentials(), "project"))
    monkeypatch.setattr(
        bigquery_storage, "BigQueryReadClient", lambda: client(transport=BigQueryReadGrpcTransport(channel=channel))
    )
    yield found
    channel.close()
    found.close()


def read(partitions: list[Partition], columns: frozenset[str] | None = None, **options: Any) -> list[dict[str, Any]]:
    source = open_source("bigquery", options)
    rows, ordinals = [], []
    for partition in partitions:
        for batch in source.read(partition, columns=columns, on_bad_row=lambda row: pytest.fail(str(row))):
            rows += batch.data.to_pylist()
            ordinals += batch.rows.tolist()
    assert ordinals == list(range(len(ordinals)))
    return rows


def partitions(**options: Any) -> list[Partition]:
    return open_source("bigquery", options).partitions([f"bigquery:{NAME}"], target_bytes=1 << 20)


def fingerprints(**options: Any) -> list[str]:
    return [piece.fingerprint for partition in partitions(**options) for piece in partition.slices]


def test_reads_every_row_of_a_table(server: BigQueryServer) -> None:
    assert read(partitions(table=NAME), table=NAME) == table().to_pylist()


def test_ranges_of_a_key_are_partitions_and_hold_each_row_once(server: BigQueryServer) -> None:
    options: dict[str, Any] = {"table": NAME, "partition_by": "id", "partition_rows": 300}
    parts = partitions(**options)
    assert len(parts) > 2
    rows = read(parts, **options)
    assert len(rows) == ROWS
    assert {row["name"] for row in rows} == {f"row {i}" for i in range(ROWS)}


def test_only_the_columns_and_rows_that_are_wanted_are_asked_for(server: BigQueryServer) -> None:
    options = {"table": NAME, "where": "id < 30 OR name = 'row 50'"}
    rows = read(partitions(**options), frozenset(["name"]), **options)
    assert [row["name"] for row in rows] == [*(f"row {i}" for i in range(10) if i != 7), "row 50"]
    last = server.sessions[-1].read_options
    assert list(last.selected_fields) == ["name"]
    assert last.row_restriction == "(id < 30 OR name = 'row 50')"


def test_no_rows(server: BigQueryServer) -> None:
    options = {"table": NAME, "where": "id < 0", "partition_by": "id"}
    assert read(partitions(**options), **options) == []


def test_a_table_that_changes_is_new_and_one_that_does_not_is_not_read(server: BigQueryServer) -> None:
    before = fingerprints(table=NAME)
    assert fingerprints(table=NAME) == before
    assert not server.sessions
    server.etag = "2"
    assert fingerprints(table=NAME) != before


def test_rows_that_change_while_they_are_read_are_an_error(server: BigQueryServer) -> None:
    parts = partitions(table=NAME)
    server.etag = "2"
    with pytest.raises(SourceError, match=r"bigquery:project\.dataset\.table: the rows changed while they were read"):
        read(parts, table=NAME)


def test_rows_that_are_streaming_in_are_hashed(server: BigQueryServer) -> None:
    server.streaming = True
    before = fingerprints(table=NAME)
    assert read(partitions(table=NAME), frozenset(["id"]), table=NAME) == table().select(["id"]).to_pylist()
    server.table = pa.concat_tables([table(), table(1)])
    assert fingerprints(table=NAME) != before


def test_what_is_refused(server: BigQueryServer) -> None:
    with pytest.raises(SourceError, match="BigQuery says: .*404.*Not found"):
        partitions(table="project.dataset.other")
    with pytest.raises(SourceError, match="BigQuery says: .*row restriction"):
        read(partitions(table=NAME, where="nothing ="), table=NAME, where="nothing =")
    with pytest.raises(ConfigError, match="source.partition_by name: holds string; it must be a column of integers"):
        partitions(table=NAME, partition_by="name")
    server.kind = "VIEW"
    with pytest.raises(ConfigError, match="is a view, and the Storage Read API reads tables"):
        partitions(table=NAME)


def test_no_credentials_tell_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(SourceError, match="no access to Google Cloud: .*gcloud auth application-default login"):
        partitions(table=NAME)
