"""TFRecord framing: records as one array of bytes, checked, framed and moved without a loop in Python.

A record is its payload's length (uint64, little-endian), the masked CRC-32C of these 8 bytes (uint32, little-endian),
the payload, and the masked CRC-32C of the payload.  Masked: rotated right by 15 bits, plus 0xa282ead8.
Source: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.errors import CorruptError, SchemaError, shorten
from transforms.native import Int64, Pointer, UInt32, kernel

FRAME_BYTES = 16  # that a record takes besides its payload
HEADER_BYTES = 12

_crc32c = kernel("crc32c_of", [Pointer, Int64], UInt32)
_crc32c_join = kernel("crc32c_join", [UInt32, UInt32, Int64], UInt32)
_frame = kernel("tfrecord_frame", [Pointer, Pointer, Int64, Pointer, Pointer])
_count = kernel("tfrecord_count", [Pointer, Int64], Int64)
_scan = kernel("tfrecord_scan", [Pointer, Int64, Pointer, Pointer], Int64)
_gathered_size = kernel("tfrecord_gathered_size", [Pointer, Pointer, Pointer, Int64], Int64)
_gather = kernel("tfrecord_gather", [Pointer, Pointer, Pointer, Pointer, Int64, Pointer])

_CUT_IN_HEADER, _WRONG_LENGTH, _CUT_IN_DATA, _WRONG_DATA = 1, 2, 3, 4


@dataclass(frozen=True)
class Records:
    """Framed records, one after the other.

    ``data``: their bytes (uint8, contiguous).  ``offsets``: where each begins, and the end (int64, n + 1; the first is
    0, the last ``len(data)``).
    """

    data: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def payload(self, index: int) -> memoryview:
        """The serialized bytes of one record, without its frame (a view).  ``index`` counts from 0."""
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        begin, end = int(self.offsets[index]), int(self.offsets[index + 1])
        return self.data.data[begin + HEADER_BYTES : end - (FRAME_BYTES - HEADER_BYTES)]

    def payloads(self) -> list[bytes]:
        """The serialized bytes of all records (copies), for readers that take no views."""
        data, offsets = self.data.data, self.offsets.tolist()
        return [
            bytes(data[begin + HEADER_BYTES : end - (FRAME_BYTES - HEADER_BYTES)])
            for begin, end in itertools.pairwise(offsets)
        ]


def as_bytes(data: Any) -> np.ndarray:
    """Any bytes-like object (bytes, memoryview, array, Arrow buffer) as a uint8 array that shares its memory."""
    return np.frombuffer(data, dtype=np.uint8)


def crc32c(data: Any) -> int:
    """The CRC-32C (Castagnoli, RFC 3720, not masked) of a bytes-like object.  Holds no GIL."""
    view = as_bytes(data)
    return int(_crc32c(view.ctypes.data, view.nbytes))


def masked_crc32c(data: Any) -> int:
    """The CRC-32C as TFRecord files hold it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c_join(first: int, second: int, second_bytes: int) -> int:
    """The CRC-32C of A followed by B, from the CRC-32C of each and the size of B."""
    return int(_crc32c_join(first, second, second_bytes))


def frame(payload_data: Any, payload_offsets: np.ndarray) -> Records:
    """Records of serialized bytes that stand one after the other: payload i is ``data[offsets[i]:offsets[i + 1]]``.

    ``payload_data`` is bytes-like, ``payload_offsets`` holds n + 1 ascending integers.
    """
    data = as_bytes(payload_data)
    ends = np.ascontiguousarray(payload_offsets, dtype=np.int64)
    if not (len(ends) and ends[0] >= 0 and (np.diff(ends) >= 0).all() and ends[-1] <= data.nbytes):
        raise ValueError(f"payload_offsets must ascend from 0 or more to at most {data.nbytes}, the size of the data")
    n = len(ends) - 1
    out = np.empty(int(ends[-1] - ends[0]) + FRAME_BYTES * n, dtype=np.uint8)
    offsets = np.empty(n + 1, dtype=np.int64)
    _frame(data.ctypes.data, ends.ctypes.data, n, out.ctypes.data, offsets.ctypes.data)
    return Records(out, offsets)


def frame_array(serialized: pa.Array) -> Records:
    """Records of an Arrow array of (large) binary, one a value.  Raises SchemaError at a null, which is no record."""
    if serialized.null_count:
        row = serialized.is_null().index(True).as_py()
        raise SchemaError(f"row {row} of the serialized records is null; drop such rows, or give them bytes")
    array = serialized.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1] if offsets else [0]
    return frame(data if data is not None else b"", np.asarray(ends))


def scan(buffer: Any, *, name: str, first_record: int = 0) -> Records:
    """The records in a bytes-like object (a view of it), all lengths and checksums of which are right.

    ``name`` is the file that errors name; ``first_record`` is the number of the buffer's first record in it.  Raises
    CorruptError with the record's number (from 0), the offset in the buffer, and what is wrong there.
    """
    data = as_bytes(buffer)
    offsets, fault = _scan_whole(data)
    if fault:
        end, whole = int(offsets[-1]), len(offsets) - 1
        raise CorruptError(f"{name}: {_explain(fault, data[end:], end, first_record + whole)}")
    return Records(data, offsets)


