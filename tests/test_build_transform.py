"""The main job with a preprocessing_fn: TensorFlow is at work here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_build import cpu_seconds, rows, run, shards, source

from pipeline import plan
from pipeline.inspect import inspect
from pipeline.layout import Layout
from pipeline.verify import verify
from transforms.errors import ConfigError, SchemaError

FLIGHTS = Path(__file__).parent.parent / "examples" / "flights"
HEAD = """import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    out = {"id": tf.identity(inputs["id"])}
"""


def preprocessing(folder: Path, *lines: str) -> None:
    body = "".join(f"    {line}\n" for line in (*lines, "return out"))
    (folder / "preprocessing.py").write_text(HEAD + body)


def column(folder: Path, name: str, split: str = "all") -> list[Any]:
    return [row.get(name) for row in sorted(rows(folder, split), key=lambda row: row["id"])]


def test_flights_build_and_read_back_with_plain_tensorflow(tmp_path: Path) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from pipeline.build import build
    from pipeline.config import load

    result = build(
        load(
            str(FLIGHTS / "flights.yaml"),
            [f"output.dir={tmp_path / 'out'}", "output.shard_size=null", "output.shards=2"],
        )
    )
    assert result.rows_read == sum(split.rows for split in result.splits.values()) > 100_000
    assert not verify(str(tmp_path / "out")).faults
    output = tft.TFTransformOutput(result.path)
    spec = output.transformed_feature_spec()
    counted = 0
    for split in ("train", "eval", "test"):
        files = sorted(str(p) for p in Path(result.path, split).iterdir())
        assert len(files) == 2
        dataset = tf.data.TFRecordDataset(files, compression_type="GZIP").batch(4096)
        for batch in dataset.map(lambda x: tf.io.parse_example(x, spec)):
            counted += len(batch["late"])
            assert set(batch) == set(spec)
            assert 0 <= int(tf.reduce_min(batch["late"])) <= int(tf.reduce_max(batch["late"])) <= 1
            assert not bool(tf.reduce_any(tf.math.is_nan(batch["distance_z"])))
    assert counted == result.rows_read
    assert output.vocabulary_size_by_name("origin") == 3


def test_statistics_follow_the_content_not_the_name(tmp_path: Path) -> None:
    """Same path, size and time, other content (analyzer cache keyed by name)."""
    preprocessing(
        tmp_path,
        'out["x01"] = tft.scale_to_0_1(inputs["x"])',
        'out["w"] = tft.compute_and_apply_vocabulary(inputs["word"], vocab_filename="w")',
    )
    contents = {
        "run1": ("id,x,word\n1,10,ant\n2,20,bee\n3,30,ant\n", [0.0, 0.5, 1.0], [0, 1, 0]),
        "run2": ("id,x,word\n1,40,cow\n2,50,dog\n3,90,cow\n", [0.0, 0.2, 1.0], [0, 1, 0]),
    }
    for name in ("run1", "run2", "run1"):
        content, scaled, words = contents[name]
        source(tmp_path, a__csv=content)
        os.utime(tmp_path / "data" / "a.csv", (1_700_000_000, 1_700_000_000))
        run(tmp_path, preprocess="preprocessing.py")
        assert column(tmp_path, "x01") == pytest.approx(scaled)
        assert column(tmp_path, "w") == words


def test_edits_of_the_code_are_followed(tmp_path: Path) -> None:
    source(tmp_path, data__csv="id,x\n0,2.0\n1,4.0\n2,10.0\n")
    scaled = 'out["x01"] = tft.scale_to_0_1(inputs["x"])'
    double = 'out["double_x"] = inputs["x"] * 2.0'
    tenfold = 'out["x01"] = tft.scale_to_0_1(inputs["x"]) * 10.0'
    versions = {
        "v1": ([scaled], [0.0, 0.25, 1.0]),
        "v2": ([scaled, double], [0.0, 0.25, 1.0]),
        "v3": ([tenfold, double], [0.0, 2.5, 10.0]),
        "v4": (["# a comment, no change", tenfold, double], [0.0, 2.5, 10.0]),
    }
    for name, is_known in (("v1", False), ("v2", False), ("v3", False), ("v4", True), ("v1", True)):
        lines, expected = versions[name]
        preprocessing(tmp_path, *lines)
        result = run(tmp_path, preprocess="preprocessing.py")
        assert result.up_to_date == is_known  # what was built before is not built again
        assert column(tmp_path, "x01") == pytest.approx(expected)
        assert column(tmp_path, "double_x") == ([None] * 3 if name == "v1" else [4.0, 8.0, 20.0])


def test_analyzers_see_the_train_split_alone(tmp_path: Path) -> None:
    preprocessing(
        tmp_path,
        'out["x"] = tf.cast(inputs["x"], tf.float32)',
        'out["top"] = out["x"] * 0.0 + tf.cast(tft.max(inputs["x"]), tf.float32)',
    )
    source(tmp_path, a__csv="id,x\n" + "".join(f"{i},{i * 3}\n" for i in range(200)))
    splits = {"train": 0.5, "eval": 0.5}
    run(tmp_path, splits=splits, preprocess="preprocessing.py")
    train, evaluated = column(tmp_path, "x", "train"), column(tmp_path, "x", "eval")
    assert set(column(tmp_path, "top", "train") + column(tmp_path, "top", "eval")) == {max(train)}
    run(tmp_path, splits=splits, preprocess="preprocessing.py", analyze="all")
    assert set(column(tmp_path, "top", "train")) == {max(train + evaluated)}


def test_scaling_of_difficult_columns(tmp_path: Path) -> None:
    """NaN, missing, constant, large offsets, and nothing at all."""
    nan, steps = float("nan"), [0, 2, 4, 6, 2, 4]
    (tmp_path / "data").mkdir()
    columns = {
        "id": pa.array(range(6), pa.int64()),
        "x": pa.array([1.0, 2.0, 3.0, 4.0, nan, None], pa.float32()),
        "const": pa.array([5.0] * 6, pa.float32()),
        "offset": pa.array([100000.0 + v for v in steps], pa.float32()),
        "offset_hard": pa.array([16777216.0 + v for v in steps], pa.float32()),
        "void": pa.array([None] * 6, pa.float32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "data" / "num.parquet")
    preprocessing(
        tmp_path, *(f'out["{name}"] = tft.scale_to_z_score(inputs["{name}"])' for name in columns if name != "id")
    )
    result = run(tmp_path, source={"format": "parquet", "files": "data/*"}, preprocess="preprocessing.py")
    z = [(v - 3) / (11 / 3) ** 0.5 for v in steps]
    assert column(tmp_path, "x")[:4] == pytest.approx([-1.34164, -0.44721, 0.44721, 1.34164], abs=1e-3)
    assert column(tmp_path, "const") == [0.0] * 6
    assert column(tmp_path, "offset") == pytest.approx(z, abs=1e-3)
    if column(tmp_path, "offset_hard") != pytest.approx(z, abs=1e-3):
        assert any("offset_hard" in warning and "float32" in warning for warning in result.warnings)
    assert column(tmp_path, "void") == [None] * 6 or column(tmp_path, "void") == [[]] * 6
    assert any("'void'" in warning for warning in result.warnings)


def test_bytes_do_not_depend_on_workers_with_a_transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 2000)
    built = []
    for name, workers in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        source(folder, a__csv="id,x,w\n" + "".join(f"{i},{i * 0.37},w{i % 13}\n" for i in range(1000)))
        preprocessing(
            folder,
            'out["x"] = tft.scale_to_z_score(inputs["x"])',
            'out["w"] = tft.compute_and_apply_vocabulary(inputs["w"])',
            'out["b"] = tft.bucketize(inputs["x"], 5)',
        )
        run(folder, f"runner.workers={workers}", splits={"train": 0.7, "eval": 0.3}, preprocess="preprocessing.py")
        built.append(shards(folder))
    assert built[0] == built[1] and len(built[0]) == 4


def test_an_error_in_the_code_names_it(tmp_path: Path) -> None:
    source(tmp_path, a__csv="id,x\n1,2\n")
    preprocessing(tmp_path, 'out["y"] = inputs["nope"]')
    with pytest.raises(Exception, match=r"preprocessing\.py.*nope") as caught:
        run(tmp_path, preprocess="preprocessing.py")
    assert len(str(caught.value)) < 1500


def test_outputs_keep_the_rows(tmp_path: Path) -> None:
    source(tmp_path, a__csv="id,x\n1,2\n3,4\n5,6\n")
    (tmp_path / "preprocessing.py").write_text(HEAD.partition("    out")[0] + '    return {"x": inputs["x"][:2]}\n')
    with pytest.raises(SchemaError, match=r"a\.csv.*preprocessing_fn made 2 rows of 3"):
        run(tmp_path, preprocess="preprocessing.py")


@pytest.mark.slow
def test_the_published_graph_is_what_was_applied(tmp_path: Path) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    source(tmp_path, a__csv="id,x\n0,2.0\n1,4.0\n2,10.0\n")
    preprocessing(tmp_path, 'out["x"] = tft.scale_to_z_score(inputs["x"])')
    result = run(tmp_path, preprocess="preprocessing.py")
    layer = tft.TFTransformOutput(result.path).transform_features_layer()
    again = layer({"id": tf.constant([0, 1, 2], tf.int64), "x": tf.constant([2.0, 4.0, 10.0])})
    assert again["x"].numpy().tolist() == column(tmp_path, "x")
    manifest = json.loads(Path(Layout(str(tmp_path / "out")).manifest_path(result.version)).read_text())
    assert {"tensorflow", "tensorflow-transform"} <= set(manifest["software"])
    assert inspect(str(tmp_path / "out")).manifest.transform_digest


@pytest.mark.slow
def test_a_tiny_build_with_a_transform_takes_less_than_fifteen_seconds(tmp_path: Path) -> None:
    source(tmp_path, a__csv="id,x,w\n" + "".join(f"{i},{i * 0.37},w{i % 13}\n" for i in range(100)))
    preprocessing(
        tmp_path,
        'out["x"] = tft.scale_to_z_score(inputs["x"])',
        'out["w"] = tft.compute_and_apply_vocabulary(inputs["w"])',
    )
    run(tmp_path, preprocess="preprocessing.py")
    source(tmp_path, a__csv="id,x,w\n" + "".join(f"{i},{i * 0.73},w{i % 11}\n" for i in range(100)))
    assert min(cpu_seconds("build", str(tmp_path / "config.yaml"), "--set", f"output.seed={i}") for i in range(2)) < 15


@pytest.mark.slow
def test_without_preprocessing_tensorflow_is_not_imported(tmp_path: Path) -> None:
    source(tmp_path, a__csv="id,x\n0,2.0\n")
    run(tmp_path)
    script = (
        "import sys; from pipeline.build import build; from pipeline.config import load;"
        f"build(load({str(tmp_path / 'config.yaml')!r}, ['output.seed=5']));"
        "assert 'tensorflow' not in sys.modules, 'tensorflow was imported'"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
def test_both_engines_give_the_same_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source(tmp_path, a__csv="id,x,w\n" + "".join(f"{i},{i * 0.37},w{i % 13}\n" for i in range(300)))
    preprocessing(
        tmp_path,
        'out["x"] = tft.scale_to_z_score(inputs["x"])',
        'out["w"] = tft.compute_and_apply_vocabulary(inputs["w"])',
    )
    found = []
    with caplog.at_level("INFO", logger="recordmill"):
        for engine in ("columnar", "stock"):
            run(tmp_path, preprocess="preprocessing.py", analysis=engine)
            found.append(shards(tmp_path))
    assert found[0] == found[1]
    assert [m for m in caplog.messages if m.startswith("analysis: 2 analyzers in 1 passes over 1 partitions")]


@pytest.mark.slow
def test_what_only_stock_can_analyze_falls_back_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source(tmp_path, a__csv="id,x\n" + "".join(f"{i},{i * 2}\n" for i in range(50)))
    (tmp_path / "preprocessing.py").write_text(
        "import apache_beam as beam\n"
        "import numpy as np\n"
        "import tensorflow as tf\n"
        "import tensorflow_transform as tft\n\n\n"
        "class Largest(beam.PTransform):\n"
        "    def expand(self, inputs):\n"
        "        values, _ = inputs if isinstance(inputs, tuple) else (inputs, None)\n"
        "        return values | beam.Map(lambda arrays: np.int64(np.max(arrays[0]))) | beam.CombineGlobally(max)\n\n\n"
        "def preprocessing_fn(inputs):\n"
        "    top = tft.experimental.ptransform_analyzer([inputs['x']], Largest(), [tf.int64], [[]])[0]\n"
        "    return {'id': inputs['id'], 'top': tf.zeros_like(inputs['x']) + top}\n"
    )
    with caplog.at_level("INFO", logger="recordmill"):
        run(tmp_path, preprocess="preprocessing.py")
    assert set(column(tmp_path, "top")) == {98}
    assert [m for m in caplog.messages if "by stock TensorFlow Transform" in m]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ('out["z"] = inputs["id"][:1]', "'z' has 1 rows where 'id' has 2"),
        ("out['z'] = tf.constant(1.0)", "returns one value as 'z'"),
    ],
)
def test_outputs_without_a_value_for_each_row_are_named(tmp_path: Path, output: str, message: str) -> None:
    source(tmp_path, a__csv="id,x\n1,2\n2,3\n")
    preprocessing(tmp_path, output)
    with pytest.raises((SchemaError, ConfigError), match=message):
        run(tmp_path, preprocess="preprocessing.py")


def test_no_rows_can_be_transformed_when_allowed(tmp_path: Path) -> None:
    source(tmp_path, a__csv="")
    (tmp_path / "s.pbtxt").write_text(
        'feature { name: "id" type: INT presence { min_fraction: 1 } shape {} }\n'
        'feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape {} }\n'
    )
    preprocessing(tmp_path, 'out["x"] = tft.scale_to_z_score(inputs["x"])')
    result = run(tmp_path, schema="s.pbtxt", preprocess="preprocessing.py", allow_empty=True)
    assert result.splits["all"].rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_all_flights_of_the_year(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, str(FLIGHTS / "make_data.py"), "--months", "1-12", "--format", kind]
    subprocess.run([*command, "--out", str(tmp_path / "data")], check=True, capture_output=True)
    shutil.copy(FLIGHTS / "preprocessing.py", tmp_path)
    result = run(
        tmp_path,
        "runner.workers=2",
        source={"format": kind, "files": "data/*"},
        splits={"train": 0.8, "eval": 0.1, "test": 0.1},
        split_by=["tailnum"],
        preprocess="preprocessing.py",
    )
    assert result.rows_read == sum(split.rows for split in result.splits.values()) == 336_776
    assert 0.75 < result.splits["train"].rows / 336_776 < 0.85
    assert not verify(str(tmp_path / "out")).faults
