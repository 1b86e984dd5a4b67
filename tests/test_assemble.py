from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import cut
from transforms.assemble import assemble_shard
from transforms.blockfile import BlockFile, Counts, read_block_file, write_block_file
from transforms.compression import Compression
from transforms.cut import BlockCutter
from transforms.deal import Piece, ShardPlan, deal, num_shards, order_blocks
from transforms.errors import CorruptError
from transforms.partition import Block
from transforms.tfrecord import frame, scan

KINDS = [
    Compression("gzip", 1),
    Compression("gzip", 9),
    Compression("gzip", 1, gzip_members="single"),
    Compression("zlib", 1),
    Compression("none"),
]


def block_file(path: Path, payloads: list[bytes], compression: Compression) -> BlockFile:
    sizes = np.cumsum([0, *map(len, payloads)]).astype(np.int64)
    with write_block_file(str(path)) as writer:
        cutter = BlockCutter(writer, compression, ("train",), shuffle=None)
        cutter.add(frame(np.frombuffer(b"".join(payloads), np.uint8), sizes), np.zeros(len(payloads), np.int32))
        cutter.finish()
        writer.finish(Counts(rows_read=len(payloads), rows_written=len(payloads)))
    return read_block_file(str(path))


def raw_of(content: bytes, compression: Compression) -> bytes:
    if compression.name == "gzip":
        return gzip.decompress(content)
    return zlib.decompress(content) if compression.name == "zlib" else content


@settings(max_examples=30, deadline=None)
@given(
    files=st.lists(st.lists(st.binary(max_size=50), max_size=30), max_size=4),
    shards=st.integers(1, 12),
    compression=st.sampled_from(KINDS),
    shuffled=st.booleans(),
)
def test_shards_hold_every_record_once(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[bytes]],
    shards: int,
    compression: Compression,
    shuffled: bool,
) -> None:
    folder = tmp_path_factory.mktemp("assemble")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "BLOCK_BYTES", 300)
        block_files = [block_file(folder / f"{i}.blocks", payloads, compression) for i, payloads in enumerate(files)]
    expected = [payload for payloads in files for payload in payloads]
    pieces = order_blocks(block_files, "train", shuffle_seed=7 if shuffled else None)
    count = num_shards(pieces, shards=shards, shard_bytes=1)
    assert count == min(shards, len(expected))
    found: list[bytes] = []
    for i, run in enumerate(deal(pieces, count)):
        info = assemble_shard(ShardPlan("train", f"shard-{i}", run), str(folder), compression=compression)
        content = (folder / f"shard-{i}").read_bytes()
        assert info.sha256 == hashlib.sha256(content).hexdigest()
        assert info.num_bytes == len(content)
        assert info.num_records in (len(expected) // count, len(expected) // count + 1)
        raw = raw_of(content, compression)
        records = scan(raw, name="shard")
        assert len(records) == info.num_records
        assert info.raw_bytes == len(raw)
        for block in info.blocks:
            stored = content[block.offset : block.offset + block.num_bytes]
            assert len(compression.unpack(stored, raw_bytes=block.raw_bytes, name="shard")) == block.raw_bytes
        found += [bytes(records.payload(r)) for r in range(len(records))]
    assert found == expected if not shuffled else sorted(found) == sorted(expected)


def piece(records: int, num_bytes: int = 100) -> Piece:
    return Piece("f", Block("train", 0, num_bytes, num_bytes, records, 0), 0, records)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.data())
def test_deal_is_even_and_complete(records: list[int], data: st.DataObject) -> None:
    total = sum(records)
    shards = data.draw(st.integers(1, total))
    runs = deal([piece(n) for n in records], shards)
    sizes = [sum(p.last - p.first for p in run) for run in runs]
    assert len(runs) == shards and sum(sizes) == total and max(sizes) - min(sizes) <= 1
    assert all(p.first < p.last <= p.block.num_records for run in runs for p in run)


def test_shards_by_size() -> None:
    pieces = [piece(10, 100) for _ in range(10)]
    assert num_shards(pieces, shards=None, shard_bytes=1000) == 1
    assert num_shards(pieces, shards=None, shard_bytes=999) == 2
    assert num_shards(pieces, shards=None, shard_bytes=1) == 100
    assert num_shards([], shards=5, shard_bytes=1) == 0


def test_a_damaged_block_is_named(tmp_path: Path) -> None:
    file = block_file(tmp_path / "f.blocks", [b"abc"] * 10, Compression("gzip", 1))
    content = bytearray((tmp_path / "f.blocks").read_bytes())
    content[file.blocks[0].num_bytes // 2] ^= 1
    (tmp_path / "f.blocks").write_bytes(content)
    pieces = order_blocks([read_block_file(file.path)], "train", shuffle_seed=None)
    with pytest.raises(CorruptError, match=r"f\.blocks: the block at offset 0 is damaged"):
        assemble_shard(ShardPlan("train", "s", tuple(pieces)), str(tmp_path), compression=Compression("gzip", 1))
    assert not (tmp_path / "s").exists()


def test_every_flipped_or_cut_byte_of_a_block_file_is_noticed(tmp_path: Path) -> None:
    file = block_file(tmp_path / "f.blocks", [b"abc", b"de"], Compression("gzip", 1))
    whole = (tmp_path / "f.blocks").read_bytes()
    damaged = [whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [whole[:i] for i in range(len(whole))]
    for i, content in enumerate(damaged):
        (tmp_path / "g").write_bytes(content)
        with pytest.raises(CorruptError):
            index = read_block_file(str(tmp_path / "g"))
            pieces = order_blocks([index], "train", shuffle_seed=None)
            assemble_shard(ShardPlan("train", "s", tuple(pieces)), str(tmp_path), compression=Compression("gzip", 1))
            pytest.fail(f"damage {i} was not noticed")
    assert len(file.blocks) == 1
