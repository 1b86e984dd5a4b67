"""The analysis against stock TensorFlow Transform: vocabularies byte for byte, outputs and schema equal."""

from __future__ import annotations

import gzip
import logging
import re
from pathlib import Path

import analyze_cases as cases
import numpy as np
import pyarrow as pa
import pytest

from transforms.analyze import AnalysisReport, PhaseSpec, Unsupported, accumulate, analyze, analyze_stock
from transforms.errors import BadRowsError, ConfigError
from transforms.partition import BadRow
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
    def run_phase(spec: PhaseSpec) -> list[list[str]]:
        paths = [str(out / "states" / f"{spec.number}-{i}") for i in range(len(partitions))]
        for path, partition in zip(paths, partitions, strict=True):
            accumulate(spec, partition, path)
        return [[path] for path in paths]

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


def test_vocabularies_of_raw_columns_need_no_graph(tmp_path: Path) -> None:
    """1, 3 and 4 go by the column; whatever stands between the column and the other vocabularies is seen."""
    body = """v = tft.vocabulary
    v(t['s'], vocab_filename='1')
    v(tf.strings.lower(t['s']), vocab_filename='2')
    v(t['words'], vocab_filename='3', top_k=5)
    v(t['s'], vocab_filename='4', store_frequency=True)
    v(t['s'], vocab_filename='5', file_format='tfrecord_gzip')
    v(t['filled'], vocab_filename='6')
    v(tf.strings.join([t['s'], t['k']]), vocab_filename='7')
    v(t['s'], weights=t['w'], vocab_filename='8')
    return {'x': t['x']}"""
    specs: list[PhaseSpec] = []

    def run_phase(spec: PhaseSpec) -> list[list[str]]:
        specs.append(spec)
        accumulate(spec, cases.make_batches()[:1], str(tmp_path / "state"))
        return [[str(tmp_path / "state")]]

    work, out = str(tmp_path / "work"), str(tmp_path / "out")
    analyze(written(tmp_path, body), SCHEMA, run_phase=run_phase, work_dir=work, out_dir=out)
    columns = [(analyzer.column, analyzer.is_required) for analyzer in specs[0].analyzers]
    assert sorted(columns, key=str) == [("s", True)] * 2 + [("words", False)] + [(None, False)] * 5


# ---- what it does not know -------------------------------------------------------------------------------------------


