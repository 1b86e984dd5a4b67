"""What the sources of database tables share: ranges of a key, which are the partitions, and a hash of rows.

Ranges begin at multiples of a power of two, so that rows that are added leave most of them as they are.
"""

from __future__ import annotations

import pyarrow as pa
import xxhash

from transforms.fingerprint import digest
from transforms.split import hash_rows

PARTITION_ROWS = 1_000_000
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1  # of keys: from the one, to before the other, without a bound


def key_ranges(low: int | None, high: int | None, rows: int, *, partition_rows: int) -> list[tuple[int, int]]:
    """From a key to before another, of about ``partition_rows`` each.

    ``low``, ``high``: the least key and the greatest, None where no row has one; ``rows``: how many there are.
    """
    starts = [0]
    if low is not None and high is not None:
        keys_of_part = (high - low + 1) * partition_rows // max(rows, 1)
        width = 1 << max(keys_of_part - 1, 0).bit_length()
        starts = list(range(low // width * width, high + 1, width))
    return list(zip([LEAST, *starts[1:]], [*starts[1:], GREATEST], strict=True))


def in_range(key: str, start: int, end: int) -> str:
    """The condition in SQL for rows whose key is in a range; those without a key are in the first one."""
    bounds = [f"{key} >= {start}"] if start != LEAST else []
    bounds += [f"{key} < {end}"] if end != GREATEST else []
    missing = f" OR {key} IS NULL" if start == LEAST else ""
    return f"({' AND '.join(bounds) or '1 = 1'}){missing}"


class RowHash:
    """A hash of the rows of batches, wherever a batch ends."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows = xxhash.xxh3_128()
        self.num_bytes = 0  # of the rows, in memory

    def seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._rows.update(hash_rows(batch).data)
        self.num_bytes += batch.nbytes
        return batch

    @property
    def digest(self) -> str:
        return digest([str(self._schema), self._rows.hexdigest()])
