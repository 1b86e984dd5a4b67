"""What ``recordmill advise`` finds on data with known mistakes, and what ``--apply`` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pipeline import advise as advising
from pipeline.advise import advise
from pipeline.build import build
from pipeline.cli import app
from pipeline.config import Config, load
from pipeline.values import processors

ROWS = 20_000


def config_of(folder: Path, columns: dict[str, Any], *overrides: str, more: str = "") -> Config:
    pq.write_table(pa.table(columns), folder / "t.parquet")
    path = folder / "c.yaml"
    path.write_text(
        "name: t  # of the test\nsource: {format: parquet, files: t.parquet}\n"
        f"output:\n  dir: out\n  level: 1  # fast\n{more}"
    )
    return load(str(path), overrides)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def numbers(rows: int = ROWS) -> np.ndarray:
    return rng().integers(0, 1000, rows)


def texts(config: Config, hosts: int | None = None) -> list[str]:
    return [found.text for found in advise(config, hosts=hosts).advice]


def the(found: list[str], start: str) -> str:
    (text,) = [text for text in found if text.startswith(start)]
    return text


def test_columns_that_cost_more_than_they_must(tmp_path: Path) -> None:
    words = np.array([f"word{n}" for n in range(5000)])
    found = texts(
        config_of(
            tmp_path,
            {
                "good": numbers(),
                "constant": ["the same"] * ROWS,
                "digits": [str(n) for n in rng().integers(10**8, 10**9, ROWS)],
                "code": [f"{n:05d}" for n in numbers()],
                "id": [f"{n:016x}" for n in rng().integers(0, 1 << 62, ROWS)],
                "word": words[rng().integers(0, len(words), ROWS)],
            }
            | {f"a_very_long_name_of_a_feature_{i:02d}": numbers() % 2 * 1.0 for i in range(20)},
        )
    )
    assert "has one value in all 20,000 rows" in the(found, "`constant`")
    assert the(found, "`digits`").startswith("`digits` holds numbers as text: as int64 it would take ")
    assert "is different in nearly every row" in the(found, "`id`")
    assert "vocabulary" in the(found, "`word`")
    assert "have long names (`a_very_long_name_of_a_feature_00`)" in the(found, "20 features")
    assert "columns of the source are float64" in the(found, "20 columns")
    assert not [text for text in found if text.startswith(("`good`", "`code`"))]


def test_what_is_saved_is_what_a_build_without_the_column_saves(tmp_path: Path) -> None:
    columns = {"x": numbers(), "id": [f"{n:016x}" for n in rng().integers(0, 1 << 62, ROWS)]}
    config = config_of(tmp_path, columns)
    told = next(found for found in advise(config).advice if found.text.startswith("`id`"))
    with_id = build(config).num_bytes
    (tmp_path / "without").mkdir()
    without = build(config_of(tmp_path / "without", {"x": columns["x"]})).num_bytes
    assert told.weight == pytest.approx(1 - without / with_id, abs=0.02)


def test_raw_pixels_are_found(tmp_path: Path) -> None:
    images = pa.FixedSizeListArray.from_arrays(pa.array(rng().integers(0, 256, 300 * 768)), 768)
    found = texts(config_of(tmp_path, {"image": images, "label": numbers(300)}))
    assert the(found, "`image`").startswith("`image` looks like pixels (768 numbers from 0 to 255 in a row)")
    embeddings = pa.FixedSizeListArray.from_arrays(pa.array(rng().integers(-300, 300, 300 * 768)), 768)
    assert not [text for text in texts(config_of(tmp_path, {"image": embeddings})) if "pixels" in text]


def test_good_data_gets_no_advice(tmp_path: Path) -> None:
    columns = {"a": numbers().astype(np.int64), "b": rng().random(ROWS).astype(np.float32)}
    assert texts(config_of(tmp_path, columns, f"runner.workers={processors()}")) == []


def test_level_9_is_slow(tmp_path: Path) -> None:
    columns = {f"c{i}": np.random.default_rng(i).integers(0, 10**5, ROWS) for i in range(6)}
    first = texts(config_of(tmp_path, columns, "output.level=9"))[0]
    assert first.startswith("output.level: ") and " instead of gzip, level 9: " in first and "faster" in first


@pytest.mark.skipif(processors() < 2, reason="there is one processor")
def test_one_worker_is_few(tmp_path: Path) -> None:
    found = the(texts(config_of(tmp_path, {"a": numbers()}, "runner.workers=1")), "runner.workers")
    assert f"this machine has {processors()} processors" in found


def test_one_giant_compressed_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    monkeypatch.setattr(advising, "PARTITION_BYTES", 1 << 10)
    with gzip.open(tmp_path / "t.csv.gz", "wt") as stream:
        stream.write("a\n" + "\n".join(map(str, numbers())))
    path = tmp_path / "c.yaml"
    path.write_text("name: t\nsource: {format: csv, files: t.csv.gz}\noutput: {dir: out}\nrunner: {workers: 2}\n")
    assert "is 100% of the source and compressed, so one worker reads it alone" in the(
        texts(load(str(path))), "t.csv.gz"
    )


COSTLY = """
import tensorflow as tf

