"""Every kind of damage to a version is found, and named by shard, block and record."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.build import build
from pipeline.config import load
from pipeline.layout import Layout, Manifest
from pipeline.verify import Fault, verify
from transforms.errors import BuildError, ConfigError, CorruptError

CONFIG = """\
name: t
source: {format: csv, files: rows.csv}
splits: {train: 0.9, eval: 0.1}
output: {dir: out, shards: {train: 2, eval: 1}, shuffle: none}
runner: {workers: 1}
"""
STORAGE = ("gzip", "gzip-single", "zlib", "none")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """An output folder for each way of storing; 60,000 rows, so that shards have several blocks."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "rows.csv").write_text("id,text\n" + "".join(f"{i},{'x' * (i % 50)}\n" for i in range(60_000)))
    (folder / "c.yaml").write_text(CONFIG)
    done: dict[str, str] = {}

    def get(storage: str) -> str:
        if storage not in done:
            name, _, members = storage.partition("-")
            changes = [f"output.compression={name}", f"output.gzip_members={members or 'blocks'}"]
            config = load(str(folder / "c.yaml"), [*changes, f"output.dir={storage}"])
            build(config)
            done[storage] = config.output_dir
        return done[storage]

    return get


class Version:
    """A copy of a built version, to damage."""

    def __init__(self, source: str, target: Path) -> None:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("cache"))
        self.layout = Layout(str(target))
        self.version = self.layout.find()
        self.folder = Path(self.layout.version_dir(self.version))
        self.manifest = Manifest.load(self.layout.manifest_path(self.version))
        self.shard = self.manifest.splits["train"][0]
        self.path = self.folder / "train" / self.shard.name

    @property
    def name(self) -> str:
        return os.path.join("train", self.shard.name)

    def faults(self) -> list[Fault]:
        return list(verify(self.layout.dir).faults)

    def flip(self, offset: int) -> None:
        content = bytearray(self.path.read_bytes())
        content[offset] ^= 0x10
        self.path.write_bytes(content)


@pytest.fixture(params=STORAGE)
def version(request: pytest.FixtureRequest, built: Callable[[str], str], tmp_path: Path) -> Version:
    return Version(built(request.param), tmp_path / "copy")


@pytest.fixture
def plain(built: Callable[[str], str], tmp_path: Path) -> Version:
    return Version(built("none"), tmp_path / "copy")


def test_a_whole_version(version: Version) -> None:
    found = verify(version.layout.dir)
    assert found.faults == ()
    assert (found.num_shards, found.num_records) == (3, 60_000)
    assert found.num_bytes == sum(os.path.getsize(p) for p in version.folder.glob("*/*.tfrecord*"))
    assert len(version.shard.blocks) >= 2


