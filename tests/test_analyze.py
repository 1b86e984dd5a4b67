"""The analysis against stock TensorFlow Transform: vocabularies byte for byte, outputs and schema equal."""

from __future__ import annotations

import gzip
from pathlib import Path

import analyze_cases as cases
import numpy as np
import pyarrow as pa
import pytest

from transforms.analyze import AnalysisReport, PhaseSpec, accumulate, analyze, analyze_stock
from transforms.preprocess import Preprocessing, TransformGraph
from transforms.schema import Schema

SCHEMA = Schema.from_text(cases.SCHEMA, path="schema.pbtxt")
# L-moments are merged in another order than the stock pipeline's, in float32.
TOLERANCE = {"gaussian": 2e-6}


@pytest.fixture(scope="module")
def batches() -> list[pa.RecordBatch]:
    return cases.make_batches()


def case(folder: Path, name: str) -> Preprocessing:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "preprocessing.py"
    path.write_text(f"from analyze_cases import {name} as preprocessing_fn\n")
    return Preprocessing.load(str(path))


def run(
    preprocessing: Preprocessing, partitions: list[list[pa.RecordBatch]], out: Path, schema: Schema = SCHEMA
) -> AnalysisReport:
    def run_phase(spec: PhaseSpec) -> list[str]:
        paths = [str(out / "states" / f"{spec.number}-{i}") for i in range(len(partitions))]
        for path, partition in zip(paths, partitions, strict=True):
            accumulate(spec, partition, path)
        return paths

    return analyze(preprocessing, schema, run_phase=run_phase, work_dir=str(out / "work"), out_dir=str(out))


def assets(out: Path) -> dict[str, bytes]:
    folder = out / "transform_fn" / "assets"
    paths = folder.iterdir() if folder.exists() else []
    return {p.name: gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in paths}


def assert_same(stock: Path, ours: Path, batches: list[pa.RecordBatch]) -> None:
    expected, actual = assets(stock), assets(ours)
    assert expected.keys() == actual.keys()
    for name, content in expected.items():
        assert actual[name] == content, name
    metadata = "transformed_metadata/schema.pbtxt"
    assert (ours / metadata).read_text() == (stock / metadata).read_text()
    graphs = [TransformGraph(str(out), SCHEMA) for out in (stock, ours)]
    for batch in batches:
        left, right = (graph.transform(batch) for graph in graphs)
        assert left.schema == right.schema
        for name in left.schema.names:
            if name in TOLERANCE:
                np.testing.assert_allclose(
                    left.column(name).to_numpy(), right.column(name).to_numpy(), rtol=0, atol=TOLERANCE[name]
                )
            else:
                assert left.column(name).equals(right.column(name)), name


def compare(name: str, batches: list[pa.RecordBatch], folder: Path) -> None:
    """Stock against one partition, and against three of unequal sizes."""
    preprocessing = case(folder, name)
    stock = folder / "stock"
    analyze_stock(preprocessing, SCHEMA, partitions=[batches], read=lambda partition: partition, out_dir=str(stock))
    run(preprocessing, [batches], folder / "one")
    assert_same(stock, folder / "one", batches)
    run(preprocessing, [batches[:3], batches[3:4], batches[4:]], folder / "three")
    assert_same(stock, folder / "three", batches)


@pytest.mark.parametrize("name", ["core", "nothing"])
def test_equals_stock(name: str, batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    compare(name, batches, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "numbers",
        "quantiles",
        "vocabularies",
        "coverage",
        "information",
        "text",
        "per_key",
        "phases",
        "table",
    ],
)
def test_more_equals_stock(name: str, batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    compare(name, batches, tmp_path)
