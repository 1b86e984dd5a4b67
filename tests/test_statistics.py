"""Statistics: exact where they say so, near where they are sketches, and the same however the rows are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from pipeline.build import build
from pipeline.config import load
from pipeline.statistics import to_proto
from transforms.blockfile import read_block_file, read_statistics, write_block_file
from transforms.errors import CorruptError
from transforms.statistics import Collector, FeatureStatistics, add, from_bytes, to_bytes

ROWS = 60_000


def column(name: str) -> pa.Array:
    rng = np.random.default_rng(7)
    return {
        "float": lambda: pa.array(rng.lognormal(size=ROWS).astype(np.float32)),
        "large": lambda: pa.array((1e6 + rng.normal(size=ROWS)).astype(np.float32)),
        "int": lambda: pa.array(rng.integers(-50, 1000, ROWS)),
        "some": lambda: pa.array(rng.integers(0, 5, ROWS), mask=rng.random(ROWS) < 0.3),
        "lists": lambda: pa.array([[float(i % 7)] * (i % 4) for i in range(ROWS)], pa.list_(pa.float32())),
        "nan": lambda: pa.array(np.where(rng.random(ROWS) < 0.1, np.nan, 1.0).astype(np.float32), from_pandas=False),
        "few": lambda: pa.array([b"v%d" % (i * i % 97) for i in range(ROWS)], pa.binary()),
        "ids": lambda: pa.array([b"id %d" % i for i in range(ROWS)], pa.binary()),
        "images": lambda: pa.array([b"\xff" * 300 + b"%d" % i for i in range(ROWS)], pa.large_binary()),
    }[name]()


def collect(values: pa.Array, size: int, split: np.ndarray | None = None) -> dict[tuple[str, str], FeatureStatistics]:
    """In partitions of three batches."""
    batch = pa.RecordBatch.from_arrays([values], names=["x"])
    split = np.zeros(len(values), np.int32) if split is None else split
    parts = []
    for first in range(0, len(values), 3 * size):
        collector = Collector(["train", "eval"])
        for begin in range(first, min(first + 3 * size, len(values)), size):
            collector.look(batch.slice(begin, size), split[begin : begin + size])
        parts.append(from_bytes(to_bytes(collector.finish())))
    return add(parts)


@pytest.mark.parametrize("size", [ROWS, 8192, 501])
@pytest.mark.parametrize("name", ["float", "large", "int", "some", "lists", "nan"])
def test_numbers(name: str, size: int) -> None:
    values = column(name)
    found = collect(values, size)["train", "x"]
    flat = values.flatten() if name == "lists" else values.drop_null()
    plain = flat.to_numpy(zero_copy_only=False).astype(np.float64)
    real = plain[~np.isnan(plain)]
    assert (found.rows, found.values, found.nan) == (ROWS, len(plain), len(plain) - len(real))
    assert found.missing == (sum(i % 4 == 0 for i in range(ROWS)) if name == "lists" else values.null_count)
    assert found.zeros == np.count_nonzero(real == 0)
    assert (found.min, found.max) == (real.min(), real.max())
    assert found.mean == pytest.approx(real.mean(), rel=1e-12)
    assert found.deviation == pytest.approx(real.std(), rel=1e-9, abs=1e-12)
    assert (found.min_values, found.max_values) == ((1, 3) if name == "lists" else (1, 1))
    for rank in (0.1, 0.5, 0.9, 0.99):
        value = found.quantiles(np.array([rank]))[0]
        below, upto = np.mean(real < value), np.mean(real <= value)
        assert below - 0.02 <= rank <= upto + 0.02, (rank, below, upto)


@pytest.mark.parametrize("size", [ROWS, 8192, 501])
def test_frequent_and_distinct_values(size: int) -> None:
    few = collect(column("few"), size)["train", "x"]
    counts: dict[bytes, int] = {}
    for value in column("few").to_pylist():
        counts[value] = counts.get(value, 0) + 1
    assert few.distinct == len(counts) and few.text
    top = dict(zip(few.top_values.to_pylist(), few.top_counts.tolist(), strict=True))
    assert top == counts and list(top.values()) == sorted(counts.values(), reverse=True)
    ids = collect(column("ids"), size)["train", "x"]
    assert ids.distinct == pytest.approx(ROWS, rel=0.12)  # four deviations of the sketch
    assert ids.length_sum == sum(map(len, column("ids").to_pylist()))


def test_a_heavy_value_among_unique_ones_is_found() -> None:
    values = pa.array([b"heavy" if i % 3 == 0 else b"%d" % i for i in range(ROWS)], pa.binary())
    found = collect(values, 8192)["train", "x"]
    assert found.top_values[0].as_py() == b"heavy"
    assert found.top_counts[0] == pytest.approx(ROWS / 3, rel=0.1)


def test_long_bytes_are_no_categories() -> None:
    found = collect(column("images"), 8192)["train", "x"]
    assert not found.text and len(found.top_values) == 0 and found.length_min == 301


def test_each_split_has_its_own() -> None:
    values, split = column("int"), (np.arange(ROWS) % 5 == 0).astype(np.int32)
    found = collect(values, 8192, split)
    plain = values.to_numpy()
    for number, name in enumerate(("train", "eval")):
        assert found[name, "x"].rows == np.count_nonzero(split == number)
        assert found[name, "x"].mean == pytest.approx(plain[split == number].mean(), rel=1e-12)


def test_what_has_no_values() -> None:
    for values in (pa.nulls(5, pa.float32()), pa.array([[], None], pa.list_(pa.int64())), pa.array([], pa.binary())):
        found = collect(values, 2)
        proto = to_proto(found, {"train": len(values), "eval": 0})
        assert [dataset.num_examples for dataset in proto.datasets] == [len(values), 0]
        assert all(feature.missing == feature.rows for feature in found.values())


def test_infinite_values_have_no_histogram() -> None:
    found = collect(pa.array([1.0, float("inf"), -float("inf")], pa.float32()), 2)
    (feature,) = to_proto(found, {"train": 3}).datasets[0].features
    assert feature.num_stats.max == float("inf") and not feature.num_stats.histograms


def run(folder: Path, output: str, **more: Any) -> statistics_pb2.DatasetFeatureStatisticsList:
    overrides = [f"output.dir={output}", *(f"{key}={value}" for key, value in more.items())]
    result = build(load(str(folder / "c.yaml"), overrides))
    found = statistics_pb2.DatasetFeatureStatisticsList()
    found.ParseFromString((Path(result.path) / "stats.pb").read_bytes())
    return found


def test_a_version_has_them(tmp_path: Path) -> None:
    lines = [f"{i},{i % 7 / 2},{'Köln' if i % 3 else ''}" for i in range(3000)]
    (tmp_path / "rows.csv").write_text("id,half,city\n" + "\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "c.yaml").write_text(
        "name: t\nsource: {format: csv, files: rows.csv}\nsplits: {train: 0.75, eval: 0.25}\noutput: {dir: out}\n"
    )
    found = run(tmp_path, "one")
    assert [dataset.name for dataset in found.datasets] == ["train", "eval"]
    assert sum(dataset.num_examples for dataset in found.datasets) == 3000
    features = {feature.path.step[0]: feature for feature in found.datasets[0].features}
    assert features["half"].num_stats.max == 3.0 and features["half"].type == features["half"].FLOAT
    city = features["city"]
    assert city.string_stats.top_values[0].value == "Köln" and city.string_stats.unique == 1
    common = city.string_stats.common_stats
    assert common.num_missing + common.num_non_missing == found.datasets[0].num_examples and common.num_missing
    for histogram in features["id"].num_stats.histograms:
        total = sum(bucket.sample_count for bucket in histogram.buckets)
        assert total == pytest.approx(found.datasets[0].num_examples) and len(histogram.buckets) == 10
    assert run(tmp_path, "two", **{"runner.workers": 1, "output.shuffle": "rows"}) == found


def test_damage_is_seen(tmp_path: Path) -> None:
    from transforms.blockfile import Counts

    path = tmp_path / "x.blocks"
    with write_block_file(str(path)) as writer:
        writer.finish(Counts(), statistics=b"statistics")
    assert read_statistics(read_block_file(str(path))) == b"statistics"
    path.write_bytes(path.read_bytes().replace(b"statistics", b"statistixs", 1))
    with pytest.raises(CorruptError, match="x.blocks: its statistics are damaged"):
        read_statistics(read_block_file(str(path)))
