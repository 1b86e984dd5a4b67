"""TFRecord files of any writer, outside of an output folder: counted, shown, and given blocks and an index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.compression import Compression, decompress_stream, sniff, walk
from transforms.errors import ConfigError, CorruptError
from transforms.example import decode
from transforms.files import committed
from transforms.tfrecord import Records, scan, scan_stream

BLOCK_BYTES = 1 << 20  # of records before compression, about


@dataclass(frozen=True)
class Counted:
    """``indexed``: the number stands in the file, and nothing was unpacked."""

    path: str
    num_records: int
    num_bytes: int
    indexed: bool


@dataclass(frozen=True)
class Reindexed:
    path: str
    num_records: int
    bytes_before: int
    bytes_now: int


def count(paths: Sequence[str]) -> list[Counted]:
    """How many records the files hold, several at a time.  Raises CorruptError where one is damaged."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_count, paths))


def records_of(path: str, *, first: int = 0) -> Iterator[Records]:
    """The records from ``first`` on, checked; in our own files without those before its block.

    Raises CorruptError where the file is damaged, ConfigError where it cannot be opened or has not so many records.
    """
    blocks = _blocks(path)
    with _opened(path) as stream:
        if blocks is None:
            seen = 0
            for records in scan_stream(decompress_stream(stream, name=path), name=path):
                if seen + len(records) > first:
                    yield _from(records, max(first - seen, 0))
                seen += len(records)
        else:
            seen = 0
            for block in blocks:
                if seen + block.num_records > first:
                    stream.seek(block.offset)
                    stored = stream.read(block.num_bytes)
                    raw = Compression("gzip").unpack(stored, raw_bytes=block.raw_bytes, name=path)
                    yield _from(scan(raw, name=path, first_record=seen), max(first - seen, 0))
                seen += block.num_records
    if first and first >= seen:
        raise ConfigError(f"{path}: has {seen} records, counted from 0, and no record {first}")


def decoded(path: str, *, first: int = 0, limit: int | None = None, sequence: bool = False) -> Iterator[dict[str, Any]]:
    """The records as {feature: list of values}, without features that are absent.

    Raises SchemaError where a record is no Example (``sequence``: SequenceExample).
    """
    left = limit
    for records in records_of(path, first=first):
        payloads = records.payloads()[:left]
        for row in decode(pa.array(payloads, pa.binary()), sequence=sequence).to_pylist():
            yield {name: values for name, values in row.items() if values is not None}
        if left is not None:
            left -= len(payloads)
            if not left:
                return


def reindex(path: str, *, level: int = 1) -> Reindexed:
    """Writes the file anew, as gzip in blocks with an index, in its own place and with the same records.

    The old file stays until the new one is on the disk.  Raises CorruptError where it is damaged.
    """
    compression = Compression("gzip", level=level)
    before, num_records = os.path.getsize(path), 0
    with committed(path) as output:
        for raw, records in _in_blocks(records_of(path)):
            output.write(compression.pack(raw, num_records=records).data)
            num_records += records
    return Reindexed(path, num_records, before, os.path.getsize(path))


def _count(path: str) -> Counted:
    blocks = _blocks(path)
    size = os.path.getsize(path)
    if blocks is not None:
        return Counted(path, sum(block.num_records for block in blocks), size, indexed=True)
    return Counted(path, sum(len(records) for records in records_of(path)), size, indexed=False)


def _blocks(path: str) -> list[Any] | None:
    """The index that our gzip files carry; None: the file has none."""
    with _opened(path) as stream:
        if sniff(stream.read(16)) != "gzip":
            return None
        stream.seek(0)
        try:
            return walk(stream, name=path)
        except CorruptError:  # another writer's, or damaged: reading it says so
            return None


def _opened(path: str) -> Any:
    try:
        return open(path, "rb")  # noqa: SIM115  # the caller closes it
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def _from(records: Records, first: int) -> Records:
    if not first:
        return records
    start = int(records.offsets[first])
    return Records(records.data[start:], records.offsets[first:] - start)


def _in_blocks(found: Iterator[Records]) -> Iterator[tuple[np.ndarray, int]]:
    """The same records, as many together as make about BLOCK_BYTES: their bytes, and how many they are."""
    parts, num_records, size = list[np.ndarray](), 0, 0
    for records in found:
        begin, offsets = 0, records.offsets
        while begin < len(records):
            end = int(np.searchsorted(offsets, offsets[begin] + BLOCK_BYTES - size))
            end = min(max(end, begin + 1), len(records))
            parts.append(records.data[offsets[begin] : offsets[end]])
            size, num_records, begin = size + len(parts[-1]), num_records + end - begin, end
            if size >= BLOCK_BYTES:
                yield np.concatenate(parts), num_records
                parts, num_records, size = [], 0, 0
    if parts:
        yield np.concatenate(parts), num_records
