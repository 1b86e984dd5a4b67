"""For PyTorch, which this module imports: an iterable dataset, whose workers share the blocks among themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.load.arrow import Ragged, arrays
from pipeline.load.version import Split, check_shard
from transforms.errors import ConfigError

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as error:
    raise ConfigError(
        "pipeline.load.torch needs the package torch, which is not installed: pip install torch"
    ) from error


class TorchDataset(IterableDataset[dict[str, Any]]):  # type: ignore[misc]  # where torch is not installed
    """Batches of ``{feature: tensor}`` for ``DataLoader(TorchDataset(…), batch_size=None, num_workers=2)``.

    Features of a fixed shape are tensors ``[batch, *shape]``; others pairs of values and offsets (int64, n + 1), the
    first a pair again for lists of lists; bytes are lists.  ``shard``: this process's rank, and the world size; the
    loader's workers divide its blocks among them.  ``shuffle`` has another order after each ``set_epoch``.
    """

    def __init__(
        self,
        split: Split,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        check_shard(shard)
        self._split = split
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._shard = shard
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        index, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        found = arrays(
            self._split,
            batch_size=self._batch_size,
            shuffle=self._shuffle,
            seed=self._seed + self._epoch,
            shard=(self._shard[0] * count + index, self._shard[1] * count),
            threads=None if worker is None else 1,
        )
        for batch in found:
            yield {name: _tensors(array) for name, array in batch.items()}


def _tensors(array: np.ndarray | Ragged) -> Any:
    if isinstance(array, Ragged):
        return _tensors(array.values), torch.from_numpy(array.offsets)
    return array.tolist() if array.dtype == object else torch.from_numpy(np.array(array))
