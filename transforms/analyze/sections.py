"""A file of named sections, each an Arrow IPC file: what a task accumulated.

Layout: the sections one after the other, each padded to 64 bytes; a JSON index ``{name: [offset, length, CRC-32C]}``;
the index's length (uint64, little-endian) and its CRC-32C (uint32, little-endian); the magic ``RMSECT01``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable

import pyarrow as pa

from transforms.errors import CorruptError
from transforms.files import OutputFile
from transforms.tfrecord import crc32c

MAGIC = b"RMSECT01"
_ALIGNMENT = 64
_TAIL = struct.Struct("<QI8s")


def write_sections(output: OutputFile, sections: Iterable[tuple[str, list[pa.RecordBatch]]]) -> None:
    """Writes each section's batches, which share a schema; a section has at least one batch."""
    index = {}
    for name, batches in sections:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        content = sink.getvalue()
        index[name] = [output.num_bytes, content.size, crc32c(content)]
        output.write(content)
        output.write(bytes(-content.size % _ALIGNMENT))
    text = json.dumps(index).encode()
    output.write(text + _TAIL.pack(len(text), crc32c(text), MAGIC))


class SectionFile:
    """Reads such a file through a memory map: only the pages that are used take memory.

    Raises CorruptError, which names the path, when the file is cut or its index changed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._map = pa.memory_map(path)
        content = self._map.read_buffer()
        tail = bytes(content[-_TAIL.size :]) if content.size >= _TAIL.size else bytes(_TAIL.size)
        length, checksum, magic = _TAIL.unpack(tail)
        start = content.size - _TAIL.size - length
        text = bytes(content[start : -_TAIL.size]) if magic == MAGIC and start >= 0 else b""
        if not text or crc32c(text) != checksum:
            raise CorruptError(f"{path}: is not a whole file of accumulators; it is made again")
        self._content = content
        self._index: dict[str, list[int]] = json.loads(text)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._index)

    def check(self) -> None:
        """Raises CorruptError when a section is not what was written."""
        for name, (offset, length, checksum) in self._index.items():
            if crc32c(self._content.slice(offset, length)) != checksum:
                raise CorruptError(f"{self.path}: the section {name!r} changed; the file is made again")

    def open(self, name: str) -> pa.ipc.RecordBatchFileReader:
        """The section; its batches are views of the file."""
        offset, length, _ = self._index[name]
        return pa.ipc.open_file(self._content.slice(offset, length))


class SectionFiles:
    """Several such files as one: what was accumulated over one partition, at different times."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name = {name: file for file in map(SectionFile, paths) for name in file.names}

    def open(self, name: str) -> pa.ipc.RecordBatchFileReader:
        return self._by_name[name].open(name)
