"""The schema that all rows of the data say: profiles of partitions, merged in order, and what they come to.

Columns without types (CSV) are integers when every value is the canonical text of one that fits 64 bits, floats when
every value is a number as programs print them, and bytes otherwise: a column stays text when parsing would change its
text or its meaning (``00501``, ``1e5``, a 20-digit id).  The kinds of single values are told by ``native/text.c``.

Typed columns keep what they are: integers and booleans are int, floats float, text and decimals bytes, dates, times and
timestamps int with their unit (UTC; a timestamp without a zone is taken as UTC), durations int in their own unit.
Integers in one place and floats in another make a float; other mixtures are errors.

What merged profiles come to depends on the rows alone, not on how they were cut.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import SchemaError
from transforms.native import Int64, Pointer, kernel
from transforms.partition import RawBatch
from transforms.schema import Feature, Kind, Schema, TimeUnit
from transforms.sources.nested import is_list, leaves, shown

log = logging.getLogger("recordmill")

_text_kinds = kernel("text_kinds", [Pointer, Pointer, Pointer, Int64, Int64, Pointer])
_CELL_KINDS = ("integer cell", "decimal cell", "NaN or infinity cell", "text cell")  # the order of native/text.c
_UNDECIDED = "undecided"
_UNSUPPORTED = "unsupported "
_TIME, _DURATION = "time in ", "duration in "
_TIME_UNITS: tuple[TimeUnit, ...] = ("days", "s", "ms", "us", "ns")


@dataclass(frozen=True)
class Evidence:
    """That values of a kind were seen, in lists ``depth`` deep, and where first.  ``row`` counts from 0 in the file."""

    kind: str
    depth: int
    path: str
    row: int
    value: str | None  # shortened

    def __str__(self) -> str:
        value = f", {self.value}" if self.value is not None else ""
        return f"{'list of ' * self.depth}{self.kind} ({self.path}, row {self.row + 1}{value})"


@dataclass(frozen=True)
class ColumnProfile:
    """What a column is made of.

    ``present``: rows that have a value.  ``least`` and ``most``: values in such a row.  ``fixed``: every batch had the
    column as a list of one fixed size.
    """

    source: tuple[str, ...]
    present: int
    least: int
    most: int
    fixed: bool
    evidence: tuple[Evidence, ...]

    @property
    def decided(self) -> bool:
        return any(evidence.kind != _UNDECIDED for evidence in self.evidence)


@dataclass(frozen=True)
class Profile:
    """``rows``: of the data.  ``columns``: in the order of their first appearance."""

    rows: int
    columns: tuple[ColumnProfile, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Profile:
        content = json.loads(text)
        columns = [
            ColumnProfile(
                **column
                | {"source": tuple(column["source"]), "evidence": tuple(Evidence(**e) for e in column["evidence"])}
            )
            for column in content["columns"]
        ]
        return cls(content["rows"], tuple(columns))


def profile(batches: Iterable[RawBatch]) -> Profile:
    """What the rows of the batches say.  One pass; memory goes by the number of columns."""
    return merge(_profile_batch(batch) for batch in batches)


def merge(profiles: Iterable[Profile]) -> Profile:
    """The profile of all the rows, from those of parts of them in the order of the rows."""
    rows, columns = 0, dict[tuple[str, ...], ColumnProfile]()
    for part in profiles:
        rows += part.rows
        for column in part.columns:
            before = columns.get(column.source)
            columns[column.source] = _merged(before, column) if before else column
    return Profile(rows, tuple(columns.values()))


def _merged(a: ColumnProfile, b: ColumnProfile) -> ColumnProfile:
    known = {(evidence.kind, evidence.depth) for evidence in a.evidence}
    counts = [column for column in (a, b) if column.present]
    return ColumnProfile(
        source=a.source,
        present=a.present + b.present,
        least=min((column.least for column in counts), default=0),
        most=max((column.most for column in counts), default=0),
        fixed=all(column.fixed for column in (a, b) if column.decided) and (a.fixed or b.fixed),
        evidence=a.evidence + tuple(e for e in b.evidence if (e.kind, e.depth) not in known),
    )


# ---- one batch -------------------------------------------------------------------------------------------------------


def _profile_batch(batch: RawBatch) -> Profile:
    columns = [
        _profile_column(source, leaf, batch)
        for name, column in zip(batch.data.schema.names, batch.data.columns, strict=True)
        for source, leaf in leaves(name, column)
    ]
    return Profile(batch.data.num_rows, tuple(columns))


def _profile_column(source: tuple[str, ...], column: pa.Array, batch: RawBatch) -> ColumnProfile:
    present = len(column) - column.null_count
    least = most = min(present, 1)
    if is_list(column.type) and present:
        lengths = pc.min_max(column.value_lengths())
        least, most = lengths["min"].as_py(), lengths["max"].as_py()
    fixed = batch.data.schema.field(source[0]).type
    return ColumnProfile(
        source=source,
        present=present,
        least=least,
        most=most,
        fixed=len(source) == 1 and bool(pa.types.is_fixed_size_list(fixed)),
        evidence=tuple(
            _look_at_cells(column, batch)
            if not batch.typed and pa.types.is_string(column.type)
            else _look(column, batch)
        ),
    )


def _look(column: pa.Array, batch: RawBatch) -> Iterator[Evidence]:
    """The evidence of a type: it counts even where there are no values."""
    depth, values = 0, column.type
    while is_list(values):
        depth, values = depth + 1, values.value_type
    kind = _kind_of(values) if depth < 3 else f"{_UNSUPPORTED}{column.type}"
    valid = column.is_valid().index(pa.scalar(True)).as_py() if len(column) else -1
    row = int(batch.rows[max(valid, 0)]) if len(column) else 0
    yield Evidence(kind, depth, batch.path, row, shown(column[valid]) if valid >= 0 else None)


def _kind_of(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_null(kind):
        return _UNDECIDED
    if types.is_boolean(kind) or types.is_integer(kind):
        return "int"
    if types.is_floating(kind):
        return "float"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "bytes"
    if types.is_fixed_size_binary(kind):
        return "bytes"
    if types.is_decimal(kind):
        return "decimal"
    if types.is_date(kind):
        return f"{_TIME}{'days' if types.is_date32(kind) else 'ms'}"
    if types.is_timestamp(kind) or types.is_time(kind):
        return f"{_TIME}{kind.unit}"
    if types.is_duration(kind):
        return f"{_DURATION}{kind.unit}"
    return f"{_UNSUPPORTED}{kind}"


def _look_at_cells(column: pa.StringArray, batch: RawBatch) -> Iterator[Evidence]:
    """The evidence of values: which kinds of text there are, up to the first that is no number, which decides."""
    first = np.full(4, -1, np.int64)
    valid, offsets, data = column.buffers()
    if len(column):
        _text_kinds(
            offsets.address,
            data.address if data else None,
            valid.address if valid else None,
            column.offset,
            len(column),
            first.ctypes.data,
        )
    for kind, index in zip(_CELL_KINDS, first.tolist(), strict=True):
        if index >= 0:
            yield Evidence(kind, 0, batch.path, int(batch.rows[index]), shown(column[index]))


# ---- the schema ------------------------------------------------------------------------------------------------------


def to_schema(profile: Profile) -> Schema:
    """The schema of the profiled rows.

    Raises SchemaError, which names the column and the files, where kinds of values do not go together, or a column has
    no form as a feature.
    """
    deeper = {column.source[:i] for column in profile.columns for i in range(1, len(column.source))}
    features: list[Feature] = []
    for column in profile.columns:
        if column.source in deeper:
            if column.decided:
                raise SchemaError(
                    f"column {'.'.join(column.source)!r} is a struct in some rows and {column.evidence[0]} in others; "
                    "make them all one kind"
                )
            continue  # a struct that is null in all rows of some file
        if "" in column.source:
            place = " > ".join(map(repr, column.source))
            log.warning("a column has no name (%s): it is left out; give it one to keep it", place)
            continue
        features.extend(_features(column, profile.rows))
    _check_names(features)
    return Schema(tuple(features))


def _features(column: ColumnProfile, rows: int) -> Iterator[Feature]:
    name = ".".join(column.source)
    kind, time_unit = _resolve(name, column)
    depths = {evidence.depth for evidence in column.evidence if evidence.kind != _UNDECIDED or evidence.depth}
    if len(depths) > 1:
        raise _mixture(name, column)
    depth = depths.pop() if depths else 0
    required = rows > 0 and column.present == rows
    if not column.decided:
        log.warning("column %r has no value in any row: taken as optional bytes", name)
    feature = Feature(name, kind, column.source, time_unit=time_unit)
    if depth == 0:
        yield replace(feature, required=required)
    elif depth == 1 and column.fixed and column.least == column.most > 0:
        yield replace(feature, shape=(column.most,) if column.most > 1 else (), required=required)
    else:
        yield replace(feature, shape=None, ragged=depth == 2)
    if depth == 2:
        yield Feature(f"{name}.row_lengths", "int", column.source, shape=None, row_lengths_of=name)


def _resolve(name: str, column: ColumnProfile) -> tuple[Kind, TimeUnit | None]:
    kinds = {evidence.kind for evidence in column.evidence} - {_UNDECIDED}
    for evidence in column.evidence:
        if evidence.kind.startswith(_UNSUPPORTED):
            raise SchemaError(
                f"column {name!r} is of type {evidence.kind.removeprefix(_UNSUPPORTED)} ({evidence.path}), which has "
                "no form as a feature; flatten it, or give a schema that leaves the column out"
            )
    if kinds & set(_CELL_KINDS):
        return _resolve_cells(kinds), None
    if not kinds or kinds <= {"text", "bytes"} or kinds == {"decimal"}:
        return "bytes", None
    if kinds <= {"int", "float"}:
        return "float" if "float" in kinds else "int", None
    if all(kind.startswith(_TIME) for kind in kinds):
        return "int", max((unit for unit in _TIME_UNITS if _TIME + unit in kinds), key=_TIME_UNITS.index)
    if len(kinds) == 1 and next(iter(kinds)).startswith(_DURATION):
        return "int", None
    raise _mixture(name, column)


def _resolve_cells(kinds: set[str]) -> Kind:
    integer, decimal, not_finite, text = (kind in kinds for kind in _CELL_KINDS)
    if text or not (integer or decimal):
        return "bytes"
    return "float" if decimal or not_finite else "int"


def _mixture(name: str, column: ColumnProfile) -> SchemaError:
    seen = [str(evidence) for evidence in column.evidence if evidence.kind != _UNDECIDED or evidence.depth]
    return SchemaError(
        f"column {name!r} holds {' and '.join(seen)}; make them all one kind, or give a schema that declares the column"
    )


def _check_names(features: list[Feature]) -> None:
    by_name: dict[str, Feature] = {}
    for feature in features:
        other = by_name.setdefault(feature.name, feature)
        if other is not feature:
            raise SchemaError(
                f"two columns come to the name {feature.name!r}: {' > '.join(other.source)} and "
                f"{' > '.join(feature.source)}; rename one of them, or give a schema with the tag source"
            )
