"""A model trained on the shards and served with their transform graph sees the same features, to the last bit."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pipeline.build import build
from pipeline.config import load
from pipeline.load import dataset, open_split

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "flights"
ROWS = 4096

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The flights, transformed and raw, with the rows of each split in the same order."""
    folder = tmp_path_factory.mktemp("outputs")
    config = (EXAMPLE / "flights.yaml").read_text(encoding="utf-8").replace("data/", f"{EXAMPLE}/data/")
    transformed = config.replace("preprocess: preprocessing.py", f"preprocess: {EXAMPLE}/preprocessing.py")
    raw = transformed.replace("preprocess:", "# preprocess:").replace("analyze:", "# analyze:")
    made = {}
    for name, text in (("transformed", transformed), ("raw", raw)):
        path = folder / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        loaded = load(str(path), [f"output.dir={folder}/{name}", "output.shuffle=none"])
        build(loaded)
        made[name] = loaded.output_dir
    return made


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flights_train", EXAMPLE / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def records(output: str, split: str) -> list[bytes]:
    opened = open_split(output, split)
    found = []
    for shard, block in opened.blocks():
        found += opened.read_block(shard, block).payloads()
    return found[:ROWS]


@pytest.fixture(scope="module")
def served(outputs: dict[str, str], example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import tensorflow as tf

    model = example.train(outputs["transformed"], epochs=1)
    path = str(tmp_path_factory.mktemp("served"))
    example.export(open_split(outputs["transformed"], "train").folder, model, path)
    return tf.saved_model.load(path), model


def test_there_is_no_skew_between_training_and_serving(outputs: dict[str, str], served: Any) -> None:
    import tensorflow as tf

    exported, model = served
    for split in ("train", "test"):
        raw = records(outputs["raw"], split)
        trained_on, _ = next(iter(dataset(open_split(outputs["transformed"], split), batch_size=ROWS, label="late")))
        seen = exported.signatures["features"](rows=tf.constant(raw))
        assert set(seen) == set(trained_on)
        for name, tensor in seen.items():
            there, here = tensor.numpy(), trained_on[name].numpy()
            assert there.dtype == here.dtype and there.tobytes() == here.tobytes(), name
        predicted = exported.signatures["serving_default"](rows=tf.constant(raw))["late"].numpy()
        np.testing.assert_allclose(predicted, model.predict(trained_on, batch_size=ROWS, verbose=0)[:, 0], rtol=1e-5)
        assert np.ptp(predicted) > 0.05  # it has learnt something


def test_the_label_is_not_needed_to_predict(outputs: dict[str, str], served: Any) -> None:
    """A flight that has not flown yet has no arr_delay."""
    import tensorflow as tf

    exported, _ = served
    rows = [tf.train.Example.FromString(row) for row in records(outputs["raw"], "test")[:10]]
    before = exported.signatures["serving_default"](rows=tf.constant([row.SerializeToString() for row in rows]))
    for row in rows:
        row.features.feature.pop("arr_delay", None)
    after = exported.signatures["serving_default"](rows=tf.constant([row.SerializeToString() for row in rows]))
    assert before["late"].numpy().tobytes() == after["late"].numpy().tobytes()
