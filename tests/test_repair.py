"""Damaged files are put right byte for byte, from wherever their bytes are."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from pipeline.build import build
from pipeline.cli import app
from pipeline.config import Config, load
from pipeline.repair import NOT_MADE, repair
from pipeline.verify import verify


def config(folder: Path, files: str = "*.csv", **output: Any) -> Config:
    content = {
        "name": "d",
        "source": {"format": "csv", "files": files},
        "splits": {"train": 0.8, "eval": 0.2},
        "output": {"dir": "out", "shards": 3} | output,
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(content))
    return load(str(folder / "c.yaml"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in range(3):
        lines = "".join(f"{i},text {i % 97}\n" for i in range(part * 20_000, (part + 1) * 20_000))
        (tmp_path / f"{part}.csv").write_text("id,t\n" + lines)
    return tmp_path


def content(path: str) -> dict[str, str]:
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def damage(path: Path) -> None:
    found = bytearray(path.read_bytes())
    found[len(found) // 2] ^= 1
    path.unlink()  # other versions have the same inode
    path.write_bytes(found)


@pytest.mark.parametrize("cache", ["kept", "gone"])
def test_from_the_cache_or_the_source(folder: Path, cache: str) -> None:
    made = config(folder)
    path = build(made).path
    before = content(path)
    shards = sorted(Path(path).glob("*/*.gz"))
    damage(shards[0])
    shards[1].unlink()
    shards[2].write_bytes(shards[2].read_bytes()[:-7])
    if cache == "gone":
        for block in Path(folder / "out/cache/blocks").glob("*"):
            block.unlink()
    out = str(folder / "out")
    (without,) = repair(out)
    assert not without.mended and set(without.left.values()) == {NOT_MADE} and len(without.left) == 3
    (found,) = repair(out, config=made)
    assert sorted(found.mended) == sorted(without.left) and not found.left
    assert set(found.mended.values()) == {"the cache and the source"}
    assert content(path) == before and not verify(out).faults
    assert repair(out) == []


def test_from_another_version(folder: Path) -> None:
    first = Path(build(config(folder, "{SPAN}.csv")).path)
    (folder / "3.csv").write_text("id,t\n" + "".join(f"{i},more\n" for i in range(100)))
    second = Path(build(config(folder, "{SPAN}.csv")).path)
    theirs = content(str(second)).values()
    victim = first / next(name for name, sha256 in content(str(first)).items() if "gz" in name and sha256 in theirs)
    whole = victim.read_bytes()
    damage(victim)
    (found,) = repair(str(folder / "out"))
    assert found.version == first.name and list(found.mended.values()) == [f"version {second.name}"]
    assert victim.read_bytes() == whole


def test_from_the_mirror_all_files(folder: Path) -> None:
    made = config(folder, mirror=f"file://{folder}/mirror")
    path = build(made).path
    before = content(path)
    damage(next(iter(Path(path).glob("train/*.gz"))))
    (Path(path) / "schema.pbtxt").write_text("")
    (found,) = repair(str(folder / "out"))
    assert set(found.mended.values()) == {f"the mirror file://{folder}/mirror"} and len(found.mended) == 2
    assert content(path) == before


def test_what_cannot_be_put_right_is_said(folder: Path) -> None:
    made = config(folder)
    path = Path(build(made).path)
    damage(next(iter(path.glob("train/*.gz"))))
    (path / "train" / "more").write_text("")
    with (folder / "0.csv").open("a") as stream:
        stream.write("1,more\n")
    (found,) = repair(str(folder / "out"), config=made)
    assert not found.mended
    assert "cannot be made again: its source 0.csv changed" in " ".join(found.left.values())
    assert "is not in the manifest" in found.left["train/more"]


def test_the_command(folder: Path) -> None:
    path = Path(build(config(folder)).path)
    out = str(folder / "out")
    assert "nothing is damaged" in CliRunner().invoke(app, ["repair", out]).output
    damage(next(iter(path.glob("train/*.gz"))))
    left = CliRunner().invoke(app, ["repair", out])
    assert left.exit_code == 1 and "--config CONFIG" in left.output.replace("\n", " ")
    done = CliRunner().invoke(app, ["repair", out, "--config", str(folder / "c.yaml")])
    assert done.exit_code == 0 and "mended" in done.output
    assert CliRunner().invoke(app, ["verify", out]).exit_code == 0
