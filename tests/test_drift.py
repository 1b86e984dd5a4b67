"""Histograms that add up, and a transform graph that is kept until the data has moved too far."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.layout import Layout, Manifest
from pipeline.verify import verify
from transforms.errors import ConfigError
from transforms.histogram import MISSING, NAN, add, count, divergence, from_bytes, to_bytes

VALUES = st.lists(st.one_of(st.none(), st.floats(width=32)), max_size=50)


def batch(values: list[Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, kind or pa.float32())], names=["x"])


@given(VALUES, VALUES)
def test_histograms_of_parts_add_up(first: list[Any], second: list[Any]) -> None:
    whole = count([batch(first + second)])
    parts = add([count([batch(first)]), count([batch(second)])])
    assert parts == whole
    assert from_bytes(to_bytes(whole)) == {k: v for k, v in whole.items() if v}
    assert sum(whole["x"].values()) == len(first) + len(second)


@given(st.floats(2.0**-90, 2.0**90, width=32))
def test_a_bin_is_narrow(value: float) -> None:
    (bin_,) = count([batch([value])])["x"]
    (far,) = count([batch([value * 1.07])])["x"]
    assert bin_ != far
    assert count([batch([-value])])["x"].keys() != {bin_}


def test_what_is_no_number_has_bins_of_its_own() -> None:
    assert count([batch([None, float("nan"), 0.0, -0.0, float("inf")])])["x"] == {
        MISSING: 1, NAN: 1, 0: 2, int(np.float32(math.inf).view(np.uint32) >> 19): 1,
    }  # fmt: skip
    lists = batch([[1, 2], [], None], pa.list_(pa.int64()))
    assert count([lists])["x"][MISSING] == 2
    assert sum(count([batch([b"a", b"a", b"b", None], pa.binary())])["x"].values()) == 4


@given(VALUES, VALUES)
def test_divergence_is_a_distance_between_0_and_1(first: list[Any], second: list[Any]) -> None:
    p, q = count([batch(first)])["x"], count([batch(second)])["x"]
    assert divergence(p, p) == 0
    assert divergence(p, q) == pytest.approx(divergence(q, p))
    assert -1e-9 <= divergence(p, q) <= 1 + 1e-9


def test_divergence_of_known_histograms() -> None:
    assert divergence({1: 5}, {2: 7}) == pytest.approx(1)
    assert divergence({1: 1, 2: 1}, {1: 1}) == pytest.approx(0.311278, abs=1e-6)
    assert divergence({1: 10, 2: 30}, {1: 100, 2: 300}) == pytest.approx(0)
    assert divergence({}, {1: 1}) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    write(tmp_path, "a", 0.0)
    code = "def preprocessing_fn(x):\n    return {'x': tft.scale_to_z_score(x['x'])}\n"
    (tmp_path / "preprocessing.py").write_text(f"import tensorflow_transform as tft\n\n{code}")
    return tmp_path


def write(folder: Path, name: str, mean: float) -> None:
    rng = random.Random(name)
    lines = "".join(f"{rng.gauss(mean, 1):.4f},t{i % 3}\n" for i in range(2000))
    (folder / "data" / f"{name}.csv").write_text("x,t\n" + lines)


def run(folder: Path, **options: Any) -> BuildResult:
    content = {
        "name": "d",
        "source": {"format": "csv", "files": "data/*"},
        "preprocess": "preprocessing.py",
        "preprocess_refresh": "on_drift",
        "output": {"dir": "out"},
    } | options
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=1"]))


def transform(result: BuildResult) -> str | None:
    return Manifest.load(Layout(str(Path(result.path).parent.parent)).manifest_path(result.version)).transform_digest


def test_the_graph_is_kept_until_the_data_has_moved(folder: Path) -> None:
    first = run(folder)
    write(folder, "b", 0.02)
    second = run(folder)
    assert transform(second) == transform(first)
    assert not any(reason.startswith("drift") for reason in second.reasons)
    write(folder, "b", 6.0)
    third = run(folder)
    assert transform(third) != transform(first)
    assert any(reason.startswith("drift: `x` moved by") and "more than 0.1" in reason for reason in third.reasons)
    write(folder, "b", 6.1)
    assert transform(run(folder)) == transform(third)
    assert not verify(str(folder / "out")).faults


def test_thresholds_of_the_config_and_of_the_schema(folder: Path) -> None:
    first = run(folder)
    write(folder, "b", 6.0)
    assert transform(run(folder, drift_threshold=0.9)) == transform(first)
    feature = 'feature {{ name: "x" type: FLOAT shape {{}} presence {{ min_fraction: 1 }} {} }}'
    comparator = "drift_comparator { jensen_shannon_divergence { threshold: 0.01 } }"
    (folder / "schema.pbtxt").write_text(feature.format(comparator))
    before = run(folder, schema="schema.pbtxt", drift_threshold=0.9)
    write(folder, "c", 9.0)
    after = run(folder, schema="schema.pbtxt", drift_threshold=0.9)
    assert transform(after) != transform(before)
    assert any("more than 0.01" in reason for reason in after.reasons)


def test_without_anything_to_compare_the_data_is_analyzed(folder: Path) -> None:
    run(folder, preprocess_refresh="always")
    write(folder, "b", 0.5)
    second = run(folder)
    assert "analyze" in second.steps
    write(folder, "c", 0.4)
    third = run(folder)
    assert "analyze" not in third.steps
    path = Path(third.path) / "analyzed.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    write(folder, "d", 0.4)
    fourth = run(folder)
    assert "analyze" in fourth.steps
    assert any(str(path) in warning for warning in fourth.warnings)


def test_a_threshold_alone_makes_no_sense(folder: Path) -> None:
    with pytest.raises(ConfigError, match="drift_threshold.*preprocess_refresh: on_drift"):
        run(folder, preprocess_refresh="always", drift_threshold=0.5)
