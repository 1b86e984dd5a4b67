"""Looks at data, and writes a config and a ``preprocessing.py`` that build as they stand."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.patterns import FilePattern, expand
from pipeline.starter import Column, config_text, preprocessing_text
from transforms.errors import BadRowsError, ConfigError, SourceError, shorten
from transforms.files import write_committed
from transforms.infer import Profile, merge, profile, to_schema
from transforms.partition import BadRow, Partition
from transforms.prepare import Preparer
from transforms.schema import Schema
from transforms.sources import Source, open_source
from transforms.sources.compressed import compression_of
from transforms.tfrecord import masked_crc32c

PARTITION_BYTES = 64 << 20
SAMPLE_ROWS = 100_000  # looked at to count different values
SAMPLE_BYTES = 256 << 20
HEAD_BYTES = 64 << 10
DELIMITERS = ",;\t|"
# What a file of the format begins with; an Arrow stream with a continuation mark.
MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"ORC": "orc",
    b"Obj\x01": "avro",
    b"\xff\xd8\xff": "images",  # JPEG
    b"\x89PNG\r\n": "images",
    b"GIF8": "images",
}


@dataclass(frozen=True)
class Initialized:
    """What was found and written."""

    config_path: str
    preprocessing_path: str
    files: tuple[str, ...]
    columns: tuple[Column, ...]


def write_config(patterns: Sequence[str], config_path: str, *, force: bool = False) -> Initialized:
    """Reads all rows behind the paths or patterns, and writes ``config_path`` and a ``preprocessing.py`` beside it.

    Raises ConfigError when a pattern matches nothing, the files are of different formats, or a file to be written is
    there already and not ``force``; SourceError and SchemaError when the data make no sense.
    """
    folder = os.path.dirname(config_path)
    preprocessing_path = os.path.join(folder, "preprocessing.py")
    there = [path for path in (config_path, preprocessing_path) if os.path.lexists(path)]
    if there and not force:
        raise ConfigError(f"{' and '.join(there)}: already there; choose another folder by -o, or say --force")
    found = [_expand(pattern) for pattern in patterns]
    files = tuple(dict.fromkeys(path for pattern in found for path in pattern.paths))
    format, options = _sniff_all(files)
    source = open_source(format, options)
    partitions = source.partitions(files, target_bytes=PARTITION_BYTES)
    schema = _infer(source, partitions)
    if not schema.features:
        raise SourceError(f"{files[0]}: no columns were found; see that the files are not empty")
    columns = _columns(schema, source, partitions)
    name = _name(files)
    preprocessing = preprocessing_text(name, columns)
    config = config_text(
        name=name,
        format=format,
        files=[_from(folder, text) for text in _shortened(found)],
        delimiter=options.get("delimiter", ","),
        preprocessing="preprocessing.py",
        columns=columns,
    )
    write_committed(preprocessing_path, preprocessing)
    write_committed(config_path, config)
    return Initialized(config_path, preprocessing_path, files, tuple(columns))


def _expand(pattern: str) -> FilePattern:
    try:
        return expand(pattern, folder=os.getcwd())
    except ValueError as error:
        raise ConfigError(f"{pattern}: {error}") from error


def _sniff_all(files: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The format of the files and its options, by their content."""
    first = _sniff(files[0])
    for path in files[1:]:
        if (other := _sniff(path)) != first:
            raise ConfigError(
                f"{files[0]} looks like {_described(*first)}, {path} like {_described(*other)}: one config reads files "
                "of one kind; run init for each kind"
            )
    return first


def _described(format: str, options: dict[str, Any]) -> str:
    return format + (f" with {options['delimiter']!r} between cells" if options else "")


