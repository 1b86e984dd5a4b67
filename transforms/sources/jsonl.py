"""JSON Lines: one object a line.  A row's ordinal is that of its line.

Types are those of the JSON text: whole numbers are integers, other numbers doubles, and text is never a number or a
time.  Blocks of lines are typed one by one; what the types of all rows come to is the schema's matter, so nothing
depends on where blocks end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from transforms.errors import SchemaError, SourceError, shorten
from transforms.native import Int64, Pointer, kernel
from transforms.partition import BadRow, FileSlice, Partition, Place, RawBatch
from transforms.sources import jsonlines
from transforms.sources.compressed import TextStream
from transforms.sources.lines import cut_lines, line_blocks, locate_lines
from transforms.sources.nested import is_list, leaves
from transforms.sources.slices import cut_files, warn_empty
from transforms.sources.typed import absent

MAX_ROWS = 16_384  # of a batch

_quote_numbers = kernel("json_quote_numbers", [Pointer, Int64, Pointer], Int64)


class JsonlSource:
    """See ``sources.Source``.  Slices of plain files count bytes; a packed file is one slice."""

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        return cut_files(paths, cut_lines, target_bytes=target_bytes)

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        for piece in partition.slices:
            yield from _read(piece, JsonParser(piece.path, columns, declared, on_bad_row))

    def locate(self, path: str, rows: Sequence[int]) -> list[Place]:
        return locate_lines(path, rows)


def _read(piece: FileSlice, parser: JsonParser) -> Iterator[RawBatch]:
    row = piece.first_row
    with TextStream(piece) as stream:
        for lines in line_blocks(stream, skip_bom=piece.start == 0):
            count = lines.count(b"\n") + (not lines.endswith(b"\n"))
            yield from parser.parse(lines, np.arange(row, row + count, dtype=np.int64))
            row += count
        if stream.compression and stream.num_bytes == 0:
            warn_empty(piece.path)


@dataclass
class JsonParser:
    """Lines of one file into batches.

    ``times``: the columns that Arrow would take for timestamps, as the text that they are.
    """

    path: str
    columns: frozenset[str] | None
    declared: Mapping[str, str] | None
    on_bad_row: Callable[[BadRow], None]
    times: pa.Schema = pa.schema([])

    def parse(self, lines: bytes, rows: np.ndarray) -> Iterator[RawBatch]:
        """The batches of the lines, whose ordinals are ``rows``."""
        try:
            table = self._typed(lines)
            if table.num_rows != len(rows) and table.num_rows != jsonlines.filled(lines).sum():
                raise pa.ArrowInvalid("a string goes on in the next line, or a line holds two objects")
        except pa.ArrowInvalid:
            self.times = pa.schema([])  # of other blocks: here the column may be no text at all
            lines, rows = self._good_lines(lines, rows)
            table, lines, rows = self._repaired(lines, rows)
        if table.num_rows != len(rows):
            rows = rows[jsonlines.filled(lines)]
        self._check_integers(table, lines, rows)
        table = self._with_text_kept(table, lines)
        table = self._with_columns(table)
        at = 0
        for batch in table.combine_chunks().to_batches(max_chunksize=MAX_ROWS):
            yield RawBatch(batch, self.path, rows[at : at + batch.num_rows])
            at += batch.num_rows

    def _with_columns(self, table: pa.Table) -> pa.Table:
        """The columns that are wanted; one that no row of the block has is missing in each of them."""
        missing = absent(table.column_names, self.columns, self.declared)
        if self.columns is not None:
            table = table.select(
                [name for name in table.column_names if name in self.columns] or table.column_names[:1]
            )
        for name in missing:
            table = table.append_column(name, pa.nulls(table.num_rows))
        return table

    def _typed(self, lines: bytes) -> pa.Table:
        _check_utf8(lines)
        table = _parse(lines, self.times)
        _check_finite(table)
        times = [field for field in map(_times_only, table.schema) if field is not None]
        if not times:
            return table
        self.times = pa.unify_schemas([self.times, pa.schema(times)])
        return _parse(lines, self.times).select(table.column_names)

    def _good_lines(self, lines: bytes, rows: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Without the lines that are no JSON objects, which are reported."""
        split = lines.split(b"\n")
        good = []
        for i in range(len(rows)):
            reason = jsonlines.fault(split[i])
            if reason is None:
                good.append(i)
            elif reason:
                text = shorten(split[i].decode("utf-8", "replace"))
                self.on_bad_row(BadRow(self.path, int(rows[i]), None, text, reason))
        return b"".join(split[i] + b"\n" for i in good), rows[good]

    def _repaired(self, lines: bytes, rows: np.ndarray) -> tuple[pa.Table, bytes, np.ndarray]:
        """The table of lines that Arrow refused, or read wrongly, as a whole; and the lines and rows in it."""
        if not lines:
            return pa.table({}), lines, rows
        try:
            return self._typed(lines), lines, rows
        except pa.ArrowInvalid as error:
            mixture = jsonlines.mixture(lines, rows)
            nulls = jsonlines.nulls_in_lists(lines)
            if mixture is None and not nulls:
                return self._repaired(*self._lines_one_by_one(lines, rows, error))
            column = mixture.source[0] if mixture else next(iter(nulls.values()))[0]
        if self.columns is not None and column not in self.columns:
            return self._repaired(jsonlines.without(lines, column), rows)
        if mixture is None:
            return self._repaired(*self._without_nulls_in_lists(lines, rows, nulls))
        if self.declared is not None:
            with contextlib.suppress(pa.ArrowInvalid):
                return self._typed(_quoted(lines)), lines, rows
        raise SchemaError(f"{self.path}: {mixture}")

    def _lines_one_by_one(self, lines: bytes, rows: np.ndarray, error: Exception) -> tuple[bytes, np.ndarray]:
        """Without the lines that Arrow does not read: a number beyond a double, half a surrogate."""
        split, good = lines.removesuffix(b"\n").split(b"\n"), []
        for i, line in enumerate(split):
            try:
                _parse(line, pa.schema([]))
                good.append(i)
            except pa.ArrowInvalid as why:
                text = shorten(line.decode())
                self.on_bad_row(BadRow(self.path, int(rows[i]), None, text, f"cannot be read: {why}"))
        if len(good) == len(split):
            where = f"{self.path}, in the lines from {int(rows[0]) + 1} on"
            raise SourceError(f"{where}: cannot be read: {error}") from error
        return b"".join(split[i] + b"\n" for i in good), rows[good]

    def _without_nulls_in_lists(
        self, lines: bytes, rows: np.ndarray, nulls: Mapping[int, tuple[str, ...]]
    ) -> tuple[bytes, np.ndarray]:
        """Arrow loses a null at the head of a list of numbers; it would be a bad row in any case."""
        for index, source in nulls.items():
            reason = "a null inside the list; leave it out of the list, or make the list null"
            self.on_bad_row(BadRow(self.path, int(rows[index]), ".".join(source), None, reason))
        kept = [line for i, line in enumerate(lines.split(b"\n")) if line and i not in nulls]
        return b"".join(line + b"\n" for line in kept), np.delete(rows, list(nulls))

    def _check_integers(self, table: pa.Table, lines: bytes, rows: np.ndarray) -> None:
        """Integers beyond 64 bits have no type; where none is declared, they must not become inexact in silence."""
        if self.declared is not None:
            return
        for source, leaf in _leaves(table):
            if leaf.type == pa.float64() and pc.any(pc.greater_equal(pc.abs(leaf), 2.0**63)).as_py():
                found = jsonlines.huge_integer(lines, rows, source)
                if found is not None:
                    row, value = found
                    raise SchemaError(
                        f"{self.path}, row {row + 1}, column {'.'.join(source)!r}: the integer {shorten(value)} does "
                        "not fit 64 bits; give a schema that declares the column as BYTES or FLOAT"
                    )

    def _with_text_kept(self, table: pa.Table, lines: bytes) -> pa.Table:
        """The table with numbers as their exact text in columns that are declared bytes."""
        declared = self.declared or {}
        wanted = {
            source[0]
            for source, leaf in _leaves(table)
            if declared.get(".".join(source)) == "bytes"
            and (pa.types.is_integer(leaf.type) or leaf.type == pa.float64())
        }
        if not wanted:
            return table
        quoted = _parse(_quoted(lines), self.times)
        columns = [quoted[name] if name in wanted else table[name] for name in table.column_names]
        return pa.table(columns, names=table.column_names)


