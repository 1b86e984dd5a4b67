"""How fast each source reads, as a ratio to the library that it reads with, alone, on the same file in the same run.

    python -m benchmarks.sources

``--json FILE`` writes the figures too.  One thread, but two for images, which both sides decode; all rows are read, and
the sources check the hash of what they read.  Medians of ``--repeats`` pairs.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import csv, feather, orc, parquet
from pyarrow import json as pyarrow_json

from benchmarks.data import clicks
from transforms.sources import Source, open_source

PARTITION_BYTES = 64 << 20
IMAGE_SIZE = (500, 375)


class Reader(NamedTuple):
    """``write(rows, path)`` makes the file or folder; ``alone(paths)`` reads all with the library named."""

    library: str
    write: Callable[[pa.Table, Path], object]
    alone: Callable[[list[str]], int]


def _csv_alone(paths: list[str]) -> int:
    names = csv.open_csv(paths[0]).schema.names
    texts = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    options = csv.ReadOptions(use_threads=False)
    return sum(batch.num_rows for batch in csv.open_csv(paths[0], read_options=options, convert_options=texts))


def _jsonl_alone(paths: list[str]) -> int:
    options = pyarrow_json.ReadOptions(use_threads=False)
    return sum(batch.num_rows for batch in pyarrow_json.open_json(paths[0], read_options=options))


def _parquet_alone(paths: list[str]) -> int:
    return sum(batch.num_rows for batch in parquet.ParquetFile(paths[0]).iter_batches(use_threads=False))


def _arrow_alone(paths: list[str]) -> int:
    with pa.OSFile(paths[0]) as file, pa.ipc.open_file(file) as reader:
        return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))


def _orc_alone(paths: list[str]) -> int:
    file = orc.ORCFile(paths[0])
    return sum(file.read_stripe(i).num_rows for i in range(file.nstripes))


def _avro_alone(paths: list[str]) -> int:
    with open(paths[0], "rb") as stream:
        return sum(1 for _ in fastavro.reader(stream))


def _images_alone(paths: list[str]) -> int:
    def decode(path: str) -> int:
        with open(path, "rb") as stream:
            Image.open(io.BytesIO(stream.read())).load()
        return 1

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(decode, paths))


def _write_jsonl(rows: pa.Table, path: Path) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows.to_pylist())


def _write_avro(rows: pa.Table, path: Path) -> None:
    kinds = {pa.int64(): "long", pa.float64(): "double", pa.float32(): "float", pa.string(): "string"}
    fields = [{"name": field.name, "type": ["null", kinds[field.type]]} for field in rows.schema]
    with open(path, "wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "row", "fields": fields}, rows.to_pylist())


def _write_images(rows: pa.Table, folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(max(4, len(rows) // 500)):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        coarse.resize(IMAGE_SIZE, Image.Resampling.BICUBIC).save(folder / f"{i:05}.jpg", quality=90)


READERS = {
    "csv": Reader("pyarrow.csv, cells as text", csv.write_csv, _csv_alone),
    "jsonl": Reader("pyarrow.json", _write_jsonl, _jsonl_alone),
    "parquet": Reader("pyarrow.parquet", parquet.write_table, _parquet_alone),
    "arrow": Reader("pyarrow.ipc", lambda rows, path: feather.write_feather(rows, str(path)), _arrow_alone),
    "orc": Reader("pyarrow.orc", orc.write_table, _orc_alone),
    "avro": Reader("fastavro, rows as dicts", _write_avro, _avro_alone),
    "images": Reader("Pillow, 2 threads", _write_images, _images_alone),
}


def measure_all(rows: int, repeats: int, folder: Path) -> Iterator[dict[str, Any]]:
    table = pa.Table.from_batches([clicks(rows)])
    for format, reader in READERS.items():
        path = folder / f"data.{format}"
        reader.write(table, path)
        paths = sorted(str(p) for p in path.iterdir()) if path.is_dir() else [str(path)]
        source, num_bytes = open_source(format, {}), sum(os.path.getsize(p) for p in paths)
        partitions = source.partitions(paths, target_bytes=PARTITION_BYTES)

        def read(source: Source = source, partitions: Any = partitions) -> int:
            return sum(batch.data.num_rows for p in partitions for batch in source.read(p, on_bad_row=_unexpected))

        seconds: dict[str, list[float]] = {"alone": [], "source": []}
        counts = {reader.alone(paths), read()}
        for _ in range(repeats):
            for name, work in (("alone", lambda: reader.alone(paths)), ("source", read)):  # noqa: B023
                begin = time.perf_counter()
                counts.add(work())
                seconds[name].append(time.perf_counter() - begin)
        if len(counts) != 1:
            raise SystemExit(f"{format}: the readers do not find the same rows: {counts}")
        ratios = [a / s for a, s in zip(seconds["alone"], seconds["source"], strict=True)]
        yield {
            "format": format,
            "library": reader.library,
            "mb_per_second": num_bytes / 1e6 / statistics.median(seconds["source"]),
            "ratio": statistics.median(ratios),
        }


def _unexpected(bad: object) -> None:
    raise SystemExit(f"a bad row in good data: {bad}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    figures = []
    print("| format | library alone | MB/s of the source | source : library |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for found in measure_all(options.rows, options.repeats, Path(folder)):
            figures.append(found)
            print("| {format} | {library} | {mb_per_second:,.0f} | {ratio:.2f} |".format(**found), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps({"sources": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
