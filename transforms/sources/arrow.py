"""Arrow IPC: files (Feather 2), cut between record batches, and streams, which are one slice."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from transforms.sources.slices import open_file
from transforms.sources.typed import Unit, UnitSource
from transforms.storage import arrow_input, is_remote

_MAGIC = b"ARROW1"


class ArrowSource(UnitSource):
    """See ``sources.Source``.  Whether a file is an IPC file or a stream is seen from its first bytes."""

    format = "Arrow IPC"

    def units(self, path: str) -> list[Unit]:
        with _stored(path) as stored:
            if not _is_file(path):
                with pa.ipc.open_stream(stored) as stream:
                    return [Unit(sum(batch.num_rows for batch in stream), stored.size())]
            with pa.ipc.open_file(stored) as file:
                batches = (file.get_batch(i) for i in range(file.num_record_batches))
                return [Unit(batch.num_rows, batch.get_total_buffer_size()) for batch in batches]

    def schema(self, path: str) -> pa.Schema:
        with _stored(path) as stored, _open(path, stored) as reader:
            return reader.schema

    def batches(self, path: str, start: int, end: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _stored(path) as stored, _open(path, stored) as reader:
            found = reader if not _is_file(path) else (reader.get_batch(i) for i in range(start, end))
            for batch in found:
                yield batch.select(columns)


def _stored(path: str) -> pa.NativeFile:
    return arrow_input(path) if is_remote(path) else pa.memory_map(path)


def _open(path: str, stored: pa.NativeFile) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    return pa.ipc.open_file(stored) if _is_file(path) else pa.ipc.open_stream(stored)


def _is_file(path: str) -> bool:
    with open_file(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC
