"""The rows of a BigQuery table, over the Storage Read API as Arrow.

A table is one partition, or one for each range of ``partition_by``, a column of integers.  A partition is a session of
its own with one stream: the rows that streams of one session get differ from session to session, so a build that is
stopped could not go on with them.

The table's ``etag``, its last change and its number of rows stand for its content, and are asked for again after
reading.  A table with rows in its streaming buffer, whose arrival does not show there, is read for a hash each time.

https://cloud.google.com/bigquery/docs/reference/storage
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import ConfigError, SourceError, missing_extra, shorten
from transforms.fingerprint import digest
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.tables import GREATEST, LEAST, PARTITION_ROWS, RowHash, in_range, key_ranges
from transforms.sources.typed import chosen, no_rows, raw_batches


class BigQuerySource:
    """See ``sources.Source``.  The one path is what people call the table; slices count values of ``partition_by``."""

    def __init__(
        self,
        *,
        table: str,
        where: str | None = None,
        partition_by: str | None = None,
        partition_rows: int = PARTITION_ROWS,
    ) -> None:
        self._table = table
        self._where = where
        self._key = partition_by
        self._partition_rows = partition_rows

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        (path,) = paths
        found, first_row = [], 0
        with _client(path, self._table) as client:
            row_bytes = client.about.num_bytes // max(client.about.num_rows, 1)
            for start, end, rows in self._ranges(client):
                if client.version is None:
                    hashed = self._rows(client, start, end).hashed()
                    content, num_bytes = hashed.digest, hashed.num_bytes
                else:
                    content, num_bytes = digest([client.version, self._restriction(start, end)]), rows * row_bytes
                found.append(Partition((FileSlice(path, start, end, num_bytes, first_row, content),)))
                first_row += rows
        return found

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        (piece,) = partition.slices
        with _client(piece.path, self._table) as client:
            rows = self._rows(client, piece.start, piece.end, None if client.version is None else columns)
            names = chosen(piece.path, rows.schema.names, columns)
            if piece.first_row == 0:
                yield no_rows(piece.path, pa.schema([rows.schema.field(name) for name in names]))
            hashed = RowHash(rows.schema)
            batches = (batch if client.version else hashed.seen(batch) for batch in rows)
            yield from raw_batches(piece.path, (batch.select(names) for batch in batches), first_row=piece.first_row)
        with _client(piece.path, self._table) as client:
            restriction = self._restriction(piece.start, piece.end)
            content = hashed.digest if client.version is None else digest([client.version, restriction])
        if content != piece.fingerprint:
            raise SourceError(f"{piece.path}: the rows changed while they were read; run the build again")

    def _ranges(self, client: _Client) -> Iterator[tuple[int, int, int]]:
        """The ranges of the key, and how many rows each has: the column is read for the bounds, and for the rows."""
        if self._key is None:
            yield LEAST, GREATEST, client.about.num_rows
            return
        low, high, rows = None, None, 0
        for keys in self._keys(client):
            bounds = pc.min_max(keys)
            if bounds["min"].is_valid:
                low = min(bounds["min"].as_py(), bounds["min"].as_py() if low is None else low)
                high = max(bounds["max"].as_py(), bounds["max"].as_py() if high is None else high)
            rows += len(keys)
        ranges = key_ranges(low, high, rows, partition_rows=self._partition_rows)
        counts = np.zeros(len(ranges), np.int64)
        starts = np.array([start for start, _ in ranges], np.int64)
        for keys in self._keys(client):
            places = np.searchsorted(starts, keys.fill_null(LEAST).to_numpy(), side="right") - 1
            counts += np.bincount(places, minlength=len(ranges))
        for (start, end), count in zip(ranges, counts.tolist(), strict=True):
            yield start, end, count

    def _keys(self, client: _Client) -> Iterator[pa.Array]:
        rows = self._rows(client, LEAST, GREATEST, frozenset([str(self._key)]))
        for batch in rows:
            if not pa.types.is_integer(batch.schema.field(0).type):
                raise ConfigError(
                    f"source.partition_by {self._key}: holds {batch.schema.field(0).type}; it must be a column of "
                    "integers, such as an id"
                )
            yield batch.column(0)

    def _rows(self, client: _Client, start: int, end: int, columns: frozenset[str] | None = None) -> _Rows:
        return _Rows(client, self._restriction(start, end), columns)

    def _restriction(self, start: int, end: int) -> str:
        parts = [self._where] if self._where else []
        if self._key is not None and (start, end) != (LEAST, GREATEST):
            parts.append(in_range(f"`{self._key}`", start, end))
        return " AND ".join(f"({part})" for part in parts)


class _Client:
    """A table, and what reads it.  ``version``: what stands for its content; None: nothing does."""

    def __init__(self, table: str) -> None:
        self.project, self.dataset, self.name = table.split(".")
        try:
            from google.cloud import bigquery, bigquery_storage
        except ImportError as error:
            raise missing_extra("google-cloud-bigquery-storage", "bigquery", "BigQuery sources") from error
        self.read_client = bigquery_storage.BigQueryReadClient()  # type: ignore[no-untyped-call]
        self.about: Any = bigquery.Client(project=self.project).get_table(table)
        if self.about.table_type not in ("TABLE", "SNAPSHOT", "CLONE"):
            raise ConfigError(
                f"source.table {table}: is a {self.about.table_type.lower()}, and the Storage Read API reads tables; "
                "save its rows in a table"
            )
        self.version: str | None = None
        if self.about.streaming_buffer is None:
            self.version = f"{self.about.etag} {self.about.modified} {self.about.num_rows}"


class _Rows:
    """The batches of one session with one stream."""

    def __init__(self, client: _Client, restriction: str, columns: frozenset[str] | None) -> None:
        from google.cloud.bigquery_storage import DataFormat, ReadSession

        names = [field.name for field in client.about.schema]
        options = ReadSession.TableReadOptions(row_restriction=restriction)
        if columns is not None:  # none at all would mean all of them
            options.selected_fields = [name for name in names if name in columns] or names[:1]
        table = f"projects/{client.project}/datasets/{client.dataset}/tables/{client.name}"
        self._client = client.read_client
        self._session = self._client.create_read_session(
            parent=f"projects/{client.project}",
            read_session=ReadSession(table=table, data_format=DataFormat.ARROW, read_options=options),
            max_stream_count=1,
        )
        self.schema = pa.ipc.read_schema(pa.py_buffer(self._session.arrow_schema.serialized_schema))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for stream in self._session.streams:
            for response in self._client.read_rows(stream.name):  # type: ignore[no-untyped-call]
                content = pa.py_buffer(response.arrow_record_batch.serialized_record_batch)
                yield pa.ipc.read_record_batch(content, self.schema)

    def hashed(self) -> RowHash:
        hashed = RowHash(self.schema)
        for batch in self:
            hashed.seen(batch)
        return hashed


@contextlib.contextmanager
def _client(path: str, table: str) -> Iterator[_Client]:
    """SourceError, which names the table, for what BigQuery refuses."""
    try:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError
    except ImportError as error:
        raise missing_extra("google-cloud-bigquery-storage", "bigquery", "BigQuery sources") from error
    try:
        yield _Client(table)
    except GoogleAuthError as error:
        raise SourceError(
            f"{path}: no access to Google Cloud: {shorten(str(error), 200)}; name a key in "
            "GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login"
        ) from error
    except GoogleAPIError as error:
        raise SourceError(f"{path}: BigQuery says: {shorten(str(error), 300)}") from error
