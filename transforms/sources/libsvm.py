"""LIBSVM (SVMlight) files: ``label [qid:q] index:value … [# comment]``, a row a line.

Columns: ``label`` (double), ``qid`` (int64, missing where a line has none), and ``index`` (lists of int64) with
``value`` (lists of double).  Blank lines and lines of nothing but a comment are no rows.
Source: https://www.cs.cornell.edu/people/tj/svm_light/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import shorten
from transforms.partition import BadRow, FileSlice, Partition, Place, RawBatch
from transforms.sources.compressed import TextStream
from transforms.sources.lines import cut_lines, line_blocks, locate_lines
from transforms.sources.slices import cut_files
from transforms.sources.typed import chosen, no_rows, raw_batches

SCHEMA = pa.schema(
    [
        ("label", pa.float64()),
        ("qid", pa.int64()),
        ("index", pa.list_(pa.int64())),
        ("value", pa.list_(pa.float64())),
    ]
)


class LibsvmSource:
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
            yield from _read(piece, columns, on_bad_row)

    def locate(self, path: str, rows: Sequence[int]) -> list[Place]:
        return locate_lines(path, rows)


def _read(piece: FileSlice, columns: frozenset[str] | None, on_bad_row: Callable[[BadRow], None]) -> Iterator[RawBatch]:
    names = chosen(piece.path, SCHEMA.names, columns)
    row = piece.first_row
    if row == 0:
        yield no_rows(piece.path, pa.schema([SCHEMA.field(name) for name in names]))
    with TextStream(piece) as stream:
        for block in line_blocks(stream, skip_bom=piece.start == 0):
            lines = block.removesuffix(b"\n").split(b"\n")
            found, rows = _rows(lines, piece.path, row, on_bad_row)
            for batch in raw_batches(piece.path, [found.select(names)], first_row=0):
                yield RawBatch(batch.data, piece.path, rows[batch.rows])
            row += len(lines)


def _rows(
    lines: list[bytes], path: str, row: int, on_bad_row: Callable[[BadRow], None]
) -> tuple[pa.RecordBatch, np.ndarray]:
    """The rows of the lines, and their ordinals; halves of lines that cannot be parsed, down to the one at fault."""
    try:
        return _parse(lines, row)
    except (ValueError, IndexError) as error:  # Arrow's errors are such too
        if len(lines) == 1:
            on_bad_row(BadRow(path, row, None, shorten(lines[0]), f"is no line of LIBSVM: {_reason(error)}"))
            return pa.RecordBatch.from_pylist([], schema=SCHEMA), np.zeros(0, np.int64)
    middle = len(lines) // 2
    halves = [_rows(lines[:middle], path, row, on_bad_row), _rows(lines[middle:], path, row + middle, on_bad_row)]
    return pa.concat_batches([batch for batch, _ in halves]), np.concatenate([rows for _, rows in halves])


def _parse(lines: list[bytes], row: int) -> tuple[pa.RecordBatch, np.ndarray]:
    text = pc.utf8_trim_whitespace(pc.replace_substring_regex(pa.array(lines, pa.string()), "#.*", ""))
    filled = pc.greater(pc.binary_length(text), 0)
    tokens = pc.utf8_split_whitespace(text.filter(filled))
    label = pc.list_element(tokens, 0).cast(pa.float64())
    pairs = pc.list_slice(tokens, 1)
    parts = pc.split_pattern(pairs.flatten(), ":")
    sizes = pc.min_max(parts.value_lengths())
    if len(parts) and (sizes["min"].as_py(), sizes["max"].as_py()) != (2, 2):
        raise ValueError("what follows the label must be index:value")
    keys, values = (pc.list_element(parts, i) for i in (0, 1))
    offsets = pairs.offsets.to_numpy() - pairs.offsets[0].as_py() if len(pairs) else np.zeros(1, np.int32)
    is_qid = pc.equal(keys, "qid").to_numpy(zero_copy_only=False).astype(bool)
    starts = offsets[:-1][np.diff(offsets) > 0]
    if not np.isin(np.flatnonzero(is_qid), starts).all():
        raise ValueError("qid must stand once, behind the label")
    with_qid = np.zeros(len(label), bool)
    with_qid[np.flatnonzero(np.diff(offsets) > 0)[is_qid[starts]]] = True
    qid = np.zeros(len(label), np.int64)
    qid[with_qid] = values.filter(pa.array(is_qid)).cast(pa.int64()).to_numpy()
    kept = np.concatenate([[0], np.cumsum(~is_qid)])[offsets].astype(np.int32)
    others = pa.array(~is_qid)
    index = pa.ListArray.from_arrays(kept, keys.filter(others).cast(pa.int64()))
    value = pa.ListArray.from_arrays(kept, values.filter(others).cast(pa.float64()))
    batch = pa.RecordBatch.from_arrays([label, pa.array(qid, mask=~with_qid), index, value], schema=SCHEMA)
    return batch, row + np.flatnonzero(filled.to_numpy(zero_copy_only=False)).astype(np.int64)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else "it has no label"
