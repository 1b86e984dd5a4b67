from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.errors import CorruptError, SchemaError
from transforms.native import Int64, Pointer, UInt32, kernel
from transforms.tfrecord import FRAME_BYTES, Records, crc32c, crc32c_join, frame, frame_array, gather, scan, scan_stream

_by_table = kernel("crc32c_by_table", [Pointer, Int64], UInt32)


def crc32c_bit_by_bit(data: bytes) -> int:
    """From the definition: the polynomial 0x1EDC6F41, reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def framed(payload: bytes) -> bytes:
    """From the definition of the format."""

    def masked(data: bytes) -> bytes:
        crc = crc32c_bit_by_bit(data)
        return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")

    length = len(payload).to_bytes(8, "little")
    return length + masked(length) + payload + masked(payload)


def records_of(payloads: list[bytes]) -> Records:
    return frame(b"".join(payloads), np.cumsum([0, *map(len, payloads)]))


PAYLOADS = [b"first", b"", b"\x00" * 100, b"last one"]


def test_crc32c_of_known_strings() -> None:
    """RFC 3720, B.4, and the usual check value."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0


@given(st.binary(max_size=300))
def test_crc32c_is_as_defined(data: bytes) -> None:
    assert crc32c(data) == crc32c_bit_by_bit(data)


def test_hardware_and_tables_agree_at_every_size_and_alignment() -> None:
    data = np.random.default_rng(0).integers(0, 256, 9000).astype(np.uint8)
    for size in [*range(2500), 3071, 3072, 3073, 6144, 8999]:
        part = data[size % 8 :][:size]
        assert crc32c(part) == _by_table(part.ctypes.data, len(part)), size


@given(st.binary(max_size=100), st.binary(max_size=5000))
def test_crc32c_join_is_that_of_the_whole(a: bytes, b: bytes) -> None:
    assert crc32c_join(crc32c(a), crc32c(b), len(b)) == crc32c(a + b)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer, lambda b: np.frombuffer(b, np.uint8)])
def test_any_bytes_like_object(kind: object) -> None:
    assert crc32c(kind(b"123456789")) == 0xE3069283  # type: ignore[operator]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_frame_and_scan_are_inverse(payloads: list[bytes]) -> None:
    records = records_of(payloads)
    assert records.data.tobytes() == b"".join(map(framed, payloads))
    found = scan(records.data, name="x")
    assert [bytes(found.payload(i)) for i in range(len(found))] == payloads
    assert (
        found.offsets.tolist() == records.offsets.tolist() == np.cumsum([0, *(len(p) + 16 for p in payloads)]).tolist()
    )
    assert found.offsets.dtype == np.int64 and found.data.dtype == np.uint8


def test_scan_shares_memory() -> None:
    data = records_of(PAYLOADS).data
    assert np.shares_memory(scan(data, name="x").data, data)


def test_frame_takes_a_part_of_the_data() -> None:
    assert frame(b"abcdef", np.array([2, 3, 5])).data.tobytes() == framed(b"c") + framed(b"de")
    assert len(frame(b"", np.array([0]))) == 0


@pytest.mark.parametrize("offsets", [[], [0, 3, 2], [-1, 2], [0, 7]])
def test_frame_refuses_offsets_that_make_no_sense(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="payload_offsets must ascend"):
        frame(b"abcdef", np.array(offsets))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string()])
def test_frame_array(kind: pa.DataType) -> None:
    array = pa.array(["zero", "one", "", "three"], pa.string()).cast(kind)
    assert frame_array(array).data.tobytes() == b"".join(map(framed, [b"zero", b"one", b"", b"three"]))
    assert frame_array(array.slice(1, 2)).data.tobytes() == framed(b"one") + framed(b"")
    assert len(frame_array(array.slice(4))) == 0


def test_frame_array_names_the_row_without_a_record() -> None:
    with pytest.raises(SchemaError, match="row 1 of the serialized records is null"):
        frame_array(pa.array([b"a", None], pa.binary()))


def test_payload_counts_from_0_to_the_end() -> None:
    records = records_of(PAYLOADS)
    assert [bytes(records.payload(i)) for i in range(4)] == PAYLOADS
    for index in (-1, 4):
        with pytest.raises(IndexError):
            records.payload(index)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_changed_byte_is_found(mask: int) -> None:
    data, ends = records_of(PAYLOADS).data, np.cumsum([len(p) + FRAME_BYTES for p in PAYLOADS])
    for at in range(len(data)):
        changed = data.copy()
        changed[at] ^= mask
        record = int(np.searchsorted(ends, at, side="right"))
        with pytest.raises(CorruptError, match=rf"^bad\.tfrecord: .*record {record}\b"):
            scan(changed, name="bad.tfrecord")


def test_every_cut_is_found() -> None:
    data, ends = records_of(PAYLOADS).data, [0, *np.cumsum([len(p) + FRAME_BYTES for p in PAYLOADS]).tolist()]
    for end in range(1, len(data)):
        if end in ends:
            assert len(scan(data[:end], name="x")) == ends.index(end)
            continue
        with pytest.raises(CorruptError, match="^c: (not a TFRecord file, or )?cut short") as error:
            scan(data[:end], name="c")
        whole = int(np.searchsorted(ends, end)) - 1
        if end >= 12:
            assert f"after {whole} whole records: of record {whole} (from 0), at byte {ends[whole]}" in str(error.value)


