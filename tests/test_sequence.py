"""SequenceExamples from a source: what the schema puts into ``##SEQUENCE##`` becomes feature lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_build import run, source

from pipeline.inspect import inspect
from pipeline.verify import verify
from transforms.errors import BadRowsError, ConfigError, SchemaError
from transforms.schema import Schema

SCHEMA = """
feature { name: "query" type: BYTES presence { min_fraction: 1 } shape {} }
feature { name: "day" type: INT }
feature {
  name: "##SEQUENCE##" type: STRUCT
  struct_domain {
    feature { name: "clicks" type: INT }
    feature { name: "scores" type: FLOAT }
    feature { name: "words" type: BYTES }
  }
}
"""
ROWS: list[dict[str, Any]] = [
    {"query": "a", "day": 3, "clicks": [1, 2], "scores": [[0.5, 1.5], []], "words": [["x"], ["y", "z"]]},
    {"query": "b", "clicks": [], "scores": None, "words": [[], ["w"]]},
    {"query": "c", "day": 5, "clicks": [7], "scores": [[2]], "words": []},
]


def build(folder: Path, rows: list[dict[str, Any]], schema: str = SCHEMA, **config: Any) -> Any:
    source(folder, rows__jsonl="".join(json.dumps(row) + "\n" for row in rows))
    (folder / "schema.pbtxt").write_text(schema)
    options = {"source": {"format": "jsonl", "files": "data/*"}, "schema": "schema.pbtxt"}
    return run(folder, output={"dir": "out", "shuffle": "none"}, **(options | config))


def test_feature_lists_from_json_lines(tmp_path: Path) -> None:
    build(tmp_path, ROWS)
    found = inspect(str(tmp_path / "out"), rows=9).rows["all"]
    assert [row["query"] for row in found] == [b"a", b"b", b"c"]
    assert [row.get("clicks") for row in found] == [[[1], [2]], [], [[7]]]
    assert [row.get("scores") for row in found] == [[[0.5, 1.5], []], None, [[2.0]]]
    assert [row.get("words") for row in found] == [[[b"x"], [b"y", b"z"]], [[], [b"w"]], []]
    assert not verify(str(tmp_path / "out")).faults


def test_parquet_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("jsonl", "parquet"):
        (tmp_path / name).mkdir()
    build(tmp_path / "jsonl", ROWS)
    steps = pa.list_(pa.list_(pa.float64()))
    table = pa.table(
        {
            "words": pa.array([row["words"] for row in ROWS], pa.large_list(pa.list_(pa.string()))),
            "scores": pa.array([row["scores"] for row in ROWS], steps),
            "clicks": pa.array([row["clicks"] for row in ROWS], pa.list_(pa.int32())),
            "day": pa.array([row.get("day") for row in ROWS], pa.int16()),
            "query": [row["query"] for row in ROWS],
        }
    )
    folder = tmp_path / "parquet"
    (folder / "data").mkdir()
    pq.write_table(table, folder / "data" / "a.parquet")
    (folder / "schema.pbtxt").write_text(SCHEMA)
    options = {"source": {"format": "parquet", "files": "data/*"}, "schema": "schema.pbtxt"}
    run(folder, output={"dir": "out", "shuffle": "none"}, **options)
    shards = [next((tmp_path / name / "out").glob("versions/*/all/*")).read_bytes() for name in ("jsonl", "parquet")]
    assert shards[0] == shards[1]


@pytest.mark.slow
def test_tensorflow_parses_them(tmp_path: Path) -> None:
    import tensorflow as tf

    result = build(tmp_path, ROWS)
    (shard,) = map(str, Path(result.path, "all").iterdir())
    (first, *_) = tf.data.TFRecordDataset([shard], compression_type="GZIP")
    context, lists = tf.io.parse_single_sequence_example(
        first,
        context_features={"query": tf.io.FixedLenFeature([], tf.string)},
        sequence_features={
            "clicks": tf.io.FixedLenSequenceFeature([], tf.int64),
            "scores": tf.io.RaggedFeature(tf.float32),
        },
    )
    assert context["query"].numpy() == b"a"
    assert lists["clicks"].numpy().tolist() == [1, 2]
    assert lists["scores"].to_list() == [[0.5, 1.5], []]


def test_the_schema_comes_back_as_it_was(tmp_path: Path) -> None:
    schema = Schema.from_text(SCHEMA, path="s")
    assert schema.sequence == {"clicks", "scores", "words"}
    assert Schema.from_text(schema.to_text(), path="s") == schema


@pytest.mark.parametrize("value", [None, "x"])
def test_bad_values_in_steps_name_row_and_column(tmp_path: Path, value: Any) -> None:
    with pytest.raises(BadRowsError, match=r"rows\.jsonl, row 2, column 'scores'"):
        build(tmp_path, [ROWS[0], {"query": "q", "scores": [[1.0], [2.0, value]]}])


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="'clicks' of ##SEQUENCE## has a shape"):
        build(tmp_path, ROWS, SCHEMA.replace('"clicks" type: INT', '"clicks" type: INT value_count { min: 1 max: 1 }'))
    (tmp_path / "preprocessing.py").write_text("def preprocessing_fn(inputs):\n    return inputs\n")
    with pytest.raises(ConfigError, match="leave preprocess out"):
        build(tmp_path, ROWS, preprocess="preprocessing.py")
