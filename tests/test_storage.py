"""Object stores on this machine (moto for S3, an emulator for GCS, fsspec's local files): sources and mirrors."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, orc, parquet

from pipeline import mirror, plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.gc import gc
from pipeline.layout import Layout
from pipeline.versions import rollback
from transforms import storage
from transforms.errors import ConfigError, OutputError, SourceError

STORES = ["s3://recordmill-test", "gs://anonymous@recordmill-test", "local://"]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    import boto3
    from moto.server import ThreadedMotoServer

    s3, port = ThreadedMotoServer("127.0.0.1", port=0, verbose=False), _free_port()
    s3.start()
    gcs = subprocess.Popen(  # not in this process, whose lock the client holds now and then while it waits
        [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
        + ["--default-bucket=recordmill-test"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.get_host_and_port()[1]}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "CLOUD_STORAGE_EMULATOR_ENDPOINT": f"http://127.0.0.1:{port}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="recordmill-test")
        _wait_for(port)
        yield environment
        storage._arrow_store.cache_clear()
    gcs.terminate()
    gcs.wait()
    s3.stop()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, servers: dict[str, str], tmp_path: Path) -> str:
    """An address below which nothing is."""
    folder = tmp_path / "store" if request.param == "local://" else Path(tmp_path.name)
    return f"{request.param.rstrip('/')}/{folder}" if not folder.is_absolute() else f"{request.param}{folder}"


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 3500)


def run(folder: Path, files: str, **config: Any) -> BuildResult:
    folder.mkdir(exist_ok=True)
    source = {"format": "csv", "files": files} | config.pop("source", {})
    content = {"name": "d", "source": source, "output": {"dir": "out", **config.pop("output", {})}} | config
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=2"]))


def records(result: BuildResult) -> bytes:
    """Of all shards: where these end depends on the names of the files."""
    return b"".join(gzip.decompress(path.read_bytes()) for path in sorted(Path(result.path).glob("*/*.tfrecord.gz")))


def rows(first: int, count: int = 400) -> pa.Table:
    numbers = np.arange(first, first + count)
    return pa.table({"id": numbers, "text": [f"value {i}" for i in numbers], "x": numbers / 8})


WRITERS = {
    "csv": csv.write_csv,
    "parquet": lambda table, path: parquet.write_table(table, path, row_group_size=100),
    "arrow": feather.write_feather,
    "orc": orc.write_table,
    "jsonl": lambda table, path: Path(path).write_text("".join(json.dumps(r) + "\n" for r in table.to_pylist())),
    "text": lambda table, path: Path(path).write_text("\n".join(table["text"].to_pylist())),
}


@pytest.mark.parametrize("format", WRITERS)
def test_a_store_gives_what_the_disk_gives(format: str, store: str, tmp_path: Path) -> None:
    for i in range(3):
        path = tmp_path / "data" / f"{i}.part"
        path.parent.mkdir(exist_ok=True)
        WRITERS[format](rows(400 * i), str(path))
        storage.upload(str(path), f"{store}/data/{i}.part")
    source = {"format": format}
    expected = run(tmp_path / "disk", str(tmp_path / "data/*.part"), source=source, output={"shuffle": "none"})
    found = run(tmp_path / "store", f"{store}/data/*.part", source=source, output={"shuffle": "none"})
    assert found.rows_read == expected.rows_read == 1200
    assert records(found) == records(expected)


def put(path: str, first: int) -> None:
    table = rows(first)
    lines = [f"{a},{b},{c}" for a, b, c in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    storage.write_bytes(path, "\n".join(["id,text,x", *lines, ""]).encode())


def test_a_refresh_builds_the_files_that_changed(store: str, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        put(f"{store}/day=2026-01-0{day}/part-0.csv", 400 * day)
    files = f"{store}/day={{DATE}}/*.csv"
    assert run(tmp_path, files).built_partitions == 9
    assert run(tmp_path, files).up_to_date
    put(f"{store}/day=2026-01-02/part-0.csv", 5000)
    put(f"{store}/day=2026-01-04/part-0.csv", 9000)
    result = run(tmp_path, files)
    assert result.built_partitions == 6 and result.rows_read == 1600
    assert any("2026-01-04" in reason for reason in result.reasons)


def test_what_is_wrong_with_an_address_is_said(store: str, tmp_path: Path) -> None:
    put(f"{store}/a/1.csv", 0)
    with pytest.raises(ConfigError, match="matches no file; .*/a holds .*1.csv"):
        run(tmp_path, f"{store}/a/*.tsv")
    with pytest.raises(ConfigError, match="there is no such file"):
        run(tmp_path, f"{store}/a/2.csv")
    with pytest.raises(ConfigError, match="holds a password"):
        run(tmp_path, "s3://user:secret@bucket/a.csv")
    with pytest.raises(ConfigError, match="Protocol not known: nope"):
        run(tmp_path, "nope://bucket/a.csv")
    with pytest.raises(ConfigError, match=r"with output.mirror: .* the versions are there as well"):
        run(tmp_path, f"{store}/a/1.csv", output={"dir": f"{store}/out"})
    with pytest.raises(ConfigError, match="must be an address such as"):
        run(tmp_path, f"{store}/a/1.csv", output={"mirror": "elsewhere"})


def test_a_file_that_changes_between_plan_and_read_is_an_error(store: str, tmp_path: Path) -> None:
    put(f"{store}/1.csv", 0)
    (tmp_path / "config.yaml").write_text(
        json.dumps({"name": "d", "source": {"format": "csv", "files": f"{store}/1.csv"}, "output": {"dir": "out"}})
    )
    config = load(str(tmp_path / "config.yaml"))
    partitions = plan.list_partitions(config)
    put(f"{store}/1.csv", 7)
    with pytest.raises(SourceError, match="1.csv: the file changed while it was read"):
        build(config, partitions)


def test_a_mirror_has_what_the_output_has(store: str, tmp_path: Path) -> None:
    url = f"{store}/mirror"
    put(f"{store}/1.csv", 0)
    put(f"{store}/2.csv", 400)
    first = run(tmp_path, f"{store}/*.csv", output={"mirror": url, "shards": 1})
    assert first.mirror is not None and first.mirror.uploaded == 3
    assert mirrored(url, first) and pointer(url) == first.version
    again = run(tmp_path, f"{store}/*.csv", output={"mirror": url, "shards": 1})
    assert again.mirror is not None and (again.mirror.uploaded, again.mirror.copied) == (0, 0)
    second = run(tmp_path, f"{store}/*.csv", output={"mirror": url, "shards": 2})
    assert second.mirror is not None and (second.mirror.uploaded, second.mirror.copied) == (2, 2)  # schema, statistics
    assert mirrored(url, second) and mirrored(url, first) and pointer(url) == second.version
    rollback(str(tmp_path / "out"), first.version)
    assert pointer(url) == first.version
    rollback(str(tmp_path / "out"), second.version)
    assert gc(str(tmp_path / "out"), keep=1, dry_run=True).on_mirror == [first.version]
    assert mirrored(url, first)
    assert gc(str(tmp_path / "out"), keep=1).on_mirror == [first.version]
    assert not storage.list_files(f"{url}/versions/{first.version}") and mirrored(url, second)


def test_a_mirror_that_was_stopped_is_brought_up_to_date(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, put_bytes = f"{store}/mirror", storage.write_bytes
    put(f"{store}/1.csv", 0)

    def fail(path: str, content: bytes) -> None:
        if path.endswith("manifest.json"):
            raise OSError(28, "No space left on device")
        put_bytes(path, content)

    monkeypatch.setattr(storage, "write_bytes", fail)
    with pytest.raises(OutputError, match="the mirror .* No space left on device; what is published here is whole"):
        run(tmp_path, f"{store}/1.csv", output={"mirror": url})
    assert pointer(url) is None and Layout(str(tmp_path / "out")).latest() is not None
    monkeypatch.undo()
    monkeypatch.setattr(plan, "PARTITION_BYTES", 3500)
    result = run(tmp_path, f"{store}/1.csv", output={"mirror": url})
    assert result.up_to_date and mirrored(url, result) and pointer(url) == result.version


def test_dropped_rows_go_from_the_mirror_too(store: str, tmp_path: Path) -> None:
    url = f"{store}/mirror"
    put(f"{store}/1.csv", 0)
    put(f"{store}/2.csv", 400)
    first = run(tmp_path, f"{store}/*.csv", output={"mirror": url, "compression": "none", "shards": 2})
    (tmp_path / "drop.csv").write_text("id\n7\n")
    second = run(
        tmp_path, f"{store}/*.csv", output={"mirror": url, "compression": "none", "shards": 2}, drop_rows="drop.csv"
    )
    assert second.versions_made_again == (f"{first.version}-r1",)
    contents = [storage.read_bytes(f.path) for f in storage.list_files(url) if ".tfrecord" in f.path]
    assert len(contents) == 4 and not any(b"value 7\x0a" in c or b"\x07value 7" in c for c in contents)
    assert sorted(mirror._versions(mirror._listing(url))) == Layout(str(tmp_path / "out")).published()
    assert mirrored(url, second)


def test_a_mirror_takes_no_place_that_others_use(store: str, tmp_path: Path) -> None:
    put(f"{store}/data/1.csv", 0)
    with pytest.raises(ConfigError, match="holds files that recordmill did not write"):
        run(tmp_path, f"{store}/data/1.csv", output={"mirror": f"{store}/data"})


def pointer(url: str) -> str | None:
    return mirror._read_pointer(url)


def mirrored(url: str, result: BuildResult) -> bool:
    there = {
        f.path.split(f"{result.version}/")[1]: f.path for f in storage.list_files(f"{url}/versions/{result.version}")
    }
    here = [os.path.join(parent, name) for parent, _, names in os.walk(result.path) for name in names]
    return {os.path.relpath(path, result.path): Path(path).read_bytes() for path in here} == {
        name: storage.read_bytes(path) for name, path in there.items()
    }