def test_beam_analyzer_is_named_before_any_pass_and_stock_runs_it(
    batches: list[pa.RecordBatch], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    preprocessing = case(tmp_path, "beam_analyzer")
    with pytest.raises(Unsupported, match="PTransform.*analysis: stock") as raised:
        analyze(preprocessing, SCHEMA, run_phase=no_phase, work_dir=str(tmp_path / "w"), out_dir=str(tmp_path / "o"))
    construct = raised.value.construct
    out = tmp_path / "stock"
    with caplog.at_level(logging.WARNING, logger="recordmill"):
        report = analyze_stock(
            preprocessing,
            SCHEMA,
            partitions=[0, 1],
            read=lambda i: batches[3 * i : 3 * i + 3],
            out_dir=str(out),
            reason=construct,
        )
    assert report.engine == "stock" and report.fallback == construct and construct in caplog.text
    transformed = [TransformGraph(str(out), SCHEMA).transform(batch).column("x") for batch in batches]
    assert max(pa.compute.max(column).as_py() for column in transformed) == 0.0


def test_stock_passes_bad_rows_on(tmp_path: Path) -> None:
    def read(partition: int) -> list[pa.RecordBatch]:
        raise BadRowsError([BadRow("a.csv", partition, "x", "'?'", "is not a number")])

    with pytest.raises(BadRowsError, match="a.csv, row 8, column 'x': is not a number") as raised:
        analyze_stock(case(tmp_path, "nothing_but_z"), SCHEMA, partitions=[7], read=read, out_dir=str(tmp_path / "o"))
    assert raised.value.rows[0].row == 7


def no_phase(spec: PhaseSpec) -> list[str]:
    raise AssertionError("a phase was run")


# ---- errors and warnings ---------------------------------------------------------------------------------------------


def written(folder: Path, body: str) -> Preprocessing:
    path = folder / "preprocessing.py"
    path.write_text(
        f"import tensorflow as tf\nimport tensorflow_transform as tft\n\n\ndef preprocessing_fn(t):\n    {body}\n"
    )
    return Preprocessing.load(str(path))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {'x': t['no_such']}", r"preprocessing.py:6: return .*KeyError: 'no_such'"),
        ("return [t['x']]", "must return a dict of features"),
        ("return {}", "must return a dict of features"),
    ],
)
def test_mistakes_are_named_with_the_line(body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run(written(tmp_path, body), [cases.make_batches()[:1]], tmp_path)


NUMBERS = Schema.from_text('feature { name: "n" type: FLOAT value_count { min: 1 max: 1 } }', path="schema.pbtxt")


def z_scores(values: list[float | None], folder: Path, *, partitions: int = 1) -> list[float]:
    batch = pa.RecordBatch.from_pydict({"n": pa.array(values, pa.float32())})
    size = -(-len(values) // partitions)
    run(
        written(folder, "return {'n': tft.scale_to_z_score(t['n'])}"),
        [[batch.slice(i, size)] for i in range(0, len(values), size)],
        folder,
        NUMBERS,
    )
    return TransformGraph(str(folder), NUMBERS).transform(batch).column("n").flatten().to_pylist()


NAN = float("nan")


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_nan_counts_as_missing(partitions: int, tmp_path: Path) -> None:
    scaled = z_scores([1.0, 2.0, 3.0, 4.0, NAN, None], tmp_path, partitions=partitions)
    np.testing.assert_allclose(scaled[:4], [-1.34164, -0.44721, 0.44721, 1.34164], rtol=1e-4)
    assert np.isnan(scaled[4]) and len(scaled) == 5


def test_constant_becomes_0(tmp_path: Path) -> None:
    assert z_scores([5.0] * 6, tmp_path) == [0.0] * 6


def test_large_offset_that_float32_holds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scaled = z_scores([100000.0 + v for v in [0, 2, 4, 6, 2, 4]], tmp_path)
    np.testing.assert_allclose(scaled, [-1.5667, -0.52223, 0.52223, 1.5667, -0.52223, 0.52223], rtol=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None] * 6, "column 'n' has no number in any of the 6 analyzed rows"),
        ([NAN, None] * 3, "column 'n' has no number in any of the 6 analyzed rows"),
        ([16777216.0 + v for v in [0, 2, 4, 6, 2, 4]], "column 'n' .* needs more than float32 holds"),
    ],
)
def test_columns_whose_statistics_mean_nothing_are_named(
    values: list[float | None], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="recordmill"):
        z_scores(values, tmp_path, partitions=2)
    assert re.search(message, caplog.text)


def test_same_bytes_whoever_runs_first(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    """The files of a phase do not depend on the order in which the partitions are looked at."""
    seen: dict[str, list[bytes]] = {}
    for order in ((0, 1, 2), (2, 0, 1)):
        out = tmp_path / str(order[0])

        def run_phase(spec: PhaseSpec, out: Path = out, order: tuple[int, ...] = order) -> list[list[str]]:
            for i in order:
                accumulate(spec, batches[2 * i : 2 * i + 2], str(out / f"{spec.number}-{i}"))
            return [[str(out / f"{spec.number}-{i}")] for i in range(3)]

        analyze(
            case(tmp_path, "core"), SCHEMA, run_phase=run_phase, work_dir=str(out / "work"), out_dir=str(out / "graph")
        )
        seen[str(order)] = [path.read_bytes() for path in sorted(out.glob("*-*"))] + list(
            assets(out / "graph").values()
        )
    first, second = seen.values()
    assert first == second
