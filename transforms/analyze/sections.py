"""A file of named sections, each an Arrow IPC file: what a task accumulated.

Layout: the sections one after the other, each padded to 64 bytes; a JSON index ``{name: [offset, length]}``; the
index's length (uint64, little-endian); the magic ``RMSECT01``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

from transforms.errors import CorruptError
from transforms.files import OutputFile

MAGIC = b"RMSECT01"
_ALIGNMENT = 64


def write_sections(output: OutputFile, sections: Iterable[tuple[str, list[pa.RecordBatch]]]) -> None:
    """Writes each section's batches, which share a schema; a section has at least one batch."""
    index = {}
    for name, batches in sections:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        content = sink.getvalue()
        index[name] = [output.num_bytes, content.size]
        output.write(content)
        output.write(bytes(-content.size % _ALIGNMENT))
    text = json.dumps(index).encode()
    output.write(text + len(text).to_bytes(8, "little") + MAGIC)


class SectionFile:
    """Reads such a file through a memory map: only the pages that are used take memory."""

    def __init__(self, path: str) -> None:
        self._map = pa.memory_map(path)
        content = self._map.read_buffer()
        tail = bytes(content[-16:]) if content.size >= 16 else b""
        start = content.size - 16 - int.from_bytes(tail[:8], "little") if tail else -1
        if tail[8:] != MAGIC or start < 0:
            raise CorruptError(f"{path}: is not a whole file of accumulators; delete it and build again")
        self._content = content
        self._index: dict[str, list[int]] = json.loads(bytes(content[start:-16]))

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def open(self, name: str) -> pa.ipc.RecordBatchFileReader:
        """The section; its batches are views of the file."""
        offset, length = self._index[name]
        return pa.ipc.open_file(self._content.slice(offset, length))
