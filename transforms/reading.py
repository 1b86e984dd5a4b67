"""A partition's rows as everything after the source sees them: without those to drop, and through the user's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.drop import key_columns, matcher, read_keys
from transforms.errors import RecordmillError, SourceError
from transforms.partition import BadRow, Partition, RawBatch
from transforms.sources import Source, open_source
from transforms.sources.corrected import CorrectedSource, Correction
from transforms.sources.loaded import Load, LoadedSource
from transforms.timing import count
from transforms.timing import step as step_of
from transforms.usercode import UserFunction


@dataclass(frozen=True)
class SourceSpec:
    """What is read: the format with its options, and what there is of rows that were put right, images that rows name,
    and the user's step from RecordBatch to RecordBatch."""

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    prepare: UserFunction | None = None
    load: Load | None = None
    corrections: tuple[Correction, ...] = ()

    def open(self) -> Source:
        source = self.open_bare()
        if self.corrections:
            source = CorrectedSource(source, self.corrections)
        return LoadedSource(source, self.load) if self.load is not None else source

    def open_bare(self) -> Source:
        """The source of the format, which has neither corrections nor images."""
        return open_source(self.format, self.options)

    def key(self) -> list[Any]:
        """What the rows depend on besides the partition's content, of which corrections are a part: not on where a
        database is."""
        options = {name: value for name, value in self.options.items() if name != "connection"}
        loaded = [asdict(self.load)] if self.load is not None else []
        return [self.format, options, self.prepare.digest if self.prepare else None, *loaded]


@dataclass
class Reader:
    """Reads a partition once, and counts: ``dropped`` rows, and ``removed`` ones, which the user's step left out.

    ``removed`` is negative when the step made more rows than it got.
    """

    partition: Partition
    spec: SourceSpec
    on_bad_row: Callable[[BadRow], None]
    dropped: int = 0
    removed: int = 0

    def read(
        self, *, columns: frozenset[str] | None = None, declared: Mapping[str, str] | None = None
    ) -> Iterator[RawBatch]:
        """``Source.read`` without the rows that the partition's ``drop`` names, through the user's step.

        Raises SourceError, with the user's line, when the step fails or makes no RecordBatch.
        """
        drop, source = self.partition.drop, self.spec.open()
        if self.spec.prepare is not None:
            columns = None  # the step may look at any
        elif columns is not None and drop is not None:
            columns |= key_columns(drop.columns)
        for raw in source.read(self.partition, columns=columns, declared=declared, on_bad_row=self.on_bad_row):
            count("rows", raw.data.num_rows)
            if drop is not None:
                dropped = matcher(drop.path).matches(read_keys(raw, drop.columns))
                if dropped.any():
                    self.dropped += int(dropped.sum())
                    raw = RawBatch(raw.data.filter(pa.array(~dropped)), raw.path, raw.rows[~dropped], typed=raw.typed)
            yield self._prepared(raw, self.spec.prepare) if self.spec.prepare else raw

    def _prepared(self, raw: RawBatch, step: UserFunction) -> RawBatch:
        try:
            with step_of("prepare"):
                made = step.function(raw.data)
        except RecordmillError:
            raise
        except Exception as error:
            where = f"{raw.path}, in the rows from {int(raw.rows[0]) + 1 if len(raw.rows) else 1} on"
            raise SourceError(f"{where}: {step.where(error)}: {type(error).__name__}: {error}") from error
        if not isinstance(made, pa.RecordBatch):
            raise SourceError(
                f"{step.path}: {step.name} returned {type(made).__name__}; it takes a pyarrow.RecordBatch and must "
                "return one"
            )
        self.removed += raw.data.num_rows - made.num_rows
        rows = raw.rows
        if made.num_rows != len(rows):  # which row is which is not known: all go by the first
            rows = np.full(made.num_rows, rows[0] if len(rows) else 0, np.int64)
        return RawBatch(made, raw.path, rows, typed=raw.typed)
