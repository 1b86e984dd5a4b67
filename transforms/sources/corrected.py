"""Rows as people put them right: values that take the place of what a source has, for rows that it got wrong.

A correction is for one row of a slice as it was when its content had a certain hash; of any other content it is stale,
and left out.  The corrections of a slice are a part of its fingerprint, after a ``~``: one that changes makes the rows
new.
"""

from __future__ import annotations

import bisect
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transforms.errors import ConfigError, SourceError, shorten
from transforms.fingerprint import digest
from transforms.partition import BadRow, FileSlice, Partition, RawBatch

if TYPE_CHECKING:
    from transforms.sources import Source

KEYS = {"file": str, "row": int, "content": str, "values": dict}

log = logging.getLogger("recordmill")


@dataclass(frozen=True)
class Correction:
    """``row``: its ordinal in the file, from 0; ``values``: plain ones by column; the others stay what they are."""

    path: str
    row: int
    content: str  # the fingerprint of the slice that has the row
    values: Mapping[str, Any]
    where: str  # it stands


def read_corrections(path: str, resolve: Callable[[str], str]) -> tuple[Correction, ...]:
    """The corrections of a file of JSON lines, without those whose ``values`` are null still.

    ``resolve`` gives the path of what is called ``file`` in it.  Raises ConfigError, which names the line.
    """
    found: dict[tuple[str, int, str], Correction] = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if (correction := _parsed(line, f"{path}, line {number}", resolve)) is None:
                    continue
                key = (correction.path, correction.row, correction.content)
                if key in found:
                    raise ConfigError(
                        f"{correction.where}: corrects the row of {found[key].where} again; leave one out"
                    )
                found[key] = correction
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; `recordmill replay CONFIG` writes corrections") from error
    return tuple(found.values())


def _parsed(line: str, where: str, resolve: Callable[[str], str]) -> Correction | None:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: is not JSON: {error}") from error
    for key, kind in KEYS.items():
        if not isinstance(found, dict) or key not in found:
            raise ConfigError(f"{where}: has no {key!r}; a correction has {', '.join(KEYS)}")
        if type(found[key]) is not kind and not (key == "values" and found[key] is None):
            raise ConfigError(f"{where}: {key} is {shorten(found[key])}; it must be of type {kind.__name__}")
    if found["values"] is None:
        return None
    return Correction(resolve(found["file"]), found["row"] - 1, found["content"], found["values"], where)


def uncorrected(fingerprint: str) -> str:
    """The fingerprint of a slice as its format's source made it."""
    return fingerprint.partition("+")[0].partition("~")[0]


class CorrectedSource:
    """Another source, some of whose rows are put right; see ``sources.Source``."""

    def __init__(self, source: Source, corrections: Sequence[Correction]) -> None:
        self._source = source
        self._by_path = defaultdict[str, list[Correction]](list)
        for correction in corrections:
            self._by_path[correction.path].append(correction)

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        found = self._source.partitions(paths, target_bytes=target_bytes)
        pieces = defaultdict[str, list[FileSlice]](list)
        for partition in found:
            for piece in partition.slices:
                if piece.path in self._by_path:
                    pieces[piece.path].append(piece)
        marks = {piece: mark for path in pieces for piece, mark in self._marks(pieces[path], self._by_path[path])}
        return [
            replace(
                partition,
                slices=tuple(
                    replace(piece, fingerprint=piece.fingerprint + marks.get(piece, "")) for piece in partition.slices
                ),
            )
            for partition in found
        ]

    def _marks(self, pieces: list[FileSlice], corrections: list[Correction]) -> Iterator[tuple[FileSlice, str]]:
        pieces = sorted(pieces, key=lambda piece: piece.first_row)
        starts = [piece.first_row for piece in pieces]
        found = defaultdict[FileSlice, list[Correction]](list)
        for correction in corrections:
            piece = pieces[max(bisect.bisect_right(starts, correction.row) - 1, 0)]
            if piece.fingerprint == correction.content:
                found[piece].append(correction)
            else:
                log.warning(
                    "%s: corrects row %d of %s, whose content is another now; it is left out",
                    correction.where,
                    correction.row + 1,
                    correction.path,
                )
        for piece, chosen in found.items():
            yield piece, "~" + digest(sorted((c.row, json.dumps(c.values, sort_keys=True)) for c in chosen))

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        for piece in partition.slices:
            content, mark, _ = piece.fingerprint.partition("~")
            chosen = [c for c in self._by_path.get(piece.path, ()) if mark and c.content == content]
            fixes = _Fixes({correction.row: correction for correction in chosen}, columns, on_bad_row)
            bare = Partition((replace(piece, fingerprint=content),))
            for raw in self._source.read(bare, columns=columns, declared=declared, on_bad_row=fixes.on_bad_row):
                yield from fixes.applied(raw)
            yield from fixes.made(piece.path)


