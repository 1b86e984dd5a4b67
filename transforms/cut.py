"""Records into blocks: collect, shuffle, cut and compress, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from transforms.compression import Compression
from transforms.shuffle import permutation
from transforms.tfrecord import Records, gather
from transforms.timing import count, step

BLOCK_BYTES = 1 << 20  # raw bytes at which a block is closed
WINDOW_BYTES = 32 << 20  # raw records held to be shuffled among each other


@dataclass(frozen=True)
class ShuffleSeed:
    """What the order of the records in a window depends on: the user's seed and the name of what is shuffled."""

    seed: int
    name: str


class BlockSink(Protocol):
    """Where blocks go: a block file or, for people's own pipelines, a list."""

    def add(
        self, split: str, stored: bytes | memoryview, *, raw_bytes: int, num_records: int, checksum: int
    ) -> None: ...


class BlockCutter:
    """Takes records with the number of their group, and writes them as blocks of one group each.

    Records of a group keep their order, or are permuted inside a window of ``WINDOW_BYTES`` when there is a
    ``shuffle`` seed.  What it writes depends on the records and the seed alone.
    """

    def __init__(
        self,
        sink: BlockSink,
        compression: Compression,
        groups: tuple[str, ...],
        *,
        shuffle: ShuffleSeed | None,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._sink = sink
        self._compression = compression
        self._groups = groups
        self._shuffle = shuffle
        self._window_bytes = window_bytes
        self._windows = 0
        self._parts: list[Records] = []
        self._numbers: list[np.ndarray] = []
        self._held = 0
        self._buffer: np.ndarray | None = None
        self.num_records = 0

    def add(self, records: Records, group: np.ndarray) -> None:
        """``group``: the index of each record's group (integers, one a record)."""
        if len(records) == 0:
            return
        self.num_records += len(records)
        self._parts.append(records)
        self._numbers.append(group)
        self._held += records.data.nbytes
        if self._held >= self._window_bytes:
            with step("cut"):
                self._flush(last=False)

    def finish(self) -> None:
        with step("cut"):
            self._flush(last=True)

    def _flush(self, *, last: bool) -> None:
        """Writes the window's whole blocks; what is left of each group opens the next window, unless it is the last."""
        if not self._parts:
            return
        parts, sizes, where = self._parts, *self._rows()
        group = np.concatenate(self._numbers)
        self._parts, self._numbers, self._held = [], [], 0
        order = np.argsort(group, kind="stable")
        ends = np.searchsorted(group[order], np.arange(len(self._groups) + 1))
        for number, name in enumerate(self._groups):
            chosen = order[ends[number] : ends[number + 1]]
            if self._shuffle is not None:
                seed = ("records", self._shuffle.seed, self._shuffle.name, self._windows, name)
                chosen = chosen[permutation(len(chosen), *seed)]
            rest = self._write_blocks(name, parts, where[:, chosen], sizes[chosen], last=last)
            if rest is not None:
                self._parts.append(rest)
                self._numbers.append(np.full(len(rest), number, dtype=np.int32))
                self._held += rest.data.nbytes
        self._windows += 1

    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of each held record (int64), and its part and its row therein (2 × n, int64)."""
        sizes = [np.diff(part.offsets) for part in self._parts]
        number = np.repeat(np.arange(len(sizes)), [len(s) for s in sizes])
        row = np.concatenate([np.arange(len(s)) for s in sizes])
        return np.concatenate(sizes), np.stack([number, row])

    def _write_blocks(
        self, name: str, parts: list[Records], where: np.ndarray, sizes: np.ndarray, *, last: bool
    ) -> Records | None:
        if len(sizes) == 0:
            return None
        cuts = cut_points(sizes)
        whole = len(cuts) - 1 if last else len(cuts) - 2
        for begin, end in zip(cuts[:whole], cuts[1 : whole + 1], strict=True):
            raw = self._gather(parts, where[:, begin:end], int(sizes[begin:end].sum()))
            self._write_block(name, raw, int(end - begin))
        if last:
            return None
        begin = cuts[-2]
        rest = self._gather(parts, where[:, begin:], int(sizes[begin:].sum())).copy()
        return Records(rest, np.concatenate([[0], np.cumsum(sizes[begin:])]).astype(np.int64))

    def _gather(self, parts: list[Records], where: np.ndarray, num_bytes: int) -> np.ndarray:
        """The bytes of these records, good until the next call: as they stand where they are neighbours already."""
        (first, begin), (last, end) = where[:, 0], where[:, -1]
        if self._shuffle is None and first == last and end - begin == where.shape[1] - 1:
            part = parts[first]
            return np.asarray(part.data[part.offsets[begin] : part.offsets[end + 1]])
        if self._buffer is None or self._buffer.nbytes < num_bytes:
            self._buffer = np.empty(max(num_bytes, 2 * BLOCK_BYTES), dtype=np.uint8)
        return gather(parts, where[0].astype(np.int32), where[1], out=self._buffer)[:num_bytes]

    def _write_block(self, name: str, raw: np.ndarray, num_records: int) -> None:
        with step("compress"):
            packed = self._compression.pack(raw, num_records=num_records)
        count("bytes out", len(packed.data))
        with step("write"):
            self._sink.add(name, packed.data, raw_bytes=raw.nbytes, num_records=num_records, checksum=packed.checksum)


def cut_points(sizes: np.ndarray) -> list[int]:
    """Where to cut records of these sizes (bytes) into blocks: 0, …, len(sizes), a cut after each ``BLOCK_BYTES``.

    A block is closed by the record that fills it; a record larger than that is a block of its own, or the end of one.
    """
    ends = np.cumsum(sizes)
    cuts, begin = [0], 0
    while begin < len(sizes):
        base = ends[begin - 1] if begin else 0
        begin = min(int(np.searchsorted(ends, base + BLOCK_BYTES)) + 1, len(sizes))
        cuts.append(begin)
    return cuts
