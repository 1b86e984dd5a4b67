from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from transforms import compression
from transforms.compression import Compression, adler32_combine, decompress_stream, sniff, walk
from transforms.errors import ConfigError, CorruptError
from transforms.partition import Block
from transforms.tfrecord import crc32c, frame, scan, scan_stream

LEVELS = range(1, 10)
CONTAINERS = [
    *(Compression("gzip", level) for level in LEVELS),
    *(Compression("gzip", level, "single") for level in LEVELS),
    *(Compression("zlib", level) for level in LEVELS),
    Compression("none"),
]


def name_of(container: Compression) -> str:
    return f"{container.name}-{container.gzip_members}-{container.level}"


every_container = pytest.mark.parametrize("container", CONTAINERS, ids=name_of)


def raw_block(number: int, records: int = 40) -> bytes:
    rng = np.random.default_rng(number)
    payloads = [bytes(rng.integers(97, 105, int(rng.integers(0, 200))).astype(np.uint8)) for _ in range(records)]
    ends = np.cumsum([0, *map(len, payloads)])
    return frame(b"".join(payloads), ends).data.tobytes()


RAW = [raw_block(i) for i in range(4)]


def shard(container: Compression, raws: list[bytes], records: int = 40) -> tuple[bytes, list[Block]]:
    """The bytes of a shard of these blocks, put together as the build does it."""
    content, blocks = container.head(), []
    for raw in raws:
        packed = container.pack(raw, num_records=records)
        blocks.append(
            Block("train", len(content), len(packed.data), len(raw), records, crc32c(packed.data), packed.checksum)
        )
        content += packed.data
    return content + container.tail(blocks), blocks


def read(content: bytes, name: str = "shard") -> bytes:
    return b"".join(decompress_stream(io.BytesIO(content), name=name))


@every_container
def test_a_shard_reads_back_everywhere(container: Compression) -> None:
    content, _ = shard(container, RAW)
    assert read(content) == b"".join(RAW)
    if container.name == "gzip":
        assert gzip.decompress(content) == b"".join(RAW)
    if container.name == "zlib":
        assert zlib.decompress(content) == b"".join(RAW)


@every_container
def test_blocks_read_back_one_by_one(container: Compression) -> None:
    content, blocks = shard(container, RAW)
    for block, raw in zip(blocks, RAW, strict=True):
        stored = content[block.offset : block.offset + block.num_bytes]
        assert container.unpack(stored, raw_bytes=block.raw_bytes, name="shard") == raw
        assert container.unpack(memoryview(bytearray(stored)), raw_bytes=block.raw_bytes, name="shard") == raw


@every_container
def test_same_bytes_again(container: Compression) -> None:
    first = container.pack(RAW[0], num_records=40)
    assert container.pack(np.frombuffer(RAW[0], np.uint8), num_records=40) == first
    assert isinstance(first.data, bytes)


