"""Images that rows name: found, checked, given a form, and a part of what makes rows new."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
import yaml
from PIL import Image
from pyarrow import parquet

from pipeline.build import BuildResult, build
from pipeline.config import load
from transforms.errors import BadRowsError, ConfigError, SourceError
from transforms.partition import BadRow
from transforms.sources import open_source
from transforms.sources.loaded import Load, LoadedSource

ROWS = 12


def image(seed: int) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 9, 3), np.uint8)).save(sink, format="png")
    return sink.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """rows.csv names images/0.png and so on; row 3 names none."""
    (tmp_path / "data/images").mkdir(parents=True)
    for i in range(ROWS):
        (tmp_path / f"data/images/{i}.png").write_bytes(image(i))
    lines = [f"{i},{'' if i == 3 else f'images/{i}.png'}" for i in range(ROWS)]
    (tmp_path / "data/rows.csv").write_text("\n".join(["id,uri", *lines]) + "\n")
    return tmp_path


def run(folder: Path, *overrides: str, **source: Any) -> BuildResult:
    config = {
        "source": {"format": "csv", "files": "data/*.csv", "load": {"uri": "image"}, **source},
        "name": "pictures",
        "output": {"dir": str(folder / "out")},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return build(load(folder / "config.yaml", list(overrides)))


def examples(result: BuildResult) -> list[dict[str, Any]]:
    paths = [str(path) for path in sorted(Path(result.path).glob("*/*.tfrecord.gz"))]
    found = []
    for record in tf.data.TFRecordDataset(paths, "GZIP"):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        found.append({name: (f.bytes_list.value or f.int64_list.value or [None])[0] for name, f in features.items()})
    return sorted(found, key=lambda row: row["id"])


def test_rows_get_the_images_that_they_name(folder: Path) -> None:
    rows = examples(run(folder))
    assert [row["id"] for row in rows] == list(range(ROWS))
    assert [row.get("image") for row in rows] == [None if i == 3 else image(i) for i in range(ROWS)]


def test_they_get_the_form_that_is_asked_for(folder: Path) -> None:
    rows = examples(run(folder, resize=[4, 5], encode="jpeg"))
    assert tf.io.decode_jpeg(rows[0]["image"]).shape == (4, 5, 3)


def test_missing_and_broken_images_are_bad_rows(folder: Path) -> None:
    (folder / "data/images/1.png").unlink()
    (folder / "data/images/2.png").write_bytes(image(2)[:60])
    with pytest.raises(BadRowsError, match=r"rows.csv, row 2, column 'uri': names no file: 'images/1.png'"):
        run(folder)
    result = run(folder, "max_bad_rows=2")
    assert [row["id"] for row in examples(result)] == [0, *range(3, ROWS)] and result.bad_rows == 2
    bad = [json.loads(line) for path in Path(result.path).glob("bad_rows*/*") for line in path.read_text().splitlines()]
    assert [row["column"] for row in bad] == ["uri", "uri"] and "no image that Pillow can read" in bad[1]["reason"]


def test_an_image_that_changes_is_read_again_and_others_are_not(folder: Path) -> None:
    run(folder)
    assert run(folder).up_to_date
    (folder / "data/images/5.png").write_bytes(image(50))
    result = run(folder)
    assert not result.up_to_date and examples(result)[5]["image"] == image(50)


def test_an_image_that_changes_while_it_is_read_is_an_error(folder: Path) -> None:
    source = LoadedSource(open_source("csv", {}), Load({"uri": "image"}))
    (partition,) = source.partitions([str(folder / "data/rows.csv")], target_bytes=1 << 20)
    (folder / "data/images/5.png").write_bytes(image(50))
    with pytest.raises(SourceError, match="or an image that it names: the file changed while it was read"):
        list(source.read(partition, on_bad_row=lambda row: None))


def test_images_count_for_the_size_of_partitions(folder: Path) -> None:
    source = LoadedSource(open_source("csv", {}), Load({"uri": "image"}))
    lines = (folder / "data/rows.csv").read_text().splitlines()
    for i in range(4):
        (folder / f"data/{i}.csv").write_text("\n".join([lines[0], *lines[1 + 3 * i : 4 + 3 * i]]))
    paths = [str(folder / f"data/{i}.csv") for i in range(4)]
    assert len(source.partitions(paths, target_bytes=1000)) == 4
    (whole,) = source.partitions(paths, target_bytes=1 << 20)
    assert sum(piece.num_bytes for piece in whole.slices) > sum(len(image(i)) for i in range(ROWS) if i != 3)


def test_only_what_is_wanted_is_read(folder: Path) -> None:
    source = LoadedSource(open_source("csv", {}), Load({"uri": "image"}))
    (partition,) = source.partitions([str(folder / "data/rows.csv")], target_bytes=1 << 20)
    for path in (folder / "data/images").iterdir():
        path.unlink()
    batches = source.read(partition, columns=frozenset(["id"]), on_bad_row=lambda row: None)
    assert [row["id"] for batch in batches for row in batch.data.to_pylist()] == [str(i) for i in range(ROWS)]


def test_any_source_of_rows_and_addresses_of_all_kinds(tmp_path: Path) -> None:
    (tmp_path / "an image.png").write_bytes(image(1))
    uris = ["an image.png", str(tmp_path / "an image.png"), f"file://{tmp_path}/an%20image.png", "./x/../an image.png"]
    (tmp_path / "x").mkdir()
    parquet.write_table(pa.table({"uri": uris}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"uri": uri}) + "\n" for uri in uris))
    for format in ("parquet", "jsonl"):
        bad: list[BadRow] = []
        source = LoadedSource(open_source(format, {}), Load({"uri": "image"}))
        (partition,) = source.partitions([str(tmp_path / f"a.{format}")], target_bytes=1 << 20)
        rows = [row for batch in source.read(partition, on_bad_row=bad.append) for row in batch.data.to_pylist()]
        assert not bad and [row["image"] for row in rows] == [image(1)] * 4


def test_two_columns_of_images_and_bad_rows_of_the_file_itself(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(image(i))
    (tmp_path / "rows.csv").write_text("left,right\n0.png,1.png\n0.png\n2.png,9.png\n2.png,0.png\n")
    result = run(tmp_path, "max_bad_rows=2", files="rows.csv", load={"left": "left_image", "right": "right_image"})
    assert result.rows_read == 4 and result.bad_rows == 2


def test_what_is_refused(folder: Path) -> None:
    with pytest.raises(SourceError, match="rows.csv: has no column 'url', which source.load names"):
        run(folder, load={"url": "image"})
    (folder / "data/rows.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(SourceError, match="column 'id': holds int64; source.load takes the paths of images"):
        run(folder, format="jsonl", files="data/*.jsonl", load={"id": "image"})
    with pytest.raises(SourceError, match="has a column 'id' already; give the images another name in source.load"):
        run(folder, load={"uri": "id"})
    with pytest.raises(ConfigError, match="must be columns of paths, each with the name of the new column"):
        run(folder, load=["uri"])
    with pytest.raises(ConfigError, match="'uri'.*twice"):
        run(folder, load={"uri": "uri"})
    with pytest.raises(ConfigError, match=r"load.*: is for rows that name images, and images holds them"):
        run(folder, format="images", files="data/images/*.png")
    with pytest.raises(ConfigError, match=r"resize.*: is for images and columns of images \(source.load\)"):
        run(folder, load=None, resize=[2, 2])
