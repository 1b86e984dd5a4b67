"""Versions are listed, readers are led to another one, and old ones are removed with what they alone needed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipeline.build import BuildResult, build
from pipeline.cli import app
from pipeline.config import load
from pipeline.gc import gc
from pipeline.layout import Layout
from pipeline.lock import output_lock
from pipeline.verify import verify
from pipeline.versions import list_versions, rollback
from transforms.errors import ConfigError, CorruptError, OutputError


def run(folder: Path, count: int, **options: Any) -> BuildResult:
    (folder / "data").mkdir(exist_ok=True)
    for i in range(count):
        (folder / "data" / f"{i}.csv").write_text("id\n" + "".join(f"{i}{n:03d}\n" for n in range(100)))
    content = {"name": "d", "source": {"format": "csv", "files": "data/*"}, "output": {"dir": "out"}} | options
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=1"]))


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def names(out: str) -> list[str]:
    return Layout(out).published()


def cached(out: str) -> set[str]:
    cache = Path(out) / "cache"
    return {str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file() and p.name != "rates.json"}


def test_versions_are_listed(tmp_path: Path, out: str) -> None:
    first, second = run(tmp_path, 1), run(tmp_path, 2, splits={"train": 0.5, "eval": 0.5})
    found = list_versions(out)
    assert [(v.name, v.is_latest, v.rows) for v in found] == [(first.version, False, 100), (second.version, True, 200)]
    assert set(found[1].rows_by_split or ()) == {"train", "eval"}
    shown = CliRunner().invoke(app, ["versions", out]).stdout
    assert first.version in shown and shown.count("latest") == 1
    next(Path(first.path).glob("all/*")).unlink()
    assert "is not there" in (list_versions(out)[0].damage or "")
    assert json.loads(CliRunner().invoke(app, ["versions", out, "--json"]).stdout)[1]["rows"] == 200
    with pytest.raises(ConfigError, match="is not an output folder"):
        list_versions(str(tmp_path))


def test_rollback_and_the_build_after_it(tmp_path: Path, out: str) -> None:
    first, second = run(tmp_path, 1), run(tmp_path, 2)
    result = rollback(out, first.version, check=True)
    assert (result.before, result.now, Layout(out).latest()) == (second.version, first.version, first.version)
    again = run(tmp_path, 2)
    assert again.up_to_date and again.version == second.version == Layout(out).latest()
    assert any("readers take it again" in warning for warning in again.warnings)
    assert names(out) == [first.version, second.version]


def test_rollback_refuses_what_is_not_whole(tmp_path: Path, out: str) -> None:
    first, second = run(tmp_path, 1), run(tmp_path, 2)
    shard = next(Path(first.path).glob("all/*"))
    content = bytearray(shard.read_bytes())
    content[50] ^= 1
    shard.unlink()
    shard.write_bytes(content)
    with pytest.raises(CorruptError, match="is damaged"):
        rollback(out, first.version, check=True)
    shard.write_bytes(content[:-1])
    with pytest.raises(CorruptError, match="bytes, the manifest says"):
        rollback(out, first.version)
    with pytest.raises(ConfigError, match="has no version 'nothing'"):
        rollback(out, "nothing")
    assert Layout(out).latest() == second.version


def test_gc_keeps_what_is_needed(tmp_path: Path, out: str) -> None:
    versions = [run(tmp_path, count).version for count in (1, 2, 3, 4)]
    rollback(out, versions[0])
    before = cached(out)
    told = gc(out, keep=1, dry_run=True)
    assert cached(out) == before and names(out) == versions
    removed = gc(out, keep=1)
    assert removed == told
    assert removed.versions == versions[1:3]
    assert names(out) == [versions[0], versions[3]]
    assert cached(out) < before
    for version in names(out):
        assert not verify(out, version=version).faults
    assert removed.num_bytes > 0
    assert gc(out, keep=1).entries == []
    result = run(tmp_path, 4)
    assert result.up_to_date and result.version == versions[3]
    shutil.rmtree(Path(out) / "versions" / versions[3])
    assert run(tmp_path, 4).built_partitions == 0


def test_gc_spares_what_is_young(tmp_path: Path, out: str) -> None:
    versions = [run(tmp_path, count).version for count in (1, 2)]
    removed = gc(out, keep=1, older_than=3600)
    assert (removed.versions, removed.entries) == ([], [])
    old = time.time() - 7200
    os.utime(Layout(out).manifest_path(versions[0]), (old, old))
    assert gc(out, keep=1, older_than=3600).versions == versions[:1]


def test_gc_leaves_the_cache_alone_when_it_does_not_know(tmp_path: Path, out: str) -> None:
    version = run(tmp_path, 1).version
    (Path(out) / "cache" / "uses" / version).unlink()
    before = cached(out)
    assert version in (gc(out, keep=1).kept_cache or "")
    assert cached(out) == before


def test_gc_removes_leftovers_of_the_dead(tmp_path: Path, out: str) -> None:
    run(tmp_path, 1)
    folder = Path(out) / "versions" / "20260101T000000000Z-0000.tmp-abcdef01-1-2"
    folder.mkdir()
    (folder / "x").write_text("x")
    (Path(out) / "cache" / "blocks" / "y.tmp-abcdef01-1-3").write_text("y")
    shown = CliRunner().invoke(app, ["gc", out, "--keep", "1", "--dry-run"]).stdout
    assert "would remove 0 versions, 0 entries of the cache, 2 leftovers" in shown
    assert len(gc(out, keep=1).leftovers) == 2
    assert not folder.exists()


@pytest.mark.parametrize("options", [["--keep", "0"], ["--keep", "1", "--older-than", "soon"], []])
def test_gc_wants_to_know_what_to_keep(tmp_path: Path, out: str, options: list[str]) -> None:
    run(tmp_path, 1)
    assert CliRunner().invoke(app, ["gc", out, *options]).exit_code == 2


HOLD = """
import sys, time
from pipeline.layout import Layout
from pipeline.lock import output_lock
with output_lock(Layout(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path, out: str) -> Any:
    Layout(out).claim()
    process = subprocess.Popen([sys.executable, "-c", HOLD, out], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_build_says_who_has_the_output(tmp_path: Path, out: str, holder: Any) -> None:
    with pytest.raises(OutputError, match=rf"in use by process {holder.pid} on .* since 20.*-c.*--wait SECONDS"):
        run(tmp_path, 1)
    with pytest.raises(OutputError, match="in use"):
        gc(out, keep=1)


def test_a_lock_of_the_dead_is_taken_over(tmp_path: Path, out: str, holder: Any) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert os.path.exists(Layout(out).lock_holder)
    assert run(tmp_path, 1).rows_read == 100
    assert not os.path.exists(Layout(out).lock_holder)


def test_the_second_build_waits(tmp_path: Path, out: str, holder: Any) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0.csv").write_text("id\n1\n")
    content = {"name": "d", "source": {"format": "csv", "files": "data/*"}, "output": {"dir": "out"}}
    (tmp_path / "config.yaml").write_text(json.dumps(content))
    code = "import sys; from pipeline.cli import main; sys.argv[0] = 'recordmill'; main()"
    command = [sys.executable, "-c", code, "build", str(tmp_path / "config.yaml"), "--wait", "50"]
    second = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert second.stderr is not None
    assert f"in use by process {holder.pid}" in second.stderr.readline()
    holder.kill()
    assert second.wait(timeout=60) == 0
    assert len(names(out)) == 1


def test_the_lock_goes_with_the_block(out: str) -> None:
    layout = Layout(out)
    layout.claim()
    with output_lock(layout) as locked:
        assert locked
    with output_lock(layout):
        pass


def test_without_locks_both_builds_finish(tmp_path: Path, out: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(20_000)))
    content = {"name": "d", "source": {"format": "csv", "files": "data/*"}, "output": {"dir": "out"}}
    code = (
        "import sys, filelock\n"
        "def acquire(self, timeout=None): raise OSError(95, 'not supported')\n"
        "filelock.FileLock.acquire = acquire\n"
        "from pipeline.cli import main\nsys.argv[0] = 'recordmill'; main()"
    )
    builds = []
    for level in (1, 6):
        (tmp_path / f"{level}.yaml").write_text(json.dumps(content | {"output": {"dir": "out", "level": level}}))
        command = [sys.executable, "-c", code, "build", str(tmp_path / f"{level}.yaml")]
        builds.append(subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True))
    for process in builds:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert "cannot be locked" in said
    assert len(names(out)) == 2
    assert Layout(out).latest() in names(out)
    for version in names(out):
        assert not verify(out, version=version).faults