@pytest.mark.parametrize("members", ["blocks", "single"])
def test_isal_has_history_before_it_takes_a_block(
    members: Literal["blocks", "single"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its first matches depend on an address (docs/format.md)."""
    calls = []

    class Recorder:
        def __init__(self, *arguments: int) -> None:
            self.state = isal_zlib.compressobj(*arguments)

        def compress(self, raw: memoryview) -> bytes:
            calls.append(len(raw))
            return self.state.compress(raw)

        def flush(self, mode: int) -> bytes:
            calls.append(-mode)
            return self.state.flush(mode)

    monkeypatch.setitem(compression._FLUSHING, "isal", SimpleNamespace(compressobj=Recorder))
    Compression("gzip", 1, members).pack(RAW[0], num_records=40)
    last = zlib.Z_FINISH if members == "blocks" else zlib.Z_SYNC_FLUSH
    assert calls == [8, -zlib.Z_SYNC_FLUSH, len(RAW[0]) - 8, -last]


@pytest.mark.parametrize("container", [c for c in CONTAINERS if c.level == 1], ids=name_of)
def test_a_shard_without_blocks_is_an_empty_file_of_its_kind(container: Compression) -> None:
    content, _ = shard(container, [])
    assert read(content) == b""
    if container.name == "gzip":
        assert gzip.decompress(content) == b""


@pytest.mark.parametrize("container", CONTAINERS[:1] + CONTAINERS[9:10] + CONTAINERS[18:19], ids=name_of)
def test_gunzip_and_large_sums(container: Compression, tmp_path: Path) -> None:
    if container.name == "gzip":
        path = tmp_path / "shard.gz"
        path.write_bytes(shard(container, RAW)[0])
        found = subprocess.run(["gunzip", "-c", str(path)], check=True, capture_output=True).stdout
        assert found == b"".join(RAW)
    zeros = [b"\xff" * 70_000, b"\x00" * 100_000, RAW[0] * 3]
    content, _ = shard(container, zeros, records=1)
    assert read(content) == b"".join(zeros)
    assert (gzip if container.name == "gzip" else zlib).decompress(content) == b"".join(zeros)


@given(st.binary(), st.binary())
def test_adler32_combine_is_that_of_the_whole(a: bytes, b: bytes) -> None:
    assert adler32_combine(zlib.adler32(a), zlib.adler32(b), len(b)) == zlib.adler32(a + b)


def test_nothing_is_no_block() -> None:
    for container in CONTAINERS:
        with pytest.raises(ValueError, match="at least one record"):
            container.pack(b"", num_records=0)


def test_what_is_not_offered() -> None:
    with pytest.raises(ConfigError, match="level 0 .* 1 .fastest. to 9"):
        Compression("gzip", 0)
    with pytest.raises(ConfigError, match="'zstd' is not offered; use gzip, zlib or none"):
        Compression("zstd")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="gzip_members 'many'"):
        Compression("gzip", 1, "many")  # type: ignore[arg-type]


def test_names_for_others() -> None:
    assert [(c.suffix, c.tensorflow_type) for c in (Compression("gzip"), Compression("zlib"), Compression("none"))] == [
        (".gz", "GZIP"),
        (".zlib", "ZLIB"),
        ("", ""),
    ]


def test_the_header_of_a_member_is_as_specified() -> None:
    """docs/format.md, field by field."""
    stored = Compression("gzip", 1).pack(RAW[0], num_records=40).data
    assert stored[:10] == bytes.fromhex("1f8b0804 00000000 00ff".replace(" ", ""))
    assert stored[10:16] == b"\x18\x00RM\x14\x00"
    fields = [int.from_bytes(stored[at : at + 4], "little") for at in range(16, 36, 4)]
    assert fields == [1, len(stored), len(RAW[0]), 40, crc32c(stored[36:-8])]
    assert zlib.decompress(stored[36:-8], -15) == RAW[0]
    assert stored[-8:] == zlib.crc32(RAW[0]).to_bytes(4, "little") + len(RAW[0]).to_bytes(4, "little")


def test_walk_finds_the_blocks_that_were_written() -> None:
    content, blocks = shard(Compression("gzip", 6), RAW)
    assert walk(io.BytesIO(content), name="shard", split="train") == blocks
    assert walk(io.BytesIO(b""), name="shard") == []


def test_walk_names_what_is_not_ours_or_cut() -> None:
    content, blocks = shard(Compression("gzip", 1), RAW)
    with pytest.raises(CorruptError, match="shard: cut short after 3 whole blocks: of that at byte"):
        walk(io.BytesIO(content[:-1]), name="shard")
    with pytest.raises(CorruptError, match="other.gz: at byte 0 there is no block of ours"):
        walk(io.BytesIO(gzip.compress(RAW[0])), name="other.gz")
    with pytest.raises(CorruptError, match=f"at byte {len(content)} there is no block"):
        walk(io.BytesIO(content + b"more"), name="shard")
    changed = bytearray(content)
    changed[blocks[1].offset + 16] = 2
    with pytest.raises(CorruptError, match="format 2, this version reads 1"):
        walk(io.BytesIO(changed), name="shard")


@pytest.mark.parametrize("bit", [0, 7])
def test_every_changed_bit_of_a_member_is_found(bit: int) -> None:
    container, raw = Compression("gzip", 6), raw_block(9, records=2)
    stored = container.pack(raw, num_records=2).data
    for at in range(len(stored)):
        changed = bytearray(stored)
        changed[at] ^= 1 << bit
        if 28 <= at < 32:  # the number of records, which is for readers that count without reading
            continue
        with pytest.raises(CorruptError, match="^some.gz: "):
            container.unpack(changed, raw_bytes=len(raw), name="some.gz")


@every_container
def test_a_block_of_another_length_is_damaged(container: Compression) -> None:
    stored = container.pack(RAW[0], num_records=40).data
    for raw_bytes in (len(RAW[0]) - 1, len(RAW[0]) + 1):
        with pytest.raises(CorruptError, match="^some: "):
            container.unpack(stored, raw_bytes=raw_bytes, name="some")
    with pytest.raises(CorruptError, match="^some: "):
        container.unpack(stored[:-1], raw_bytes=len(RAW[0]), name="some")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*RAW, b""]), max_size=5), st.sampled_from([1, 7, 100, 5000]), st.integers(0, 9))
def test_streams_of_others(raws: list[bytes], chunk: int, zeros: int) -> None:
    """Members of any writer, empty ones and padding included, whatever the size of the pieces they are read in."""
    content = b"".join(gzip.compress(raw) + bytes(zeros) for raw in raws)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "CHUNK_BYTES", max(chunk, 20))
        assert read(content) == b"".join(raws)
        joined = b"".join(raws)
        assert read(zlib.compress(joined)) == joined
        assert read(joined) == joined


def test_much_from_little_comes_in_pieces() -> None:
    zeros = bytes(50 << 20)
    chunks = list(decompress_stream(io.BytesIO(gzip.compress(zeros, 9)), name="bomb"))
    assert max(map(len, chunks)) <= compression.CHUNK_BYTES
    assert sum(map(len, chunks)) == len(zeros)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_every_cut_of_a_stream_is_found(compress: object) -> None:
    content = compress(raw_block(3, records=3))  # type: ignore[operator]
    for end in range(12, len(content)):
        with pytest.raises(CorruptError, match="^e.gz: cut short: the g?z.* that begins at byte 0 .*at byte"):
            read(content[:end], "e.gz")


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_changed_streams_never_give_other_bytes(compress: object) -> None:
    raw = raw_block(3, records=3)
    content = compress(raw)  # type: ignore[operator]
    for at in range(2, len(content)):
        changed = bytearray(content)
        changed[at] ^= 0x10
        try:
            found = read(bytes(changed), "e.gz")
        except CorruptError as error:
            assert str(error).startswith("e.gz: ")
        else:
            assert found == raw, at


def test_more_behind_the_end() -> None:
    with pytest.raises(CorruptError, match="the zlib stream ends, but b'x' follows at byte"):
        read(zlib.compress(RAW[0]) + b"x")
    with pytest.raises(CorruptError, match="the gzip stream ends, but b'<html>' follows at byte"):
        read(gzip.compress(RAW[0]) + b"<html>")


def test_sniff_sees_the_content() -> None:
    assert sniff(RAW[0]) == "none"
    assert sniff(b"") == "none"
    assert sniff(b"<html><body>") == "none"
    assert sniff(gzip.compress(b"")) == "gzip"
    assert [sniff(zlib.compress(RAW[0], level)) for level in (1, 6, 9)] == ["zlib"] * 3
    # A record whose length looks like another format's beginning.
    for length in (0x8B1F, 0x0178):
        assert sniff(frame(bytes(length), np.array([0, length])).data[:20].tobytes()) == "none"


def test_a_folder_of_damaged_files(tmp_path: Path) -> None:
    """Reported as tensorflow/tensorflow#13463: each error names the file and the place, and good files are read."""
    good, one = RAW[0], [0, *np.cumsum([len(r) for r in records_in(RAW[0])]).tolist()]
    flipped = bytearray(good)
    flipped[one[2] + 14] ^= 1
    files = {
        "good.tfrecord": good,
        "good.tfrecord.gz": gzip.compress(good),
        "gzip_inside.tfrecord": gzip.compress(good),
        "zero_bytes.tfrecord": b"",
        "no_records.tfrecord.gz": gzip.compress(b""),
        "cut.tfrecord": good[: one[5] - 3],
        "flipped.tfrecord": bytes(flipped),
        "cut.tfrecord.gz": gzip.compress(good)[:-12],
        "page.tfrecord": b"<html><body>503 Service Unavailable</body></html>\n",
    }
    found: dict[str, object] = {}
    for name, content in files.items():
        try:
            found[name] = sum(
                len(part) for part in scan_stream(decompress_stream(io.BytesIO(content), name=name), name=name)
            )
        except CorruptError as error:
            found[name] = str(error)
    assert [found[name] for name in list(files)[:5]] == [40, 40, 40, 0, 0]
    beginnings = {
        "cut.tfrecord": f"cut short after 4 whole records: of record 4 (from 0), at byte {one[4]}, ",
        "flipped.tfrecord": f"checksum wrong in record 2 (from 0), at byte {one[2]}: ",
        "cut.tfrecord.gz": "cut short: the gzip stream that begins at byte 0 does not end",
        "page.tfrecord": "not a TFRecord file",
    }
    for name, beginning in beginnings.items():
        assert str(found[name]).startswith(f"{name}: {beginning}")


def records_in(raw: bytes) -> list[bytes]:
    offsets = scan(raw, name="raw").offsets.tolist()
    return [raw[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False)]


READ_WITH_TENSORFLOW = """
import sys, tensorflow as tf
for path in sys.argv[1:]:
    kind = {"gz": "GZIP", "zlib": "ZLIB"}.get(path.rsplit(".", 1)[-1], "")
    records = [r.numpy() for r in tf.data.TFRecordDataset(path, compression_type=kind)]
    with tf.io.TFRecordWriter(path + ".again") as writer:
        for record in records:
            writer.write(record)
"""


@pytest.mark.slow
def test_tensorflow_reads_every_level(tmp_path: Path) -> None:
    paths = []
    for container in CONTAINERS:
        paths.append(tmp_path / f"{name_of(container)}.tfrecord{container.suffix}")
        paths[-1].write_bytes(shard(container, RAW)[0])
    subprocess.run([sys.executable, "-c", READ_WITH_TENSORFLOW, *map(str, paths)], check=True, capture_output=True)
    for path in paths:
        assert Path(f"{path}.again").read_bytes() == b"".join(RAW), path


@pytest.mark.slow
def test_beam_reads_every_container(tmp_path: Path) -> None:
    import apache_beam as beam
    from apache_beam.testing.util import assert_that, equal_to

    for container in (Compression("gzip", 1), Compression("gzip", 9, "single"), Compression("none")):
        (tmp_path / f"{name_of(container)}{container.suffix or '.tfrecord'}").write_bytes(shard(container, RAW)[0])
    with beam.Pipeline("DirectRunner") as pipeline:
        count = pipeline | beam.io.ReadFromTFRecord(str(tmp_path / "*")) | beam.combiners.Count.Globally()
        assert_that(count, equal_to([3 * 4 * 40]))