def _leaves(table: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.Array]]:
    """The plain columns of the table, lists flattened to their values."""
    for name, column in zip(table.column_names, table.combine_chunks().columns, strict=True):
        for source, leaf in leaves(name, column.combine_chunks()):
            while is_list(leaf.type):
                leaf = leaf.flatten()
            yield source, leaf


def _parse(lines: bytes, times: pa.Schema) -> pa.Table:
    table = arrow_json.read_json(
        pa.BufferReader(lines),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=times),
    )
    table.validate()  # fails where nulls of a list were lost
    return table


def _check_utf8(lines: bytes) -> None:
    """Raises ArrowInvalid, as for other faults of JSON that Arrow finds by itself."""
    buffers = [None, pa.py_buffer(np.array([0, len(lines)])), pa.py_buffer(lines)]
    pa.Array.from_buffers(pa.large_binary(), 1, buffers).cast(pa.large_string())


def _check_finite(table: pa.Table) -> None:
    """Raises ArrowInvalid for NaN and infinities, which Arrow takes and JSON has not."""
    floats = (leaf for _, leaf in _leaves(table) if leaf.type == pa.float64())
    if not all(pc.all(pc.is_finite(leaf)).as_py() in (True, None) for leaf in floats):
        raise pa.ArrowInvalid("NaN or infinity")


def _times_only(field: pa.Field) -> pa.Field | None:
    """The field with the timestamps in it as text, and nothing else; None: there are none."""
    kind = _as_text(field.type)
    return None if kind is None else pa.field(field.name, kind)


def _as_text(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        inner = _as_text(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [field for field in map(_times_only, kind) if field is not None]
        return pa.struct(fields) if fields else None
    return None


def _quoted(lines: bytes) -> bytes:
    """The lines with every number in quotes."""
    source, out = np.frombuffer(lines, np.uint8), np.empty(3 * len(lines), np.uint8)
    size = _quote_numbers(source.ctypes.data, len(source), out.ctypes.data)
    return out[:size].tobytes()
