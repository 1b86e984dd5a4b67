"""The output folder: names, versions, and manifests that say so when they are damaged."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.layout import Layout, Manifest, SourceFile, Totals, new_version
from transforms.assemble import ShardInfo
from transforms.errors import ConfigError, CorruptError
from transforms.partition import Block


def manifest(**changes: object) -> Manifest:
    blocks = (Block("train", 0, 10, 30, 2, 7), Block("train", 10, 20, 40, 3, 8, checksum=9))
    shard = ShardInfo("train", "f-train-00000-of-00001.tfrecord.gz", 5, 30, 70, "ab" * 32, blocks)
    whole = Manifest(
        version="20260101T000000000Z-0000",
        name="f",
        created="2026-01-01T00:00:00Z",
        key="01",
        config={"name": "f", "splits": {"train": 0.9, "eval": 0.1}, "note": "[ 1, 2 ] é"},
        splits={"train": (shard,), "eval": ()},
        sources=(SourceFile("data/a.csv", 100, "cd"),),
        schema_digest="ef",
        transform_digest=None,
        software={"python": "3.11"},
        totals=Totals(read=6, bad=1, written=5),
    )
    return dataclasses.replace(whole, **changes)  # type: ignore[arg-type]


@given(st.datetimes(min_value=datetime(2000, 1, 1)), st.integers(min_value=1, max_value=10**9))
def test_versions_sort_by_time(now: datetime, later_msec: int) -> None:
    now = now.replace(tzinfo=timezone.utc, year=min(now.year, 9000))
    earlier, later = new_version(now), new_version(now + timedelta(milliseconds=later_msec))
    assert earlier < later


def test_versions_of_one_moment_differ() -> None:
    now = datetime.now(timezone.utc)
    assert len({new_version(now) for _ in range(20)}) > 1


def test_a_new_folder_becomes_ours(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path / "a" / "out"))
    layout.check()
    assert not os.path.exists(layout.dir)
    layout.claim()
    layout.claim()
    Path(layout.dir, "notes.txt").write_text("ours stays ours")
    layout.check()


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match=r"'thesis.tex' is one\): name a new"):
        Layout(str(tmp_path)).claim()
    assert os.listdir(tmp_path) == ["thesis.tex"]
    with pytest.raises(ConfigError, match="not a folder"):
        Layout(str(tmp_path / "thesis.tex")).check()


@pytest.mark.parametrize(
    ("marker", "message"), [("{", "damaged"), ("[]", "damaged"), ('{"format_version": 99}', "newer")]
)
def test_a_marker_that_does_not_fit(tmp_path: Path, marker: str, message: str) -> None:
    (tmp_path / "recordmill.json").write_text(marker)
    with pytest.raises(ConfigError, match=message):
        Layout(str(tmp_path)).check()


def test_versions_are_found(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    with pytest.raises(ConfigError, match=r"no recordmill\.json"):
        layout.find()
    layout.claim()
    assert layout.latest() is None
    with pytest.raises(ConfigError, match="no published version yet"):
        layout.find()
    for version in ("v2", "v1"):
        manifest(version=version).save(layout.manifest_path(version))
    os.makedirs(layout.version_dir("v3"))  # has no manifest: a build that died
    layout.point_to("v1")
    assert layout.published() == ["v1", "v2"]
    assert layout.find() == layout.latest() == "v1"
    assert layout.find("v2") == "v2"
    with pytest.raises(ConfigError, match="no version 'v3'; it has v1, v2: choose one"):
        layout.find("v3")
    layout.point_to("v3")
    with pytest.raises(ConfigError, match="LATEST.*build again"):
        layout.find()


def test_manifest_comes_back(tmp_path: Path) -> None:
    path = str(tmp_path / "v" / "manifest.json")
    for original in (manifest(), manifest(transform_digest="12", splits={}, sources=())):
        original.save(path)
        assert Manifest.load(path) == original
        assert manifest().to_json() == manifest().to_json()


def test_manifest_is_for_people_too() -> None:
    text = manifest().to_json()
    assert "[0, 10, 30, 2, 7, 0]" in text
    assert '"[ 1, 2 ] é"' in text
    assert json.loads(text)["format_version"] == 1


@given(st.data())
def test_a_damaged_manifest_is_noticed(data: st.DataObject) -> None:
    text = manifest().to_json()
    place = data.draw(st.integers(0, len(text) - 2))
    changed = text[:place] + data.draw(st.sampled_from('0a{"')) + text[place + 1 :]
    for damaged in (changed, text[:place]):
        try:
            assert Manifest.from_json(damaged, path="m") == manifest()  # white space, or the same character
        except CorruptError as error:
            assert str(error).startswith("m ")


def test_manifest_of_a_newer_format() -> None:
    text = manifest().to_json().replace('"format_version": 1', '"format_version": 2')
    with pytest.raises(CorruptError, match="newer recordmill.*upgrade"):
        Manifest.from_json(text, path="m")


def test_missing_manifest(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="cannot be read"):
        Manifest.load(str(tmp_path / "manifest.json"))