class _Fixes:
    """The corrections of a slice, while its rows come."""

    def __init__(
        self, by_row: dict[int, Correction], columns: frozenset[str] | None, on_bad_row: Callable[[BadRow], None]
    ) -> None:
        self._by_row = by_row
        self._rows = np.array(sorted(by_row), np.int64)
        self._columns = columns
        self._on_bad_row = on_bad_row
        self._unread: set[int] = set()  # rows of which the source has made nothing
        self._like: RawBatch | None = None

    def on_bad_row(self, row: BadRow) -> None:
        if row.row in self._by_row:
            self._unread.add(row.row)
        else:
            self._on_bad_row(row)

    def applied(self, raw: RawBatch) -> Iterator[RawBatch]:
        """The batch, with the rows that are put right after the others."""
        self._like = raw
        fixed = np.isin(raw.rows, self._rows)
        if not fixed.any():
            yield raw
            return
        yield replace(raw, data=raw.data.filter(pa.array(~fixed)), rows=raw.rows[~fixed])
        yield self._corrected(replace(raw, data=raw.data.filter(pa.array(fixed)), rows=raw.rows[fixed]))

    def made(self, path: str) -> Iterator[RawBatch]:
        """The rows that are nothing but what their corrections say."""
        if not self._unread:
            return
        rows = np.array(sorted(self._unread), np.int64)
        schema = self._like.data.schema if self._like else pa.schema([])
        nothing = [pa.nulls(len(rows), field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays([*nothing, pa.array(rows)], names=[*schema.names, ""])
        typed = self._like.typed if self._like else True
        yield self._corrected(RawBatch(batch.select(schema.names), path, rows, typed=typed))

    def _corrected(self, raw: RawBatch) -> RawBatch:
        corrections = [self._by_row[row] for row in raw.rows.tolist()]
        names = dict.fromkeys(name for correction in corrections for name in correction.values)
        data = raw.data
        for name in names:
            if self._columns is not None and name not in self._columns:
                continue
            index = data.schema.get_field_index(name)
            there = data.column(index) if index >= 0 else pa.nulls(len(corrections))
            column = _column(name, there, corrections, typed=raw.typed)
            data = data.set_column(index, name, column) if index >= 0 else data.append_column(name, column)
        return replace(raw, data=data)


def _column(name: str, there: pa.Array, corrections: list[Correction], *, typed: bool) -> pa.Array:
    type = there.type if typed and not pa.types.is_null(there.type) else None
    pieces = []
    for i, correction in enumerate(corrections):
        if name not in correction.values:
            pieces.append(there.slice(i, 1))
            continue
        value = correction.values[name]
        try:
            pieces.append(_value(value, type) if typed else pa.array([_text(value)], there.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            what = "nothing that can be a value" if type is None else f"no {type}"
            raise SourceError(f"{correction.where}, column {name!r}: {shorten(value)} is {what}") from error
    found = pa.unify_schemas([pa.schema([("", piece.type)]) for piece in pieces], promote_options="permissive")
    return pa.concat_arrays([piece.cast(found.field(0).type) for piece in pieces])


def _value(value: object, type: pa.DataType | None) -> pa.Array:
    try:
        return pa.array([value if type is None else _plain(value, type)], type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([_text(value)]).cast(type)


def _plain(value: Any, type: pa.DataType) -> Any:
    """The value with text where the type has text: other rows may be the reason that a number is text there."""
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return _text(value)
    if pa.types.is_struct(type) and isinstance(value, dict):
        fields = {field.name: field.type for field in type}
        return {name: _plain(part, fields[name]) if name in fields else part for name, part in value.items()}
    if pa.types.is_list(type) and isinstance(value, list):
        return [_plain(part, type.value_type) for part in value]
    return value


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