def test_the_number_of_a_record_counts_those_before_the_buffer() -> None:
    data = records_of(PAYLOADS).data.copy()
    data[-1] ^= 1
    with pytest.raises(CorruptError, match=r"bad: checksum wrong in record 103 \(from 0\), at byte 153"):
        scan(data, name="bad", first_record=100)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html><body>503 Service Unavailable</body></html>\n", "not a TFRecord file.*html"),
        (b"\x1f\x8b\x08" + bytes(30), "looks gzip-compressed"),
        (zlib.compress(b"record" * 30), "looks zlib-compressed"),
        (b"short", "not a TFRecord file, or cut short: all it holds are 5 bytes: b'short'"),
        (b"\xff" * 100, "not a TFRecord file"),
    ],
)
def test_what_is_no_tfrecord_file(content: bytes, message: str) -> None:
    with pytest.raises(CorruptError, match=f"^page.html: .*{message}"):
        scan(content, name="page.html")


def test_a_length_beyond_all_bounds_is_no_crash() -> None:
    for length in (2**63 - 1, 2**64 - 1, 2**64 - 17, 2**40):
        head = framed(b"")[:0] + length.to_bytes(8, "little")
        crc = crc32c_bit_by_bit(head)
        masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        with pytest.raises(CorruptError, match="cut short after 1 whole records"):
            scan(framed(b"a") + head + masked.to_bytes(4, "little") + bytes(50), name="x")


def in_chunks(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(st.lists(st.binary(max_size=100), max_size=12), st.integers(1, 300))
def test_a_stream_may_be_cut_into_chunks_anywhere(payloads: list[bytes], size: int) -> None:
    parts = list(scan_stream(in_chunks(records_of(payloads).data.tobytes(), size), name="x"))
    assert [bytes(part.payload(i)) for part in parts for i in range(len(part))] == payloads


@pytest.mark.parametrize("size", [1, 13, 50, 1000])
def test_faults_in_a_stream_are_named_as_in_one_buffer(size: int) -> None:
    data = records_of(PAYLOADS).data.tobytes()
    broken = [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in range(len(data))]
    broken += [data[:end] for end in range(1, len(data))] + [b"<html>" * 10]
    for content in broken:
        try:
            scan(content, name="f")
        except CorruptError as error:
            with pytest.raises(CorruptError) as stream_error:
                list(scan_stream(in_chunks(content, size), name="f"))
            assert str(stream_error.value) == str(error)
        else:
            assert sum(len(part) for part in scan_stream(in_chunks(content, size), name="f")) < len(PAYLOADS)


def test_whole_records_before_a_fault_are_handed_on() -> None:
    stream = scan_stream([records_of(PAYLOADS).data.tobytes()[:-1]], name="f")
    assert len(next(stream)) == 3
    with pytest.raises(CorruptError, match="f: cut short after 3 whole records"):
        next(stream)


def test_nothing_holds_no_record() -> None:
    assert len(scan(b"", name="empty")) == 0


@settings(deadline=None)
@given(st.data(), st.lists(st.lists(st.binary(max_size=80), min_size=1, max_size=6), min_size=1, max_size=4))
def test_gather_gives_the_chosen_records_in_order(data: st.DataObject, payloads: list[list[bytes]]) -> None:
    parts = [records_of(part) for part in payloads]
    every = [(p, r) for p, part in enumerate(payloads) for r in range(len(part))]
    chosen = data.draw(st.lists(st.sampled_from(every), max_size=30) | st.permutations(every))
    index = np.array(chosen, dtype=np.int64).reshape(-1, 2)
    expected = b"".join(framed(payloads[p][r]) for p, r in chosen)
    found = gather(parts, index[:, 0].astype(np.int32), index[:, 1])
    assert found.tobytes() == expected
    out = np.zeros(len(expected) + 5, dtype=np.uint8)
    reused = gather(parts, index[:, 0].astype(np.int32), index[:, 1], out)
    assert reused.tobytes() == expected
    assert np.shares_memory(reused, out) or not expected
    assert out[len(expected) :].tolist() == [0] * 5


def test_gather_uses_out_only_when_it_is_large_enough() -> None:
    part = records_of(PAYLOADS)
    out = np.empty(3, dtype=np.uint8)
    found = gather([part], np.zeros(4, np.int32), np.arange(4), out)
    assert found.tobytes() == part.data.tobytes()


@pytest.mark.parametrize(("part", "row"), [([1], [0]), ([-1], [0]), ([0], [4]), ([0], [-1])])
def test_gather_follows_no_index_into_nowhere(part: list[int], row: list[int]) -> None:
    with pytest.raises(IndexError):
        gather([records_of(PAYLOADS)], np.array(part, np.int32), np.array(row))


WRITE_WITH_TENSORFLOW = """
import sys, tensorflow as tf
with tf.io.TFRecordWriter(sys.argv[1]) as writer:
    for size in (0, 1, 7, 100, 5000, 100_000):
        writer.write(bytes(i % 251 for i in range(size)))
"""


@pytest.mark.slow
def test_byte_for_byte_what_tensorflow_writes(tmp_path: Path) -> None:
    path = tmp_path / "tf.tfrecord"
    subprocess.run([sys.executable, "-c", WRITE_WITH_TENSORFLOW, str(path)], check=True, capture_output=True)
    payloads = [bytes(i % 251 for i in range(size)) for size in (0, 1, 7, 100, 5000, 100_000)]
    assert path.read_bytes() == records_of(payloads).data.tobytes()
