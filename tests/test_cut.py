from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms import cut
from transforms.blockfile import Counts, read_block, read_block_file, write_block_file
from transforms.compression import Compression
from transforms.cut import BlockCutter, ShuffleSeed, cut_points
from transforms.shuffle import permutation
from transforms.tfrecord import Records, frame, scan


def records_of(payloads: list[bytes]) -> Records:
    sizes = np.array([0, *map(len, payloads)])
    return frame(np.frombuffer(b"".join(payloads), np.uint8), np.cumsum(sizes).astype(np.int64))


def write(path: Path, batches: list[tuple[list[bytes], list[int]]], groups: tuple[str, ...], **options: object) -> None:
    with write_block_file(str(path)) as writer:
        cutter = BlockCutter(writer, Compression("gzip", 1), groups, **options)  # type: ignore[arg-type]
        for payloads, numbers in batches:
            cutter.add(records_of(payloads), np.array(numbers, dtype=np.int32))
        cutter.finish()
        writer.finish(Counts(rows_read=cutter.num_records, rows_written=cutter.num_records))


def read(path: Path) -> dict[str, list[list[bytes]]]:
    """The payloads of each block, by group."""
    file = read_block_file(str(path))
    found: dict[str, list[list[bytes]]] = {}
    with open(path, "rb") as stream:
        for block in file.blocks:
            stored = read_block(stream, block, path=str(path))
            raw = Compression("gzip", 1).unpack(stored, raw_bytes=block.raw_bytes, name=str(path))
            records = scan(raw, name=str(path))
            assert len(records) == block.num_records
            found.setdefault(block.split, []).append([bytes(records.payload(i)) for i in range(len(records))])
    return found


BATCHES = st.lists(
    st.lists(st.tuples(st.binary(max_size=60), st.integers(0, 2)), max_size=12).map(
        lambda rows: ([row[0] for row in rows], [row[1] for row in rows])
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.booleans(), st.integers(1, 400), st.integers(1, 200))
def test_every_record_once_in_its_group(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[bytes], list[int]]],
    shuffled: bool,
    window: int,
    block: int,
) -> None:
    path = tmp_path_factory.mktemp("cut") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "BLOCK_BYTES", block)
        seed = ShuffleSeed(0, "p") if shuffled else None
        write(path, batches, ("a", "b", "c"), shuffle=seed, window_bytes=window)
    found = read(path)
    for number, name in enumerate("abc"):
        expected = [p for payloads, numbers in batches for p, n in zip(payloads, numbers, strict=True) if n == number]
        got = [payload for block_ in found.get(name, []) for payload in block_]
        assert sorted(got) == sorted(expected) if shuffled else got == expected


def test_blocks_are_full_but_for_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "BLOCK_BYTES", 1000)
    payloads = [bytes(84)] * 95  # 100 bytes each when framed
    write(
        tmp_path / "f", [(payloads[:40], [0] * 40), (payloads[40:], [0] * 55)], ("a",), shuffle=None, window_bytes=3000
    )
    assert [len(block) for block in read(tmp_path / "f")["a"]] == [10] * 9 + [5]


def test_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    payloads = [str(i).encode() for i in range(1000)]
    batches = [(payloads[:500], [0] * 500), (payloads[500:], [0] * 500)]
    for name, seed in (("one", 1), ("again", 1), ("two", 2)):
        write(tmp_path / name, batches, ("a",), shuffle=ShuffleSeed(seed, "p"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "again").read_bytes()
    one, two = read(tmp_path / "one")["a"][0], read(tmp_path / "two")["a"][0]
    assert one != two and sorted(one) == sorted(two) == sorted(payloads) and one != payloads


@given(st.lists(st.integers(16, 3_000_000), max_size=40))
def test_cut_points(sizes: list[int]) -> None:
    cuts = cut_points(np.array(sizes, dtype=np.int64))
    assert cuts[0] == 0 and cuts[-1] == len(sizes) and cuts == sorted(set(cuts))
    for begin, end in zip(cuts, cuts[1:], strict=False):
        assert sum(sizes[begin : end - 1]) < cut.BLOCK_BYTES
        assert end == len(sizes) or sum(sizes[begin:end]) >= cut.BLOCK_BYTES


def test_permutations_never_change() -> None:
    """A change here reorders every dataset, and makes cached blocks and new ones differ."""
    assert permutation(8, "records", 0, "x", 1).tolist() == [1, 5, 6, 7, 0, 4, 2, 3]


@given(st.integers(0, 500), st.integers())
def test_permutation_has_each_once(size: int, seed: int) -> None:
    assert sorted(permutation(size, seed).tolist()) == list(range(size))
