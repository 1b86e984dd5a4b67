"""Images: by their content, with what their folders say, made smaller or not, and the broken ones counted."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.init import write_config
from transforms.errors import BadRowsError, ConfigError, SourceError
from transforms.partition import BadRow
from transforms.sources import open_source


def image(
    seed: int, *, mode: str = "RGB", size: tuple[int, int] = (24, 16), format: str = "jpeg", **saved: Any
) -> bytes:
    """``size``: width and height."""
    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], channels), np.uint8)
    sink = io.BytesIO()
    Image.fromarray(pixels if channels > 1 else pixels[:, :, 0], mode).save(sink, format=format, **saved)
    return sink.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label in ("cat", "dog"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "data" / label / f"{i}.jpg").write_bytes(image(i, size=(20 + i, 10)))
    return tmp_path


def run(folder: Path, *settings: str, **config: Any) -> BuildResult:
    source = {"format": "images", "files": "data/*/*"} | config.pop("source", {})
    content = {"name": "d", "source": source, "output": {"dir": "out", "shuffle": "none"}} | config
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), list(settings)))


def examples(result: BuildResult) -> list[dict[str, Any]]:
    files = sorted(str(path) for path in Path(result.path).glob("*/*.tfrecord.gz"))
    found = []
    for record in tf.data.TFRecordDataset(files, compression_type="GZIP"):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        found.append({name: (f.bytes_list.value or f.int64_list.value)[0] for name, f in features.items()})
    return sorted(found, key=lambda row: (row["label"], row["file"]))


def read(*paths: Path, **options: Any) -> tuple[list[dict[str, Any]], list[BadRow]]:
    source, bad = open_source("images", options), list[BadRow]()
    rows = []
    for partition in source.partitions([str(path) for path in paths], target_bytes=1 << 20):
        for batch in source.read(partition, on_bad_row=bad.append):
            rows += batch.data.to_pylist()
    return rows, bad


def test_a_folder_for_each_class(folder: Path) -> None:
    rows = examples(run(folder))
    assert [(row["label"], row["file"]) for row in rows[4:6]] == [(b"cat", b"4.jpg"), (b"dog", b"0.jpg")]
    assert len(rows) == 10 and rows[3]["image"] == (folder / "data/cat/3.jpg").read_bytes()
    assert (rows[3]["height"], rows[3]["width"], rows[3]["format"]) == (10, 23, b"jpeg")
    assert tf.io.decode_jpeg(rows[3]["image"]).shape == (10, 23, 3)


def test_a_file_that_goes_to_another_class_is_built_again(folder: Path) -> None:
    run(folder)
    assert run(folder).up_to_date
    (folder / "data/cat/3.jpg").rename(folder / "data/dog/moved.jpg")
    rows = examples(run(folder))
    assert [row["label"] for row in rows].count(b"cat") == 4 and (rows[-1]["label"], rows[-1]["file"]) == (
        b"dog",
        b"moved.jpg",
    )


def test_the_content_says_what_it_is(tmp_path: Path) -> None:
    for name, format in {"a.jpg": "png", "b": "webp", "c.png": "gif", "d.txt": "bmp"}.items():
        (tmp_path / name).write_bytes(image(1, format=format))
    rows, bad = read(*sorted(tmp_path.iterdir()))
    assert [row["format"] for row in rows] == ["png", "webp", "gif", "bmp"] and not bad


def test_broken_images_are_bad_rows(folder: Path) -> None:
    whole = image(1, size=(200, 200))
    broken = {"cut.jpg": whole[:-2000], "text.jpg": b"<html>not found</html>", "empty.jpg": b"", "head.jpg": whole[:20]}
    for name, content in broken.items():
        (folder / "data/cat" / name).write_bytes(content)
    with pytest.raises(BadRowsError, match=r"cat/cut.jpg, row 1, column 'image': is no image that Pillow can read"):
        run(folder)
    result = run(folder, "max_bad_rows=4")
    assert len(examples(result)) == 10 and result.bad_rows == 4 and result.rows_read == 14


def test_a_bomb_is_a_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    (tmp_path / "a.png").write_bytes(image(1, size=(100, 100), format="png"))
    rows, bad = read(tmp_path / "a.png")
    assert not rows and "decompression bomb" in bad[0].reason


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "CMYK"])
@pytest.mark.parametrize("encode", ["jpeg", "png", "webp", None])
def test_made_smaller(tmp_path: Path, mode: str, encode: str | None) -> None:
    (tmp_path / "a").write_bytes(image(3, mode=mode, size=(90, 40), format="tiff"))
    options = {"resize": [16, 32]} | ({"encode": encode} if encode else {})
    (row,), bad = read(tmp_path / "a", **options)
    made = Image.open(io.BytesIO(row["image"]))
    assert not bad and (row["format"], made.size) == (encode or "png", (32, 16)) == (
        (made.format or "").lower(),
        (32, 16),
    )
    assert (row["height"], row["width"]) == (made.height, made.width) == (16, 32)
    assert ("A" in made.mode) == ("A" in mode and encode != "jpeg")


def test_a_photograph_is_turned_as_it_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    (tmp_path / "a").write_bytes(image(3, size=(90, 40), exif=exif))
    (row,), _ = read(tmp_path / "a", encode="webp", quality=50)
    assert (row["height"], row["width"]) == (90, 40)
    (row,), _ = read(tmp_path / "a")
    assert (row["height"], row["width"]) == (40, 90)  # of the bytes as they are


def test_sixteen_bits_are_not_cut_to_eight(tmp_path: Path) -> None:
    sink = io.BytesIO()
    Image.fromarray(np.full((4, 4), 60000, np.uint16)).save(sink, format="png")
    (tmp_path / "a").write_bytes(sink.getvalue())
    (row,), _ = read(tmp_path / "a")
    assert row["image"] == sink.getvalue()
    rows, bad = read(tmp_path / "a", encode="jpeg")
    assert not rows and "more than 8 bits" in bad[0].reason


@pytest.mark.parametrize("format", ["jpeg", "png", "gif", "webp", "tiff", "bmp"])
def test_damaged_images_give_a_row_or_a_bad_row(tmp_path: Path, format: str) -> None:
    rng, paths = random.Random(5), []
    for i in range(60):
        content = bytearray(image(i, format=format))
        for _ in range(rng.choice([1, 4])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        paths.append(tmp_path / f"{i:03}")
        paths[-1].write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
    rows, bad = read(*paths, resize=[8, 8])
    assert len(rows) + len(bad) == 60 and bad


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(image(1))
    source = open_source("images", {})
    (partition,) = source.partitions([str(tmp_path / "a")], target_bytes=1)
    (tmp_path / "a").write_bytes(image(2))
    with pytest.raises(SourceError, match="changed while it was read"):
        list(source.read(partition, on_bad_row=lambda bad: None))


def test_wrong_options(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"source.resize .*: must be height and width in pixels: \[224, 224\]"):
        run(folder, source={"resize": [224]})
    with pytest.raises(ConfigError, match="quality"):
        run(folder, source={"encode": "jpeg", "quality": 101})


def test_init_knows_images(folder: Path) -> None:
    found = write_config([str(folder / "data/*/*.jpg")], str(folder / "recordmill.yaml"))
    assert "format: images" in Path(found.config_path).read_text()
    preprocessing = Path(found.preprocessing_path).read_text()
    assert '"image": inputs["image"]' in preprocessing and 'vocabulary(inputs["image"]' not in preprocessing
