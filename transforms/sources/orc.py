"""ORC files: columns with their types, cut between stripes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import orc

from transforms.sources.slices import file_size
from transforms.sources.typed import Unit, UnitSource
from transforms.storage import arrow_input


class OrcSource(UnitSource):
    """See ``sources.Source``.  The reader does not tell the sizes of stripes: each counts as an equal part."""

    format = "ORC"

    def units(self, path: str) -> list[Unit]:
        file = orc.ORCFile(arrow_input(path))
        size = file_size(path) // max(file.nstripes, 1)
        counted = min(file.schema, key=_cost, default=None)
        if counted is None:
            return []
        return [Unit(file.read_stripe(i, columns=[counted.name]).num_rows, size) for i in range(file.nstripes)]

    def schema(self, path: str) -> pa.Schema:
        return orc.ORCFile(arrow_input(path)).schema

    def batches(self, path: str, start: int, end: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        file = orc.ORCFile(arrow_input(path))
        for i in range(start, end):
            stripe = file.read_stripe(i, columns=columns)
            yield stripe.select(columns)


def _cost(field: pa.Field) -> int:
    """How much there is to decode of a column, roughly: numbers first, then text, then what is nested."""
    if pa.types.is_nested(field.type):
        return 3
    return 1 if pa.types.is_primitive(field.type) else 2