def preprocessing_fn(inputs):
    x = tf.cast(inputs["a"], tf.float32)[:, tf.newaxis] * tf.ones([1, 3000])
    for _ in range(12):
        x = tf.math.sin(x) + tf.math.cos(x)
    return {"a": inputs["a"], "b": inputs["a"] + 1, "c": inputs["a"] + 2, "costly": tf.reduce_sum(x, axis=1)}
"""


@pytest.mark.parametrize("is_built", [False, True])
def test_a_costly_feature_is_named(tmp_path: Path, is_built: bool) -> None:
    (tmp_path / "preprocessing.py").write_text(COSTLY)
    config = config_of(tmp_path, {"a": numbers()}, more="preprocess: preprocessing.py\nanalyze: all\n")
    if is_built:
        build(config)
    found = advise(config)
    assert max(found.seconds, key=lambda name: found.seconds[name]) == "costly"
    assert "of what the transform graph's 4 features take alone" in the([a.text for a in found.advice], "`costly`")


ANALYZERS = """
import tensorflow_transform as tft

def preprocessing_fn(inputs):
    cheap = {name: tft.scale_to_0_1(inputs[name]) for name in ("a", "b")}
    return cheap | {"words": tft.compute_and_apply_vocabulary(inputs["words"])}
"""


def test_each_analyzer_is_measured(tmp_path: Path) -> None:
    (tmp_path / "preprocessing.py").write_text(ANALYZERS)
    words = [f"word {n}" for n in rng().integers(0, 1 << 30, ROWS)]
    columns = {"a": numbers(), "b": numbers(), "words": words}
    found = advise(config_of(tmp_path, columns, more="preprocess: preprocessing.py\nanalyze: all\n"))
    assert {"graph", "scale_to_0_1#min_and_max", "compute_and_apply_vocabulary#vocabulary"} <= set(
        found.analyzer_seconds
    )
    assert set(found.bytes) == {"a", "b", "words"}
    told = CliRunner().invoke(app, ["advise", str(tmp_path / "c.yaml")]).output
    assert "analysis: " in told and "compute_and_apply_vocabulary#vocabulary" in told


def test_an_analyzer_that_takes_most_of_the_analysis_is_named() -> None:
    (advice,) = advising._analyzers({"graph": 1.0, "tfidf#vocabulary": 9.0, "scale_to_0_1#min_and_max": 0.1})
    assert advice.text.startswith("the analyzer `tfidf#vocabulary` takes 89% of the analysis")
    assert not list(advising._analyzers({"graph": 9.0, "a": 1.0, "b": 1.0}))


def test_shards_for_hosts(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"a": numbers()})
    assert "output.shards: {all: 4} for 4 hosts" in the(texts(config, 4), "output.shards")
    assert not [text for text in texts(load(config.path, ["output.shards=8"]), 4) if text.startswith("output.shards")]
    assert not [text for text in texts(config) if text.startswith("output.shards")]


def test_apply_writes_the_config_and_keeps_its_comments(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"a": numbers()}, more="  shard_size: 1MiB\nrunner: {workers: 1}\n")
    result = CliRunner().invoke(app, ["advise", config.path, "--hosts", "3", "--apply"])
    assert result.exit_code == 0, result.output
    text = Path(config.path).read_text()
    assert "# of the test" in text and "# fast" in text and "shard_size" not in text
    after = load(config.path)
    assert after.output.num_shards("all") == 3 and after.runner.workers == processors()
    assert "written to" in result.output and "output.shards: {'all': 3}" in result.output
    again = CliRunner().invoke(app, ["advise", config.path, "--hosts", "3", "--apply", "--json"])
    assert json.loads(again.stdout)["written"] == []


def test_json_has_what_the_tables_show(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"a": numbers(), "b": numbers()})
    found = json.loads(CliRunner().invoke(app, ["advise", config.path, "--json"]).stdout)
    assert found["rows"] == ROWS and found["now"] == "gzip, level 1"
    assert [codec["name"] for codec in found["codecs"]] == [f"gzip, level {n}" for n in (1, 3, 6, 9)]
    assert all(codec["write"] > 0 and codec["read"] > 0 for codec in found["codecs"])
    assert set(found["bytes"]) == {"a", "b"}


def test_an_empty_source_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["advise", config_of(tmp_path, {"a": pa.array([], pa.int64())}).path])
    assert result.exit_code == 1 and "has no rows to measure on" in result.output