def scan_stream(chunks: Iterable[bytes], *, name: str) -> Iterator[Records]:
    """The records of a stream that comes in chunks, which may end anywhere; checked as by ``scan``.

    Holds a chunk, and a record, in memory.  Raises CorruptError with the record's number and its offset in the stream,
    after the whole records before it were handed on.
    """
    parts: list[bytes] = []
    held = wanted = offset = num_records = 0
    for chunk in chunks:
        parts.append(chunk)
        held += len(chunk)
        if held < wanted:
            continue
        data = as_bytes(b"".join(parts))
        offsets, fault = _scan_whole(data)
        end, whole = int(offsets[-1]), len(offsets) - 1
        if whole:
            yield Records(data[:end], offsets)
        if fault in (_WRONG_LENGTH, _WRONG_DATA):
            raise CorruptError(f"{name}: {_explain(fault, data[end:], offset + end, num_records + whole)}")
        rest = data[end:].tobytes()
        parts, held, offset, num_records = [rest], len(rest), offset + end, num_records + whole
        wanted = FRAME_BYTES + int.from_bytes(rest[:8], "little") if fault == _CUT_IN_DATA else HEADER_BYTES
    if held:
        rest = b"".join(parts)
        _, fault = _scan_whole(as_bytes(rest))
        raise CorruptError(f"{name}: {_explain(fault, as_bytes(rest), offset, num_records)}")


def _scan_whole(data: np.ndarray) -> tuple[np.ndarray, int]:
    """The offsets of the whole and right records at the beginning of the data, and the fault that stands after them."""
    address, size = data.ctypes.data, data.nbytes
    offsets = np.empty(_count(address, size) + 1, dtype=np.int64)
    fault = np.zeros(1, dtype=np.int32)
    n = _scan(address, size, offsets.ctypes.data, fault.ctypes.data)
    return offsets[: n + 1], int(fault[0])


def _explain(fault: int, rest: np.ndarray, offset: int, record: int) -> str:
    """``rest``: the bytes from the record with the fault on."""
    where = f"record {record} (from 0), at byte {offset}"
    if fault == _WRONG_LENGTH and record == 0:
        return _explain_start(bytes(rest[:HEADER_BYTES]))
    if fault == _WRONG_LENGTH:
        return f"the length of {where}, is damaged, so the records after it are lost too; write or copy the file again"
    if fault == _WRONG_DATA:
        return f"checksum wrong in {where}: its data changed; write the file again"
    if fault == _CUT_IN_DATA:
        length = int.from_bytes(bytes(rest[:8]), "little")
        there = f"{len(rest)} of its {length + FRAME_BYTES} bytes are there"
    elif record == 0:
        return f"not a TFRecord file, or cut short: all it holds are {len(rest)} bytes: {shorten(bytes(rest))}"
    else:
        there = f"{len(rest)} of the {HEADER_BYTES} bytes of its header are there"
    return f"cut short after {record} whole records: of {where}, {there}; write or copy the file again"


def _explain_start(start: bytes) -> str:
    if start[:2] == b"\x1f\x8b":
        return 'not TFRecord bytes, but it looks gzip-compressed; read it as GZIP (TFRecordDataset(…, "GZIP"))'
    if start[0] & 15 == 8 and int.from_bytes(start[:2], "big") % 31 == 0:
        return 'not TFRecord bytes, but it looks zlib-compressed; read it as ZLIB (TFRecordDataset(…, "ZLIB"))'
    return f"not a TFRecord file, or the length of record 0 is damaged; it begins with {shorten(start)}"


def gather(
    parts: Sequence[Records], part_index: np.ndarray, row_index: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """The framed bytes of chosen records, in the given order, one after the other (uint8).

    Record i is number ``row_index[i]`` (int64) of ``parts[part_index[i]]`` (int32).  Uses ``out`` (uint8) when it is
    large enough, and then returns a view of its beginning.
    """
    part, row = np.ascontiguousarray(part_index, np.int32), np.ascontiguousarray(row_index, np.int64)
    _check_indices(parts, part, row)
    data = np.array([p.data.ctypes.data for p in parts], dtype=np.uintp)
    starts = [np.ascontiguousarray(p.offsets, np.int64) for p in parts]
    offsets = np.array([s.ctypes.data for s in starts], dtype=np.uintp)
    chosen = (part.ctypes.data, row.ctypes.data, len(part))
    size = _gathered_size(offsets.ctypes.data, *chosen)
    if out is None or out.nbytes < size:
        out = np.empty(size, dtype=np.uint8)
    _gather(data.ctypes.data, offsets.ctypes.data, *chosen, out.ctypes.data)
    return out[:size]


def _check_indices(parts: Sequence[Records], part: np.ndarray, row: np.ndarray) -> None:
    """The kernel follows the indices wherever they point."""
    if len(part) != len(row):
        raise ValueError(f"part_index has {len(part)} entries, row_index has {len(row)}")
    if not len(part):
        return
    if part.min() < 0 or part.max() >= len(parts):
        raise IndexError(f"part_index must be between 0 and {len(parts) - 1}")
    sizes = np.array([len(p) for p in parts], dtype=np.int64)
    if row.min() < 0 or (row >= sizes[part]).any():
        raise IndexError("row_index points behind the last record of its part")
