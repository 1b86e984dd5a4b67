"""Columns whose statistics mean nothing are named, and nothing else is printed of them."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from transforms.analyze.observe import Observer, warn_of_spoiled_columns

INF = float("inf")


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([[1.0, 2.0], [3.0]], None),
        ([[1.0, float("nan")], [None]], None),
        ([[], []], None),
        ([[float("nan"), None], [None]], "has no number in any of the 3 analyzed rows"),
        ([[1.0, INF], [-INF, 2.0, 3.0]], "has 2 infinite values in 5 analyzed rows"),
        ([[16777216.0], [16777300.0]], "has values from 16777216 to 16777300: its range needs more than float32"),
    ],
)
def test_spoiled_columns_are_named(
    partitions: list[list[float]], words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "recordmill")
    seen = []
    for values in partitions:
        observer = Observer(["x"])
        observer.add(pa.RecordBatch.from_pydict({"x": pa.array(values, pa.float32())}))
        seen += observer.batches()
    warn_of_spoiled_columns(seen)
    assert (words is None) == (not caplog.records)
    assert words is None or f"column 'x' {words}" in caplog.text


SPOILED = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
import numpy as np
import pyarrow as pa
import test_analyze_scale as scale

body = '''
    for name, value in dict(nan=x["a"] * float("nan"), inf=x["a"] + float("inf")).items():
        both = tf.stack([value, x["a"]], 1)
        for scaled in (tft.scale_to_z_score, tft.scale_to_0_1, tft.scale_to_gaussian):
            out[name + scaled.__name__] = scaled(value)
        for scaled in (tft.scale_to_z_score_per_key, tft.scale_to_0_1_per_key):
            out[name + scaled.__name__] = scaled(value, x["s"])
        out[name + "covariance"] = x["a"] + tf.reduce_sum(tft.covariance(both, tf.float32))
        out[name + "columns"] = tft.scale_to_0_1(both, elementwise=True)
        out[name + "bucket"] = tft.bucketize(value, 3)
'''
scale.run(Path({folder!r}), body, [[scale.rows(5), scale.rows(9)], [scale.rows(0)], [scale.rows(9)]])
"""


@pytest.mark.slow
def test_nothing_is_printed_of_nan_and_infinity(tmp_path: Path) -> None:
    """Neither by numpy, from within TFT's combiners, nor by TensorFlow."""
    path = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    code = SPOILED.format(path=path, folder=str(tmp_path))
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stderr == result.stdout == ""
