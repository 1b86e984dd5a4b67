"""What a refresh keeps of the transform graph, and of what was made with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.inspect import inspect
from pipeline.layout import Layout, Manifest

CODE = """
import tensorflow_transform as tft
from helpers import FACTOR

def preprocessing_fn(inputs):
    # a comment
    return {"x": tft.scale_to_0_1(inputs["x"]) * FACTOR, "id": inputs["id"]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 300)
    (tmp_path / "data").mkdir()
    write(tmp_path, "a", range(50))
    write(tmp_path, "b", range(50, 101))
    (tmp_path / "preprocessing.py").write_text(CODE)
    (tmp_path / "helpers.py").write_text("FACTOR = 2.0\n")
    return tmp_path


def write(folder: Path, name: str, values: Any) -> None:
    (folder / "data" / f"{name}.csv").write_text("id,x\n" + "".join(f"{i},{i}.5\n" for i in values))


def run(folder: Path, **config: Any) -> BuildResult:
    content = {
        "name": "d",
        "source": {"format": "csv", "files": "data/*"},
        "preprocess": "preprocessing.py",
        "output": {"dir": "out"},
    } | config
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=2"]))


def manifest(result: BuildResult) -> Manifest:
    return Manifest.load(Layout(str(Path(result.path).parent.parent)).manifest_path(result.version))


def largest(folder: Path) -> float:
    return max(row["x"] for row in inspect(str(folder / "out"), rows=1000).rows["all"])


def test_a_frozen_graph_is_kept_while_data_changes(folder: Path) -> None:
    first = run(folder, preprocess_refresh="frozen")
    assert largest(folder) == pytest.approx(2.0)
    write(folder, "c", [200])
    second = run(folder, preprocess_refresh="frozen")
    assert second.built_partitions == 1
    assert manifest(second).transform_digest == manifest(first).transform_digest
    assert largest(folder) == pytest.approx(4.0)
    (folder / "helpers.py").write_text("FACTOR = 3.0  # more\n")
    third = run(folder, preprocess_refresh="frozen")
    assert third.built_partitions == second.built_partitions + second.reused_partitions
    assert "preprocessing, module helpers: constant in `FACTOR` changed" in third.reasons
    assert largest(folder) == pytest.approx(3.0)


def test_a_frozen_graph_that_is_damaged_is_made_again(folder: Path) -> None:
    first = run(folder, preprocess_refresh="frozen")
    model = Path(first.path) / "transform_fn" / "saved_model.pb"
    model.write_bytes(model.read_bytes()[:-1])
    write(folder, "c", [200])
    second = run(folder, preprocess_refresh="frozen")
    assert any(str(model) in warning for warning in second.warnings)
    assert largest(folder) == pytest.approx(2.0)
