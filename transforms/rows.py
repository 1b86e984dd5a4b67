"""The rows of a partition as feature batches with their splits: what every pass over the data begins with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.errors import BadRowsError, SchemaError
from transforms.partition import BadRow, BadRowLimit, Partition, RawBatch, redacted
from transforms.prepare import Preparer
from transforms.reading import Reader, SourceSpec
from transforms.schema import Schema
from transforms.split import Splitter
from transforms.timing import count, step, timed


@dataclass(frozen=True)
class RowSpec:
    """How the source is read, what its columns are as features, and which split a row belongs to."""

    source: SourceSpec
    schema_text: str  # TFMD Schema in text form
    splitter: Splitter
    bad_row_limit: BadRowLimit = BadRowLimit()  # neither is part of ``key``: what is written does not depend on it
    redact: tuple[str, ...] = ()  # columns whose values no message shows

    @property
    def schema(self) -> Schema:
        return _parse(self.schema_text)

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns that must be read; None: all of them, since the whole row decides the split."""
        if len(self.splitter.names) > 1 and not self.splitter.keys:
            return None
        keys = {name for key in self.splitter.keys for name in (key, key.split(".")[0])}  # a column, or a field of one
        return frozenset({feature.source[0] for feature in self.schema.features} | keys)

    @property
    def kinds(self) -> Mapping[str, str]:
        """The kind of each column that the schema names; fields of structs by dotted names."""
        features = (feature for feature in self.schema.features if not feature.row_lengths_of)
        return {".".join(feature.source): feature.kind for feature in features}

    def key(self) -> Mapping[str, Any]:
        """What the rows and their splits depend on besides the partition's content."""
        one = len(self.splitter.names) == 1
        return {
            "source": self.source.key(),
            "schema": self.schema.digest,
            "splits": list(self.splitter.names) if one else self.splitter,
        }


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> Schema:
    return Schema.from_text(text, path="schema.pbtxt")


@dataclass(frozen=True)
class FeatureRows:
    """A feature batch, the index of the split of each row (int32), and its ordinal in the file ``path`` (int64)."""

    features: pa.RecordBatch
    split: np.ndarray
    rows: np.ndarray
    path: str


@dataclass
class PartitionRows:
    """Iterates over the FeatureRows of a partition, once, and counts what it meets.

    ``on_raw`` is shown each raw batch with all of its columns, before features are made of it.
    """

    partition: Partition
    spec: RowSpec
    on_raw: Callable[[RawBatch], None] | None = None
    bad_rows: list[BadRow] = field(default_factory=list)
    rows_read: int = 0
    dropped_rows: int = 0
    removed_rows: int = 0
    keyless_rows: int = 0

    def __iter__(self) -> Iterator[FeatureRows]:
        reader = Reader(self.partition, self.spec.source, self._reject)
        preparer = Preparer(self.spec.schema)
        columns = self.spec.columns if self.on_raw is None else None
        for raw in timed("read", reader.read(columns=columns, declared=self.spec.kinds)):
            if self.on_raw is not None:
                with step("infer"):
                    self.on_raw(raw)
            self.rows_read += raw.data.num_rows
            with step("split"):
                split = self._assign(raw)
            with step("convert"):
                features, kept = preparer.prepare(raw, on_bad_row=self.bad_rows.append)
            yield FeatureRows(features, split[kept], raw.rows[kept], raw.path)
        self.dropped_rows, self.removed_rows = reader.dropped, reader.removed
        self.rows_read += reader.dropped + reader.removed
        count("bad rows", len(self.bad_rows))

    def of_split(self, split: str | None) -> Iterator[pa.RecordBatch]:
        """The feature batches with the rows of one split only; None: with all rows."""
        names = self.spec.splitter.names
        for rows in self:
            if split is None or len(names) == 1:
                yield rows.features
            else:
                yield rows.features.filter(pa.array(rows.split == names.index(split)))

    def check(self) -> None:
        """Raises BadRowsError when more rows of the partition were bad than may be bad in all."""
        if not self.spec.bad_row_limit.allows(len(self.bad_rows)):
            rows = sorted(self.bad_rows, key=lambda row: (row.path, row.row))
            raise BadRowsError(redacted(rows, self.spec.redact), str(self.spec.bad_row_limit))

    def _reject(self, row: BadRow) -> None:
        """A row that the source itself could not make sense of: read, but in no batch."""
        self.rows_read += 1
        self.bad_rows.append(row)

    def _assign(self, raw: RawBatch) -> np.ndarray:
        try:
            assignment = self.spec.splitter.assign(raw.data)
        except SchemaError as error:
            raise SchemaError(f"{raw.path}: {error}") from error
        self.keyless_rows += assignment.keyless
        return assignment.split
