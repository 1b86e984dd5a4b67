"""Rows of SQLite and of a real PostgreSQL server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.forecast import forecast
from pipeline.inspect import inspect
from transforms.errors import ConfigError, SourceError
from transforms.partition import Partition
from transforms.sources import open_source

ROWS = 1000


def create(folder: Path) -> sqlite3.Connection:
    database = sqlite3.connect(folder / "data.db")
    database.execute('CREATE TABLE "Users" (id INTEGER, name TEXT, score REAL)')
    rows = [(i, None if i % 10 == 0 else f"user {i}", i / 2) for i in range(ROWS)]
    database.executemany('INSERT INTO "Users" VALUES (?, ?, ?)', rows)
    database.commit()
    return database


def write_config(folder: Path, **source: Any) -> str:
    config = {"name": "t", "source": {"format": "sql", **source}, "output": {"dir": "out"}, "runner": {"workers": 1}}
    path = folder / "c.yaml"
    path.write_text(json.dumps(config))
    return str(path)


def run(folder: Path, **source: Any) -> BuildResult:
    return build(load(write_config(folder, **source)))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = create(tmp_path)
    yield connection
    connection.close()


SQLITE = {"connection": "sqlite:data.db"}
BY_ID = SQLITE | {"table": "Users", "partition_by": "id", "partition_rows": 100}


def test_a_table(database: sqlite3.Connection, tmp_path: Path) -> None:
    result = run(tmp_path, **SQLITE, table="Users")
    assert (result.rows_read, result.built_partitions) == (ROWS, 1)
    rows = inspect(str(tmp_path / "out"), rows=ROWS).rows["all"]
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    assert {row["name"] for row in rows if row["id"] == 7} == {b"user 7"}
    assert sum("name" not in row for row in rows) == ROWS // 10
    assert run(tmp_path, **SQLITE, table="Users").up_to_date


def test_a_query_in_ranges_of_a_key(database: sqlite3.Connection, tmp_path: Path) -> None:
    database.execute('INSERT INTO "Users" VALUES (NULL, "no id", 1)')
    database.commit()
    first = run(tmp_path, **BY_ID)
    assert first.rows_read == ROWS + 1 and first.built_partitions == 8  # 128 ids each
    database.execute("INSERT INTO \"Users\" VALUES (1000, 'new', 1)")
    database.execute('UPDATE "Users" SET score = 0.125 WHERE id = 300')
    database.commit()
    second = run(tmp_path, **BY_ID)
    assert (second.rows_read, second.built_partitions, second.reused_partitions) == (ROWS + 2, 2, 6)
    rows = inspect(str(tmp_path / "out"), rows=ROWS + 2).rows["all"]
    assert [row["score"] for row in rows if row.get("id") == 300] == [0.125]
    assert sum("id" not in row for row in rows) == 1


def test_a_version_spares_the_look_at_all_rows(database: sqlite3.Connection, tmp_path: Path) -> None:
    options = BY_ID | {"version_query": 'SELECT max(score) FROM "Users"'}
    run(tmp_path, **options)
    database.execute("UPDATE \"Users\" SET name = 'unseen' WHERE id = 1")
    database.commit()
    assert run(tmp_path, **options).up_to_date  # as the version says
    database.execute('UPDATE "Users" SET score = 1e6 WHERE id = 2')
    database.commit()
    assert run(tmp_path, **options).built_partitions == 8


def test_rows_that_change_while_they_are_read(database: sqlite3.Connection, tmp_path: Path) -> None:
    source = open_source("sql", {"connection": f"sqlite:{tmp_path / 'data.db'}", "table": "Users"})
    partitions = source.partitions(["users"], target_bytes=1)
    database.execute('UPDATE "Users" SET score = -1 WHERE id = 2')
    database.commit()
    with pytest.raises(SourceError, match="users: the rows changed while they were read"):
        list(source.read(partitions[0], on_bad_row=pytest.fail))


def test_plan_touches_nothing(database: sqlite3.Connection, tmp_path: Path) -> None:
    found = forecast(load(write_config(tmp_path, **BY_ID)))
    assert found.partitions == 8 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"connection": "sqlite:data.db"}, "source.query: and table: one of them"),
        ({"table": "a"}, "source.connection: is missing"),
        ({"connection": "mysql://u@h/d", "table": "a"}, "must be like postgresql://user@host/database"),
        ({**SQLITE, "table": "a", "files": "c.yaml"}, "is for formats of files"),
        ({**SQLITE, "table": "a", "partition_rows": 5}, "needs partition_by"),
        ({**SQLITE, "table": "a", "delimiter": ";"}, "is for csv, and source.format is sql"),
    ],
)
def test_configs_that_make_no_sense(tmp_path: Path, source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write_config(tmp_path, **source))


def test_a_password_is_refused_and_not_shown(tmp_path: Path) -> None:
    for connection in ("postgresql://me:s3cret@host/db", "postgresql://host/db?password=s3cret"):
        with pytest.raises(ConfigError, match="leave it out, and set PGPASSWORD") as found:
            load(write_config(tmp_path, connection=connection, table="a"))
        assert "s3cret" not in str(found.value)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ({"table": "nothing"}, SourceError, "sqlite:data.db nothing: the database says: .*no such table"),
        ({"query": "SELEC 1"}, SourceError, "sqlite:data.db query: the database says: .*syntax error"),
        ({"table": "Users", "partition_by": "name"}, ConfigError, "partition_by .*must be a column of integers"),
        ({"table": "Users", "version_query": 'SELECT id FROM "Users"'}, ConfigError, "gives 1000 rows; it must give"),
    ],
)
def test_what_the_database_refuses(
    database: sqlite3.Connection, tmp_path: Path, source: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(tmp_path, **SQLITE, **source)


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="sqlite:data.db a: the database says"):
        run(tmp_path, **SQLITE, table="a")
    assert not (tmp_path / "data.db").exists()


# ---- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server of Debian's ``postgresql`` on a free port, with a password; skipped where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder = tmp_path_factory.mktemp("postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "password").write_text("s3cret")
    as_user: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to run as root
        for parent in (folder, *folder.parents):
            if parent.stat().st_uid == 0 and parent != Path("/") and parent != Path("/tmp"):
                parent.chmod(0o755)
        shutil.chown(folder, "postgres")
        as_user = {"user": "postgres", "cwd": folder}
    bin_folder, data = found[-1].parent, folder / "data"
    options = {"check": True, "capture_output": True, "timeout": 60, **as_user}
    command = [bin_folder / "initdb", "-D", data, "-U", "me", "-A", "scram-sha-256", "--pwfile", folder / "password"]
    subprocess.run([*map(str, command), "--no-sync"], **options)
    start = [str(bin_folder / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
    subprocess.run([*start, "-o", f"-p {port} -k {folder} -h 127.0.0.1", "start"], **options)
    yield {"connection": f"postgresql://me@127.0.0.1:{port}/postgres", "password": "s3cret"}
    subprocess.run([str(bin_folder / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop"], **options)


def execute(server: dict[str, str], *statements: str) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(server["connection"]) as connection:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.commit()


@pytest.mark.slow
def test_postgresql(server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", server["password"])
    execute(
        server,
        "DROP TABLE IF EXISTS trips",
        "CREATE TABLE trips "
        "(id bigint, day date, at timestamptz, price numeric(10, 2), tags text[], name text, ok bool)",
        "INSERT INTO trips SELECT i, date '2024-01-01' + i, timestamptz '2024-10-27 01:30:00.123456Z', 1234567.89, "
        f"ARRAY['a', 'b' || i], CASE WHEN i % 2 = 0 THEN 'n' || i END, i % 3 = 0 FROM generate_series(0, {ROWS - 1}) i",
        "INSERT INTO trips (id) VALUES (9007199254740993)",
    )
    source = {"connection": server["connection"], "query": "SELECT * FROM trips WHERE id < 10000", "partition_by": "id"}
    first = run(tmp_path, **source, partition_rows=100)
    assert (first.rows_read, first.bad_rows, first.built_partitions) == (ROWS, 0, 8)
    rows = inspect(str(tmp_path / "out"), rows=ROWS).rows["all"]
    row = next(row for row in rows if row["id"] == 10)
    assert row["price"] == b"1234567.89" and row["tags"] == [b"a", b"b10"] and row["name"] == b"n10"
    assert (row["day"], row["at"], row["ok"]) == (19733, 1729992600123456, 0)
    execute(server, "UPDATE trips SET name = 'other' WHERE id = 500")
    second = run(tmp_path, **source, partition_rows=100)
    assert (second.built_partitions, second.reused_partitions) == (1, 7)
    manifest = (Path(second.path) / "manifest.json").read_text()
    assert server["connection"] in manifest and "s3cret" not in manifest
    whole = run(tmp_path, connection=server["connection"], table="public.trips")
    assert whole.rows_read == ROWS + 1
    assert 9007199254740993 in {row["id"] for row in inspect(str(tmp_path / "out"), rows=ROWS + 1).rows["all"]}


@pytest.mark.slow
def test_postgresql_says_no(server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(SourceError, match="the database says: .*password authentication failed"):
        run(tmp_path, connection=server["connection"], table="trips")
    monkeypatch.setenv("PGPASSWORD", server["password"])
    with pytest.raises(SourceError, match='relation "nothing" does not exist'):
        run(tmp_path, connection=server["connection"], table="nothing")


def test_ranges_do_not_move_when_rows_are_added(database: sqlite3.Connection, tmp_path: Path) -> None:
    options = {"connection": f"sqlite:{tmp_path / 'data.db'}", "table": "Users", "partition_by": "id"}
    source = open_source("sql", options | {"partition_rows": 100})

    def ranges(partitions: list[Partition]) -> list[tuple[int, int]]:
        return [(piece.start, piece.end) for partition in partitions for piece in partition.slices]

    before = ranges(source.partitions(["users"], target_bytes=1))
    database.executemany('INSERT INTO "Users" VALUES (?, ?, ?)', [(i, "x", 0.0) for i in range(ROWS, ROWS + 200)])
    database.commit()
    after = ranges(source.partitions(["users"], target_bytes=1))
    assert after[: len(before) - 1] == before[:-1] and len(after) == len(before) + 2
