"""Raw batches into feature batches, by the schema: columns by name, values by kind, and bad rows by their reason."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.convert import Mismatch, convert
from transforms.errors import SchemaError, shorten
from transforms.partition import BadRow, RawBatch
from transforms.schema import ARROW_TYPES, Feature, Schema
from transforms.sources.nested import find, is_list, shown

_MISSING = "missing value in a required column; make it optional in the schema, or give it a default value"
_NULL_INSIDE = "a null inside the list; leave it out of the list, or make the list null"


class Preparer:
    """Makes feature batches (see ``Schema.arrow_schema``) of raw batches, wherever their columns stand in the file."""

    def __init__(self, schema: Schema) -> None:
        self._features = schema.features
        self._arrow_schema = schema.arrow_schema()

    def prepare(self, raw: RawBatch, *, on_bad_row: Callable[[BadRow], None]) -> tuple[pa.RecordBatch, np.ndarray]:
        """The feature batch of the good rows, and their positions in ``raw`` (int64, ascending).

        A row is bad when a value of it cannot be what the schema says: each bad row goes to ``on_bad_row`` once, in
        order, with the first such column.  Columns that the schema does not name are left alone.  Raises SchemaError,
        which names the file and the column, when a required column is not there, or a whole column is of a type that
        has no way to the feature's kind.
        """
        rejected = _Rejected(raw)
        columns = [self._column(feature, raw, rejected) for feature in self._features]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._arrow_schema)
        if not rejected.rows:
            return batch, np.arange(raw.data.num_rows, dtype=np.int64)
        good = np.ones(raw.data.num_rows, bool)
        for position in sorted(rejected.rows):
            on_bad_row(rejected.rows[position])
            good[position] = False
        return batch.filter(pa.array(good)), np.flatnonzero(good)

    def _column(self, feature: Feature, raw: RawBatch, rejected: _Rejected) -> pa.Array:
        column = find(raw.data, feature.source)
        if column is None:
            if feature.required and feature.default is None and feature.source[0] not in raw.data.schema.names:
                raise SchemaError(
                    f"{raw.path}: has no column {feature.source[0]!r}, which the schema requires; it has "
                    f"{shorten(', '.join(raw.data.schema.names), 200)}; make it optional in the schema, or leave the "
                    "file out"
                )
            column = pa.nulls(raw.data.num_rows)
        try:
            prepared = _values_of(feature)(column, feature, rejected)
        except Mismatch as error:
            raise SchemaError(f"{raw.path}: column {'.'.join(feature.source)!r} {error}") from error
        if feature.default is not None:
            prepared = _fill(prepared, feature)
        elif feature.required and prepared.null_count:
            rejected.add(prepared.is_null().to_numpy(zero_copy_only=False), feature, _MISSING)
        return prepared


def _values_of(feature: Feature) -> Callable[[pa.Array, Feature, _Rejected], pa.Array]:
    if feature.steps:
        return _steps
    return _scalars if feature.shape == () else _lists


class _Rejected:
    """The bad rows of a batch by position, each with the first reason that was found."""

    def __init__(self, raw: RawBatch) -> None:
        self._raw = raw
        self.rows: dict[int, BadRow] = {}

    def add(
        self,
        bad: np.ndarray,
        feature: Feature,
        reason: str,
        values: pa.Array | None = None,
        of: np.ndarray | None = None,
    ) -> None:
        """Rejects rows: ``bad`` (bool) is by row or, where ``of`` maps values to their rows, by value."""
        for index in np.flatnonzero(bad):
            position = int(index if of is None else of[index])
            value = None if values is None else shown(values[int(index)])
            if position not in self.rows:
                row, column = int(self._raw.rows[position]), ".".join(feature.source)
                self.rows[position] = BadRow(self._raw.path, row, column, value, reason)


def _scalars(column: pa.Array, feature: Feature, rejected: _Rejected) -> pa.Array:
    if is_list(column.type):
        column = _only_values(column, feature, rejected)
    converted = convert(column, feature)
    for bad, reason in converted.faults:
        rejected.add(bad, feature, reason, column)
    return converted.values


def _only_values(column: pa.Array, feature: Feature, rejected: _Rejected) -> pa.Array:
    """The one value of each list; an empty list is a missing value."""
    lengths = _lengths(column)
    if (lengths > 1).any():
        rejected.add(
            lengths > 1, feature, "a list of several values, and the feature has one; declare it without shape"
        )
    values = column.flatten()
    starts = np.cumsum(lengths) - lengths
    taken = values.take(pa.array(starts, mask=lengths == 0))
    if values.null_count:
        rejected.add((lengths > 0) & taken.is_null().to_numpy(zero_copy_only=False), feature, _NULL_INSIDE)
    return taken


def _lists(column: pa.Array, feature: Feature, rejected: _Rejected) -> pa.Array:
    """A list of values a row; null where the row has no list."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), feature.arrow_type)
    _check_depth(column.type, feature)
    missing, lengths = column.is_null().to_numpy(zero_copy_only=False), _lengths(column)
    values = column.flatten() if is_list(column.type) else column.drop_null()
    _reject_nulls(values, lengths, feature, rejected)
    if feature.row_lengths_of:
        return _as_lists(pa.array(_lengths(values)), lengths, missing)
    if is_list(values.type):
        inner = _lengths(values)
        _check_inner_lengths(inner, values, lengths, feature, rejected)
        lengths, values = np.diff(_offsets(inner)[_offsets(lengths)]), values.flatten()
        _reject_nulls(values, lengths, feature, rejected)
    converted = convert(values, feature)
    for bad, reason in converted.faults:
        rejected.add(bad, feature, reason, values, _rows(lengths))
    _check_lengths(lengths, missing, feature, rejected)
    return _as_lists(converted.values, lengths, missing)