def _sniff(path: str) -> tuple[str, dict[str, Any]]:
    head = _head(path)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for magic, format in MAGIC.items():
        if head.startswith(magic):
            return format, {}
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "images", {}
    if head[257:262] == b"ustar":
        return "webdataset", {}
    if len(head) >= 12 and int.from_bytes(head[8:12], "little") == masked_crc32c(head[:8]):
        return "tfrecord", {}
    if start.startswith(b"{"):
        return "jsonl", {}
    if start.startswith(b"["):
        raise ConfigError(f"{path}: looks like one JSON array; write one object a line, for example by jq -c '.[]'")
    if b"\0" in head:
        raise ConfigError(f"{path}: is of no format that can be read; it begins with {shorten(head[:16])}")
    line = start.splitlines()[0].decode("utf-8", "replace") if start else ""
    if re.fullmatch(r"[-+]?[\d.]+( qid:\d+)?( \d+:\S+)+( *#.*)?", line):
        return "libsvm", {}
    delimiter = max(DELIMITERS, key=line.count)  # the first of equals: the comma
    return "csv", {} if delimiter == "," else {"delimiter": delimiter}


def _head(path: str) -> bytes:
    """The first bytes of the content, unpacked if the file is packed."""
    packed = compression_of(path)
    try:
        with pa.OSFile(path) as file:
            return bytes((pa.CompressedInputStream(file, packed) if packed else file).read(HEAD_BYTES))
    except OSError as error:
        raise SourceError(f"{path}: the {packed} file cannot be unpacked: {error}") from error


def _infer(source: Source, partitions: Sequence[Partition]) -> Schema:
    bad_rows: list[BadRow] = []

    def look(partition: Partition) -> Profile:
        return profile(source.read(partition, on_bad_row=bad_rows.append))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        merged = merge(list(pool.map(look, partitions)))
    if bad_rows:
        raise BadRowsError(bad_rows)
    return to_schema(merged)


def _columns(schema: Schema, source: Source, partitions: Sequence[Partition]) -> list[Column]:
    sample = pa.Table.from_batches(_sample(schema, source, partitions), schema.arrow_schema())
    return [
        Column(
            name=feature.name,
            kind=feature.kind,
            is_list=feature.shape != (),
            is_nested=feature.ragged or feature.row_lengths_of is not None,
            required=feature.required,
            distinct=_count_distinct(sample[feature.name]),
            mean_bytes=sample[feature.name].nbytes / max(1, len(sample)),
        )
        for feature in schema.features
    ]


def _sample(schema: Schema, source: Source, partitions: Sequence[Partition]) -> Iterator[pa.RecordBatch]:
    """Feature batches of the first rows of the data."""
    preparer, rows, num_bytes = Preparer(schema), 0, 0
    for partition in partitions:
        for raw in source.read(partition, on_bad_row=lambda row: None):
            if rows >= SAMPLE_ROWS or num_bytes >= SAMPLE_BYTES:
                return
            rows += raw.data.num_rows
            num_bytes += raw.data.nbytes
            yield preparer.prepare(raw, on_bad_row=lambda row: None)[0]


def _count_distinct(column: pa.ChunkedArray) -> int:
    while pa.types.is_nested(column.type):
        column = pc.list_flatten(column)
    return int(pc.count_distinct(column).as_py())


def _name(files: Sequence[str]) -> str:
    """What the files' names have in common, as far as it can be part of a file name."""
    stems = [os.path.basename(path).split(".")[0] for path in files]
    common = re.sub(r"[^A-Za-z0-9_-]+", "_", os.path.commonprefix(stems))
    return re.sub(r"^[^A-Za-z0-9]+|([_-]+\d*)*[_-]*$", "", common) or "dataset"


def _shortened(found: Sequence[FilePattern]) -> list[str]:
    """The patterns, or the one pattern for all files when a shell wrote them out and it stands for nothing else."""
    texts = [pattern.text for pattern in found]
    if len(texts) < 2 or len({os.path.dirname(text) for text in texts}) > 1:
        return texts
    prefix = os.path.commonprefix(texts).rstrip("0123456789")  # a number is all of it or nothing
    suffix = os.path.commonprefix([text[len(prefix) :][::-1] for text in texts])[::-1].lstrip("0123456789")
    try:
        same = set(expand(f"{prefix}*{suffix}", folder=os.getcwd()).paths) == {p for f in found for p in f.paths}
    except ValueError:
        return texts
    return [f"{prefix}*{suffix}"] if same else texts


def _from(folder: str, text: str) -> str:
    """A path or pattern relative to the working folder, relative to the folder of the config."""
    return text if os.path.isabs(text) else os.path.relpath(text, folder or ".")
