"""Every loader gives back what was built, each record once, and refuses what is not whole."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import yaml
from pyarrow import parquet

from pipeline.build import build
from pipeline.config import load
from pipeline.load import Ragged, Records, Split, arrays, batches, dataset, open_split
from transforms.errors import ConfigError, CorruptError

ROWS = 1000


def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "x": pa.array([i / 8 for i in range(ROWS)], pa.float32()),
            "vector": pa.array([[i, i + 1, i + 2] for i in range(ROWS)], pa.list_(pa.float32(), 3)),
            "text": [f"text {i}" for i in range(ROWS)],
            "some": pa.array([[i] * (i % 3) for i in range(ROWS)], pa.list_(pa.int64())),
            "maybe": pa.array([None if i % 4 == 0 else i for i in range(ROWS)], pa.int64()),
        }
    )


def made(folder: Path, **output: Any) -> str:
    parquet.write_table(table(), folder / "data.parquet", row_group_size=100)
    config = {
        "name": "d",
        "source": {"format": "parquet", "files": "data.parquet"},
        "splits": {"train": 0.9, "eval": 0.1},
        "output": {"dir": "out", "shards": {"train": 4, "eval": 1}} | output,
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    build(load(str(folder / "c.yaml")))
    return str(folder / "out")


@pytest.fixture(scope="module", params=[{}, {"compression": "zlib"}, {"compression": "none"}], ids=str)
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("load"), **request.param)


@pytest.fixture
def train(out: str) -> Split:
    return open_split(out, "train")


def ids(found: Any) -> list[int]:
    return [int(i) for batch in found for i in np.asarray(batch["id"]).reshape(-1)]


def test_all_see_the_same_records(train: Split) -> None:
    expected = sorted(ids(arrays(train, batch_size=64)))
    assert len(expected) == train.num_records and len(set(expected)) == len(expected) < ROWS
    assert sorted(ids(dataset(train, batch_size=64))) == expected
    assert sorted(record["id"][0] for record in Records(train)) == expected
    assert sorted(i for batch in batches(train) for i in batch.column("id").flatten().to_pylist()) == expected


def test_arrays_have_the_shapes_and_values(train: Split) -> None:
    for batch in arrays(train, batch_size=100):
        i = batch["id"]
        assert isinstance(i, np.ndarray) and i.dtype == np.int64 and i.shape == (len(i),)
        np.testing.assert_array_equal(batch["x"], (i / 8).astype(np.float32))
        np.testing.assert_array_equal(batch["vector"], np.stack([i, i + 1, i + 2], 1).astype(np.float32))
        assert list(batch["text"]) == [b"text %d" % value for value in i]
        some, maybe = batch["some"], batch["maybe"]
        assert isinstance(some, Ragged) and isinstance(maybe, Ragged)
        np.testing.assert_array_equal(np.diff(some.offsets), i % 3)
        np.testing.assert_array_equal(some.values, np.repeat(i, i % 3))
        np.testing.assert_array_equal(maybe.values, i[i % 4 != 0])


def test_tensors_have_the_shapes_and_values(train: Split) -> None:
    for batch in dataset(train, batch_size=100):
        i = batch["id"].numpy()
        np.testing.assert_array_equal(batch["vector"], np.stack([i, i + 1, i + 2], 1).astype(np.float32))
        np.testing.assert_array_equal(batch["some"].values, np.repeat(i, i % 3))
        np.testing.assert_array_equal(batch["maybe"].values, i[i % 4 != 0])


def test_a_label_and_only_some_features(out: str) -> None:
    found = open_split(out, "train", features=["id", "x"])
    features, label = next(iter(dataset(found, batch_size=10, label="x")))
    assert list(features) == ["id"] and label.shape == (10,)
    assert next(batches(found)).schema.names == ["id", "x"]
    assert sorted(Records(found)[0]) == ["id", "x"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("shuffle", [False, True])
def test_readers_share_the_records_among_them(train: Split, count: int, shuffle: bool) -> None:
    expected = Counter(ids(arrays(train, batch_size=64)))
    tensors, numpy = Counter[int](), Counter[int]()
    for index in range(count):
        tensors.update(ids(dataset(train, batch_size=32, shard=(index, count), shuffle=100 * shuffle)))
        numpy.update(ids(arrays(train, batch_size=32, shard=(index, count), shuffle=shuffle)))
    assert tensors == numpy == expected


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_a_dataset_knows_how_many_batches_it_has(train: Split, count: int, drop_remainder: bool) -> None:
    for index in range(count):
        found = dataset(train, batch_size=64, shard=(index, count), drop_remainder=drop_remainder)
        assert int(found.cardinality()) == sum(1 for _ in found) > 0
    assert int(dataset(train, batch_size=64, repeat=True).cardinality()) == tf.data.INFINITE_CARDINALITY


def test_shuffling_is_what_the_seed_says(train: Split) -> None:
    for read in (
        lambda seed: ids(arrays(train, batch_size=64, shuffle=True, seed=seed)),
        lambda seed: ids(dataset(train, batch_size=64, shuffle=500, seed=seed)),
    ):
        assert read(1) == read(1) != read(2)
        assert sorted(read(1)) == sorted(read(2))
    again = dataset(train, batch_size=64, shuffle=500, seed=1)
    assert ids(again) != ids(again)  # each epoch has another order


def test_batches_of_a_size_and_without_an_end(train: Split) -> None:
    sizes = [batch.num_rows for batch in batches(train, batch_size=64)]
    assert set(sizes[:-1]) == {64} and sum(sizes) == train.num_records
    assert {len(batch["id"]) for batch in dataset(train, batch_size=64, drop_remainder=True)} == {64}
    assert len(ids(dataset(train, batch_size=100, repeat=True).take(30))) == 3000


def test_an_iterator_goes_on_where_it_was_saved(train: Split, tmp_path: Path) -> None:
    iterator = iter(dataset(train, batch_size=50, shuffle=200, seed=3))
    for _ in range(5):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    rest = ids(iterator)
    other = iter(dataset(train, batch_size=50, shuffle=200, seed=3))
    tf.train.Checkpoint(iterator=other).restore(saved)
    assert ids(other) == rest and rest


def test_records_by_number(train: Split) -> None:
    records = Records(train, cached_blocks=2)
    assert len(records) == train.num_records
    assert records[-1]["id"] == records[len(records) - 1]["id"]
    with pytest.raises(IndexError, match=f"record {len(records)} of {len(records)}"):
        records[len(records)]
    raw = Records(train, raw=True)
    assert tf.train.Example.FromString(raw[7]).features.feature["id"].int64_list.value[0] == records[7]["id"][0]
    sent = pickle.loads(pickle.dumps(records))
    assert repr(sent) == repr(records) and [r["id"] for r in sent] == [r["id"] for r in records]
    assert "maybe" not in next(record for record in records if record["id"][0] % 4 == 0)


def test_grain_reads_records(train: Split) -> None:
    grain = pytest.importorskip("grain")
    loaded = grain.MapDataset.source(Records(train)).shuffle(seed=1).map(lambda record: int(record["id"][0]))
    assert sorted(loaded) == sorted(ids(arrays(train, batch_size=64)))


def test_torch_reads_batches(train: Split) -> None:
    torch = pytest.importorskip("torch")
    from pipeline.load.torch import TorchDataset

    found = TorchDataset(train, batch_size=32, shuffle=True)
    for workers in (0, 2, 3):
        loaded = torch.utils.data.DataLoader(found, batch_size=None, num_workers=workers)
        got = list(loaded)
        assert sorted(ids(got)) == sorted(ids(arrays(train, batch_size=64)))
        assert got[0]["vector"].shape[1:] == (3,) and got[0]["some"][1].dtype == torch.int64
    first = ids(found)
    found.set_epoch(1)
    assert ids(found) != first


def test_steps_of_sequence_examples(tmp_path: Path) -> None:
    steps = [[[1, 2], [], [3]], [], [[4]]]
    parquet.write_table(pa.table({"id": [0, 1, 2], "clicks": steps}), tmp_path / "data.parquet")
    (tmp_path / "schema.pbtxt").write_text(
        'feature { name: "id" type: INT presence { min_fraction: 1 } shape {} }'
        'feature { name: "##SEQUENCE##" type: STRUCT struct_domain { feature { name: "clicks" type: INT } } }'
    )
    config = {
        "name": "d",
        "source": {"format": "parquet", "files": "data.parquet"},
        "schema": "schema.pbtxt",
        "output": {"dir": "out", "shuffle": "none"},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    build(load(str(tmp_path / "c.yaml")))
    split = open_split(str(tmp_path / "out"), "all")
    (batch,) = dataset(split, batch_size=3)
    assert batch["id"].numpy().tolist() == [0, 1, 2] and batch["clicks"].to_list() == steps
    (numpy,) = arrays(split, batch_size=3)
    clicks = numpy["clicks"]
    assert isinstance(clicks, Ragged) and isinstance(clicks.values, Ragged)
    assert clicks.offsets.tolist() == [0, 3, 3, 4] and clicks.values.offsets.tolist() == [0, 2, 2, 3, 4]
    assert clicks.values.values.tolist() == [1, 2, 3, 4]
    assert next(batches(open_split(str(tmp_path / "out"), "all", features=["clicks"]))).schema.names == ["clicks"]


def test_what_is_refused(tmp_path: Path) -> None:
    out = made(tmp_path)
    with pytest.raises(ConfigError, match="has no split 'test'; it has eval, train"):
        open_split(out, "test")
    with pytest.raises(ConfigError, match="has no feature 'y'; it has id, "):
        open_split(out, "train", features=["y"])
    with pytest.raises(ConfigError, match="has no version 'v'"):
        open_split(out, "train", version="v")
    split = open_split(out, "train")
    with pytest.raises(ConfigError, match=r"shard=\(2, 2\): must be"):
        dataset(split, batch_size=1, shard=(2, 2))
    with pytest.raises(ConfigError, match="label 'y': there is no such feature"):
        dataset(split, batch_size=1, label="y")
    path = Path(split.path(split.shards[0]))
    content = bytearray(path.read_bytes())
    content[60] ^= 255
    path.write_bytes(content)
    with pytest.raises(CorruptError, match=path.name):
        list(batches(split))
    path.write_bytes(content[:-1])
    with pytest.raises(CorruptError, match=r"has \d+ bytes, and was published with \d+"):
        open_split(out, "train")
    path.unlink()
    with pytest.raises(CorruptError, match=r"is missing; `recordmill repair"):
        open_split(out, "train")
