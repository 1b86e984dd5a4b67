"""For Grain (JAX) and others that pick rows: any record by its number, straight from compressed shards."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, SupportsIndex

from pipeline.load.version import Split
from transforms import tfrecord

CACHED_BLOCKS = 16


class Records(Sequence[dict[str, Any]]):
    """A split as a sequence of ``{feature: numpy array}``: what Grain calls a RandomAccessDataSource.

    ``[i]`` unpacks the one block that has record i, about 1 MiB; the ``cached_blocks`` that were used last are kept, in
    each process.  Absent features are left out.  With ``raw=True`` the records come as the bytes of their Examples.

    Raises CorruptError at a block that is damaged.
    """

    def __init__(
        self,
        split: Split,
        *,
        raw: bool = False,
        cached_blocks: int = CACHED_BLOCKS,
    ) -> None:
        self._split = split
        self._raw = raw
        self._blocks = self._split.blocks()
        self._starts = [0, *itertools.accumulate(block.num_records for _, block in self._blocks)]
        self._cached_blocks = cached_blocks
        self._open()

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: SupportsIndex) -> Any:  # type: ignore[override]  # slices are for others to make
        wanted = index.__index__()
        number = wanted + len(self) if wanted < 0 else wanted
        if not 0 <= number < len(self):
            raise IndexError(f"record {wanted} of {len(self)}")
        place = bisect.bisect_right(self._starts, number) - 1
        payload = bytes(self._block(place).payload(number - self._starts[place]))
        if self._raw:
            return payload
        batch = self._split.decode([payload])
        return {
            name: column.flatten().to_numpy(zero_copy_only=False)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if column.is_valid()[0].as_py()
        }

    def __repr__(self) -> str:
        """The same in each process: Grain keeps it in its checkpoints."""
        return f"Records({self._split.name!r}, {len(self)} records)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_cache")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._cache: OrderedDict[int, tfrecord.Records] = OrderedDict()

    def _block(self, place: int) -> tfrecord.Records:
        with self._lock:
            if place in self._cache:
                self._cache.move_to_end(place)
                return self._cache[place]
        shard, block = self._blocks[place]
        found = self._split.read_block(shard, block)
        with self._lock:
            self._cache[place] = found
            while len(self._cache) > self._cached_blocks:
                self._cache.popitem(last=False)
        return found
