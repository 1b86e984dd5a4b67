"""The rows of a query, over ADBC as Arrow: PostgreSQL and SQLite.

A query is one partition, or one for each range of ``partition_by``, a column of integers.  There are no files to hash,
so ``version_query`` says whether the rows are what they were: its one value stands for the content, and is asked for
again after reading.  Without it all rows are read for a hash of what they are, each time.

Passwords are not part of a connection: PostgreSQL's own library takes them from ``PGPASSWORD``, ``PGPASSFILE`` or
``~/.pgpass``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from transforms.errors import ConfigError, SourceError, missing_extra, shorten
from transforms.fingerprint import digest
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.tables import GREATEST, LEAST, PARTITION_ROWS, RowHash, in_range, key_ranges
from transforms.sources.typed import chosen, no_rows, raw_batches

ROW_BYTES = 100  # of a row that has not been read yet


class SqlSource:
    """See ``sources.Source``.  The one path is what people call the query; slices count values of ``partition_by``."""

    def __init__(
        self,
        *,
        connection: str,
        query: str | None = None,
        table: str | None = None,
        partition_by: str | None = None,
        partition_rows: int = PARTITION_ROWS,
        version_query: str | None = None,
    ) -> None:
        self._connection = connection
        self._query = query if query is not None else f"SELECT * FROM {_quoted(table or '')}"
        self._key = _quoted(partition_by) if partition_by else None
        self._partition_rows = partition_rows
        self._version_query = version_query

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        (path,) = paths
        with self._cursor(path) as cursor:
            version = self._version(cursor)
            found, first_row = [], 0
            for start, end, rows in self._ranges(cursor):
                if version is None:
                    content, num_bytes = _content(self._read(cursor, start, end))
                else:
                    content, num_bytes = digest([version, self._select(start, end)]), rows * ROW_BYTES
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
        with self._cursor(piece.path) as cursor:
            reader = self._read(cursor, piece.start, piece.end)
            names = chosen(piece.path, reader.schema.names, columns)
            if piece.first_row == 0:
                yield no_rows(piece.path, pa.schema([reader.schema.field(name) for name in names]))
            hashed = RowHash(reader.schema)
            batches = (hashed.seen(batch).select(names) for batch in reader)
            yield from raw_batches(piece.path, batches, first_row=piece.first_row)
            version = self._version(cursor)
        content = hashed.digest if version is None else digest([version, self._select(piece.start, piece.end)])
        if content != piece.fingerprint:
            raise SourceError(f"{piece.path}: the rows changed while they were read; run the build again")

    @contextlib.contextmanager
    def _cursor(self, path: str) -> Iterator[Any]:
        driver, uri = _driver(self._connection)
        try:
            with driver.connect(uri) as connection, connection.cursor() as cursor:
                yield cursor
        except driver.Error as error:
            message = re.sub(r"\s+", " ", str(error)).strip()
            raise SourceError(f"{path}: the database says: {shorten(message, 300)}") from error

    def _version(self, cursor: Any) -> str | None:
        if self._version_query is None:
            return None
        cursor.execute(self._version_query)
        rows = cursor.fetchall()
        if len(rows) != 1 or len(rows[0]) != 1:
            raise ConfigError(
                f"source.version_query {shorten(self._version_query)}: gives {len(rows)} rows; it must give one value, "
                "such as SELECT max(updated_at) FROM …"
            )
        return str(rows[0][0])

    def _ranges(self, cursor: Any) -> Iterator[tuple[int, int, int]]:
        """The ranges of the key, and how many rows each has; see ``_select``."""
        if self._key is None:
            yield LEAST, GREATEST, _one_row(cursor, f"SELECT count(*) FROM ({self._query}) AS q")[0]
            return
        low, high, rows = _one_row(
            cursor, f"SELECT min({self._key}), max({self._key}), count(*) FROM ({self._query}) AS q"
        )
        if low is not None and not (isinstance(low, int) and isinstance(high, int)):
            raise ConfigError(
                f"source.partition_by {self._key}: holds {shorten(low)}; it must be a column of integers, such as an id"
            )
        for start, end in key_ranges(low, high, rows, partition_rows=self._partition_rows):
            yield start, end, _one_row(cursor, f"SELECT count(*) FROM ({self._select(start, end)}) AS q")[0]

    def _select(self, start: int, end: int) -> str:
        """The query for the rows with keys from ``start`` to before ``end``; the first for those without a key too.

        In the order of the key, so that the same rows come in the same order.
        """
        if self._key is None:
            return self._query
        return f"SELECT * FROM ({self._query}) AS part WHERE {in_range(self._key, start, end)}"

    def _read(self, cursor: Any, start: int, end: int) -> Any:
        order = f" ORDER BY {self._key}" if self._key else ""
        cursor.execute(self._select(start, end) + order)
        return cursor.fetch_record_batch()


def _one_row(cursor: Any, query: str) -> tuple[Any, ...]:
    cursor.execute(query)
    return tuple(cursor.fetchone())


def _quoted(name: str) -> str:
    """``schema.table`` as SQL quotes it, so that case and spaces stay."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _driver(connection: str) -> tuple[Any, str]:
    """The driver's module and what it connects to.  Raises ConfigError for a connection that it does not know."""
    kind, _, rest = connection.partition(":")
    if kind in ("postgresql", "postgres"):
        try:
            from adbc_driver_postgresql import dbapi
        except ImportError as error:
            raise missing_extra("adbc-driver-postgresql", "postgresql", "PostgreSQL sources") from error
        return dbapi, connection
    try:
        from adbc_driver_sqlite import dbapi as sqlite
    except ImportError as error:
        raise missing_extra("adbc-driver-sqlite", "sqlite", "SQLite sources") from error
    return sqlite, f"file:{quote(rest)}?mode=ro"


def _content(reader: Any) -> tuple[str, int]:
    """The hash of the rows, and how many bytes they have in memory."""
    hashed = RowHash(reader.schema)
    for batch in reader:
        hashed.seen(batch)
    return hashed.digest, hashed.num_bytes
