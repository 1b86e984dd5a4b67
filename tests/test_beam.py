from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

from runners import direct
from transforms.assemble import ShardInfo
from transforms.beam import EncodedBlock, EncodeExamples, WriteToTFRecord
from transforms.compression import Compression
from transforms.errors import SchemaError
from transforms.example import decode
from transforms.tfrecord import scan


def batch_of(start: int, size: int) -> pa.RecordBatch:
    ids = range(start, start + size)
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "text": [f"row {i}" for i in ids]})


def write(
    elements: list[Any], prefix: Path, *, workers: int = 1, after: Callable[[Any], Any] | None = None, **options: Any
) -> None:
    pipeline = direct.pipeline(workers=workers, processes=False)
    source = pipeline | beam.Create(elements)
    if after is not None:
        source = source | beam.Map(after)
    _ = source | WriteToTFRecord(str(prefix), **options) | beam.Map(_is_shard_info)
    pipeline.run().wait_until_finish()


def _is_shard_info(element: Any) -> None:
    assert isinstance(element, ShardInfo)


def payloads(path: Path) -> list[bytes]:
    content = path.read_bytes()
    records = scan(gzip.decompress(content) if path.suffix == ".gz" else content, name=str(path))
    return [bytes(records.payload(i)) for i in range(len(records))]


def all_ids(folder: Path, pattern: str) -> list[int]:
    serialized = [payload for path in sorted(folder.glob(pattern)) for payload in payloads(path)]
    return [values[0] for values in decode(pa.array(serialized, pa.binary())).column("id").to_pylist()]


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_become_exactly_so_many_shards(tmp_path: Path, workers: int) -> None:
    write([batch_of(i * 100, 100) for i in range(10)], tmp_path / "d", num_shards=3, workers=workers)
    assert sorted(os.listdir(tmp_path)) == [f"d-0000{i}-of-00003.tfrecord.gz" for i in range(3)]
    assert sorted(all_ids(tmp_path, "d-*")) == list(range(1000))
    assert [len(payloads(path)) for path in sorted(tmp_path.iterdir())] == [333, 333, 334]


def test_bytes_are_records_as_they_are(tmp_path: Path) -> None:
    records = [b"", b"a", b"b" * 100_000]
    write(records, tmp_path / "d", num_shards=1, compression=Compression("none"))
    assert sorted(payloads(tmp_path / "d-00000-of-00001.tfrecord")) == sorted(records)


def test_a_cap_on_bytes_makes_the_number_of_shards(tmp_path: Path) -> None:
    write([os.urandom(1000) for _ in range(100)], tmp_path / "d", shard_bytes=30_000)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 4 and max(sizes) <= 30_000


def test_stale_shards_go_and_neighbours_stay(tmp_path: Path) -> None:
    write([batch_of(0, 40)], tmp_path / "train", num_shards=5)
    neighbours = ["train-extra-00000-of-00002.tfrecord.gz", "train-notes.txt", "train-00000-of-00005.tfrecord.gz.bak"]
    for name in neighbours:
        (tmp_path / name).touch()
    write([batch_of(100, 6)], tmp_path / "train", num_shards=2)
    new = ["train-00000-of-00002.tfrecord.gz", "train-00001-of-00002.tfrecord.gz"]
    assert sorted(os.listdir(tmp_path)) == sorted([*neighbours, *new])
    assert sorted(all_ids(tmp_path, "train-0000?-of-00002.tfrecord.gz")) == list(range(100, 106))
    write([], tmp_path / "train")
    assert sorted(os.listdir(tmp_path)) == sorted(neighbours)


def _fail_at_317(element: pa.RecordBatch) -> pa.RecordBatch:
    if 317 in element.column("id").to_pylist():
        raise RuntimeError("made-up quota error")
    return element


def test_a_failed_run_publishes_nothing_and_the_next_has_each_record_once(tmp_path: Path) -> None:
    batches = [batch_of(i * 10, 10) for i in range(50)]
    with pytest.raises(RuntimeError, match="made-up quota error"):
        write(batches, tmp_path / "d", num_shards=4, after=_fail_at_317)
    assert not list(tmp_path.glob("d-*"))
    write(batches, tmp_path / "d", num_shards=4)
    assert sorted(all_ids(tmp_path, "d-*")) == list(range(500))


def test_a_column_that_has_no_form_is_named(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(Exception, match="'m'") as caught:
        write([batch], tmp_path / "d")
    assert SchemaError.__name__ in str(caught.value) or isinstance(caught.value, SchemaError)


def test_other_elements_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="takes pyarrow.RecordBatch, tf.train.Example and bytes, not str"):
        write(["text"], tmp_path / "d")


@pytest.mark.parametrize("options", [{"num_shards": 0}, {"shard_bytes": 0}])
def test_wrong_options_are_refused_at_once(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} is 0; give"):
        WriteToTFRecord("x", **options)


def test_encoded_blocks_are_tfrecord_files(tmp_path: Path) -> None:
    def store(block: EncodedBlock) -> None:
        (tmp_path / f"{block.num_records}-{len(block.data)}.gz").write_bytes(block.data)

    pipeline = direct.pipeline(workers=1, processes=False)
    batches = [batch_of(i * 10_000, 10_000) for i in range(5)]
    _ = pipeline | beam.Create(batches) | EncodeExamples() | beam.Map(store)
    pipeline.run().wait_until_finish()
    assert len(list(tmp_path.iterdir())) > 1
    assert sorted(all_ids(tmp_path, "*")) == list(range(50_000))
    for path in tmp_path.iterdir():
        assert int(path.name.partition("-")[0]) == len(payloads(path))


@pytest.mark.slow
def test_example_messages_are_records(tmp_path: Path) -> None:
    import tensorflow as tf

    examples = [
        tf.train.Example(
            features=tf.train.Features(feature={"id": tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))})
        )
        for i in range(20)
    ]
    write(examples, tmp_path / "d", num_shards=2)
    found = [e.numpy() for e in tf.data.TFRecordDataset(sorted(map(str, tmp_path.iterdir())), compression_type="GZIP")]
    assert sorted(found) == sorted(example.SerializeToString(deterministic=True) for example in examples)
