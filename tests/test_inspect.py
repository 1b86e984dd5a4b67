"""What inspect says is what was built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.build import build
from pipeline.config import load
from pipeline.inspect import FeatureSummary, inspect
from transforms.errors import ConfigError, CorruptError

ROWS = [
    {"id": 1, "tags": ["a", "b"], "x": 0.5, "name": "Zoë"},
    {"id": 2, "tags": [], "x": None, "name": "two"},
    {"id": 3, "tags": ["c"], "x": 1.5, "name": "three"},
]


@pytest.fixture
def built(tmp_path: Path) -> str:
    """Two versions; the second has one row less."""
    (tmp_path / "c.yaml").write_text(
        "name: t\nsource: {format: jsonl, files: rows.jsonl}\noutput: {dir: out, shuffle: none}\nrunner: {workers: 1}\n"
    )
    for rows in (ROWS, ROWS[:2]):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        build(load(str(tmp_path / "c.yaml")))
    return str(tmp_path / "out")


def test_versions_and_splits(built: str) -> None:
    found = inspect(built)
    assert [(v.num_records, v.is_latest) for v in found.versions] == [(3, False), (2, True)]
    assert found.version == found.versions[1].version
    assert found.splits == ("all",)
    assert found.rows == {}
    assert inspect(built, version=found.versions[0].version).manifest.totals.written == 3


def test_features(built: str) -> None:
    oldest = inspect(built).versions[0].version
    assert inspect(built, version=oldest).features == (
        FeatureSummary("id", "int", "scalar", True),
        FeatureSummary("tags", "bytes", "any number", False),
        FeatureSummary("x", "float", "scalar", False),
        FeatureSummary("name", "bytes", "scalar", True),
    )


def test_rows_are_decoded_in_order(built: str) -> None:
    oldest = inspect(built).versions[0].version
    rows = inspect(built, version=oldest, rows=10).rows["all"]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert list(rows[0]) == ["id", "tags", "x", "name"]
    assert rows[0] == {"id": 1, "tags": [b"a", b"b"], "x": 0.5, "name": "Zoë".encode()}
    assert rows[2]["tags"] == [b"c"]
    assert "x" not in rows[1]
    assert len(inspect(built, rows=1).rows["all"]) == 1


def test_what_is_not_there(built: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--split eval: version .* has the splits all"):
        inspect(built, split="eval")
    with pytest.raises(ConfigError, match="has no version 'v0'; it has"):
        inspect(built, version="v0")
    with pytest.raises(ConfigError, match="not an output folder"):
        inspect(str(tmp_path))


def test_damage_is_said(built: str) -> None:
    folder = Path(inspect(built).path)
    shard = next(folder.glob("all/*"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-10])
    with pytest.raises(CorruptError, match=shard.name):
        inspect(built, rows=1)
    shard.unlink()
    with pytest.raises(CorruptError, match="recordmill verify"):
        inspect(built, rows=1)
    (folder / "schema.pbtxt").write_text("feature {")
    with pytest.raises(CorruptError, match="schema.pbtxt cannot be read"):
        inspect(built)