def _steps(column: pa.Array, feature: Feature, rejected: _Rejected) -> pa.Array:
    """A list of steps a row, each with a list of values; null where the row has no list."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), feature.arrow_type)
    if not is_list(column.type):
        raise Mismatch(f"holds {column.type} values, and the feature is one of a sequence, which takes lists")
    missing, lengths = column.is_null().to_numpy(zero_copy_only=False), _lengths(column)
    steps = column.flatten()
    _reject_nulls(steps, lengths, feature, rejected)
    in_step = _lengths(steps)
    rows = np.repeat(_rows(lengths), in_step)
    values = steps.flatten() if is_list(steps.type) else steps.drop_null()
    if is_list(values.type):
        raise Mismatch(f"holds {column.type} values; a sequence takes lists, or lists of lists")
    if values.null_count:
        rejected.add(values.is_null().to_numpy(zero_copy_only=False), feature, _NULL_INSIDE, of=rows)
    converted = convert(values, feature)
    for bad, reason in converted.faults:
        rejected.add(bad, feature, reason, values, rows)
    return _as_lists(_as_lists(converted.values, in_step, np.zeros(len(steps), bool)), lengths, missing)


def _check_depth(kind: pa.DataType, feature: Feature) -> None:
    depth, values = 0, kind
    while is_list(values):
        depth, values = depth + 1, values.value_type
    if feature.ragged or feature.row_lengths_of:
        if depth != 2 and not pa.types.is_null(values):
            raise Mismatch(f"holds {kind} values, which are no lists of lists, and the feature is ragged")
    elif depth > (1 if feature.shape is None else 2):
        raise Mismatch(f"holds {kind} values; declare it with a ragged_tensor representation")


def _reject_nulls(values: pa.Array, lengths: np.ndarray, feature: Feature, rejected: _Rejected) -> None:
    if values.null_count:
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        rejected.add(nulls, feature, _NULL_INSIDE, of=_rows(lengths))


def _rows(lengths: np.ndarray) -> np.ndarray:
    """The row of each value."""
    return np.repeat(np.arange(len(lengths)), lengths)


def _check_inner_lengths(
    inner: np.ndarray, values: pa.Array, lengths: np.ndarray, feature: Feature, rejected: _Rejected
) -> None:
    size = math.prod((feature.shape or ())[1:])
    if len(feature.shape or ()) > 1 and (inner != size).any():
        reason = f"a list inside has not {size} values, as the schema says"
        rejected.add(inner != size, feature, reason, values, _rows(lengths))


def _check_lengths(lengths: np.ndarray, missing: np.ndarray, feature: Feature, rejected: _Rejected) -> None:
    wanted = feature.num_values
    if wanted is None:
        return
    accepted = missing if feature.required and feature.default is None else lengths == 0
    wrong = (lengths != wanted) & ~accepted
    if wrong.any():
        reason = f"the number of values is not {wanted}, as the schema says"
        rejected.add(wrong, feature, reason, pa.array(lengths))


def _lengths(column: pa.Array) -> np.ndarray:
    """How many values each row has (int64)."""
    if not is_list(column.type):
        return np.array(column.is_valid().to_numpy(zero_copy_only=False), np.int64)
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.array(lengths, np.int64)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    """Where each row's values begin, and the end (int32, one more)."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _as_lists(values: pa.Array, lengths: np.ndarray, missing: np.ndarray) -> pa.Array:
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(_offsets(lengths)), values, type=pa.list_(values.type), mask=mask)


def _fill(column: pa.Array, feature: Feature) -> pa.Array:
    """The default value in place of what is missing, as many times as the feature has values."""
    if feature.shape == ():
        return column.fill_null(pa.scalar(feature.default, ARROW_TYPES[feature.kind]))
    empty = pc.equal(column.value_lengths().fill_null(0), 0)
    default = pa.scalar([feature.default] * (feature.num_values or 0), column.type)
    return pc.if_else(empty, default, column)