def test_a_changed_byte_names_its_block(version: Version) -> None:
    block = version.shard.blocks[1]
    version.flip(block.offset + block.num_bytes // 2)
    faults = version.faults()
    assert {fault.file for fault in faults} == {version.name}
    assert {fault.block for fault in faults} == {1, None}
    records = [fault.record for fault in faults if fault.record is not None]
    first = version.shard.blocks[0].num_records
    assert all(first <= record < first + block.num_records for record in records)
    assert any("SHA-256" in fault.reason for fault in faults)


def test_every_place_of_a_shard_counts(version: Version) -> None:
    size = version.path.stat().st_size
    for offset in [*range(0, 30, 3), *range(0, size, size // 20), *range(size - 12, size, 2)]:
        version.flip(offset)
        assert version.faults(), offset
        version.flip(offset)
    assert not version.faults()


def test_damaged_records_are_named(plain: Version) -> None:
    """Three records of a block: the data of two, and the length of the last."""
    block, before = plain.shard.blocks[1], plain.shard.blocks[0].num_records
    starts, offset, content = [], block.offset, plain.path.read_bytes()
    while len(starts) < 30:
        starts.append(offset)
        offset += int.from_bytes(content[offset : offset + 8], "little") + 16
    plain.flip(starts[3] + 14)
    plain.flip(starts[7] + 13)
    plain.flip(starts[20] + 1)
    named = [(fault.record, fault.reason.split(",")[0]) for fault in plain.faults() if fault.record is not None]
    assert named == [
        (before + 3, "its data changed (CRC-32C)"),
        (before + 7, "its data changed (CRC-32C)"),
        (before + 20, "its length is damaged"),
    ]


def test_a_cut_shard(version: Version) -> None:
    block = version.shard.blocks[1]
    os.truncate(version.path, block.offset + block.num_bytes - 7)
    reasons = [str(fault) for fault in version.faults()]
    assert any(f"has {block.offset + block.num_bytes - 7} bytes, the manifest says" in reason for reason in reasons)
    assert any(f"{version.name}, block 1: is cut short" in reason for reason in reasons)


def test_bytes_behind_the_end(version: Version) -> None:
    with open(version.path, "ab") as stream:
        stream.write(b"\0")
    assert any("does not end as it was written" in fault.reason for fault in version.faults())


def test_missing_and_strange_files(version: Version) -> None:
    version.path.unlink()
    (version.folder / "schema.pbtxt").unlink()
    (version.folder / "train" / "t-train-00009-of-00010.tfrecord.gz").write_bytes(b"")
    (version.folder / "eval" / "deep").mkdir()
    (version.folder / "eval" / "deep" / "x").write_bytes(b"")
    assert {(fault.file, fault.reason.split(";")[0]) for fault in version.faults()} == {
        (version.name, "is not there"),
        ("schema.pbtxt", "is not there"),
        ("train/t-train-00009-of-00010.tfrecord.gz", "is not in the manifest"),
        ("eval/deep/x", "is not in the manifest"),
    }


def test_two_shards_that_changed_places(version: Version) -> None:
    other = version.folder / "train" / version.manifest.splits["train"][1].name
    content = version.path.read_bytes()
    version.path.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert {fault.file for fault in version.faults()} == {version.name, f"train/{other.name}"}


def test_another_schema(plain: Version) -> None:
    path = plain.folder / "schema.pbtxt"
    path.write_text(path.read_text().replace('"text"', '"texts"'))
    assert plain.faults() == [Fault("schema.pbtxt", "its content is not what was written (SHA-256)")]
    path.write_text("feature { name: ")
    assert [fault.file for fault in plain.faults()] == ["schema.pbtxt"]


def test_other_files_are_missed(plain: Version) -> None:
    name = "transform_fn/saved_model.pb"
    manifest = dataclasses.replace(plain.manifest, files={**plain.manifest.files, name: "12"})
    manifest.save(plain.layout.manifest_path(plain.version))
    assert plain.faults() == [Fault(name, "is not there")]


def test_a_manifest_that_does_not_add_up(plain: Version) -> None:
    shard, *others = plain.manifest.splits["train"]
    wrong = dataclasses.replace(
        shard,
        num_records=shard.num_records + 1,
        blocks=(dataclasses.replace(shard.blocks[0], num_records=shard.blocks[0].num_records - 1), *shard.blocks[1:]),
    )
    manifest = dataclasses.replace(plain.manifest, splits={**plain.manifest.splits, "train": (wrong, *others)})
    manifest.save(plain.layout.manifest_path(plain.version))
    text = "\n".join(map(str, plain.faults()))
    assert f"its blocks hold {shard.num_records - 1} records, the manifest says {shard.num_records + 1}" in text
    assert f"block 0: holds {shard.blocks[0].num_records} records, the manifest says" in text
    assert "manifest.json: its shards hold 60001 records, its totals say 60000" in text


def test_what_cannot_be_verified_at_all(plain: Version, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no version 'v9'"):
        verify(plain.layout.dir, version="v9")
    with pytest.raises(ConfigError, match="not an output folder"):
        verify(str(tmp_path / "gone"))
    Path(plain.layout.manifest_path(plain.version)).write_text("{")
    with pytest.raises(CorruptError, match="manifest.json is damaged"):
        verify(plain.layout.dir)


def test_a_shard_that_the_disk_spoils_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a disk does it: behind the writer's back, without another size."""
    from pipeline import make

    (tmp_path / "rows.csv").write_text("id,text\n" + "".join(f"{i},{i % 50}\n" for i in range(5000)))
    (tmp_path / "c.yaml").write_text(CONFIG)
    written = make.make_shards

    def spoiled(*arguments: Any, **options: Any) -> Any:
        shards, taken = written(*arguments, **options)
        path = Path(options["staged"]) / "train" / shards[0].name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        return shards, taken

    monkeypatch.setattr(make, "make_shards", spoiled)
    config = load(str(tmp_path / "c.yaml"), ["output.read_back=true"])
    with pytest.raises(BuildError, match=r"in shards that were just written, so nothing was published.*train.*block"):
        build(config)
    assert Layout(config.output_dir).latest() is None
    monkeypatch.undo()
    result = build(config)
    assert "read back" in result.steps and verify(config.output_dir).faults == ()
