"""What is stored in a way that costs more than it must: found in a sample's columns, with what the cure would save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import Config
from pipeline.measure import stored_bytes
from pipeline.sample import Sample
from transforms.compression import Compression

UNIQUE = 0.95  # of its values differ: a column that names rows
MANY_VALUES = 1000  # different ones, of text that is no category any more
LONG_NAME = 24  # letters
PIXELS = 16 * 16  # numbers from 0 to 255 in a row: fewer are no image
TOLD = 0.01  # of the stored bytes: what saves less is not told


@dataclass(frozen=True)
class Advice:
    """``change``: keys of the config and their values, where it can be followed there.

    ``weight``: what it saves as a part of the stored bytes or of the time, for the order.
    """

    text: str
    weight: float
    change: tuple[tuple[str, object], ...] = ()


def look_at_columns(config: Config, sample: Sample, compression: Compression) -> Iterator[Advice]:
    """Advice on each column that costs more than it must; what it saves is measured on the sample."""
    looker = _Looker(config, sample, compression, stored_bytes(sample.written, sample, compression))
    for name in sample.written.schema.names:
        yield from looker.look(name)
    yield from looker.names()
    yield from looker.wide_floats()


@dataclass(frozen=True)
class _Looker:
    config: Config
    sample: Sample
    compression: Compression
    total: int

    def look(self, name: str) -> Iterator[Advice]:
        column = self.sample.written.column(name)
        values = column.drop_null()
        if _is_list(column.type):
            yield from self._pixels(name, column)
            return
        if len(values) < 2:
            return
        distinct = pc.count_distinct(values).as_py()
        rows = self.sample.num_rows
        if distinct == 1 and len(values) == rows:
            without = self._saving(name, None)
            yield Advice(f"`{name}` has one value in all {rows:,} rows of the sample: {_drop(without)}", without)
            return
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            return
        numbers = _as_numbers(values)
        if numbers is not None:
            saved = self._saving(name, _put(column, numbers))
            yield Advice(
                f"`{name}` holds numbers as text: as {numbers.type} it would take {_fewer(saved)} of the stored bytes, "
                "and readers would have no text to parse",
                max(saved, TOLD),
            )
        elif distinct > UNIQUE * len(values) and len(values) > 100:
            without = self._saving(name, None)
            if without > TOLD:
                yield Advice(
                    f"`{name}` is different in nearly every row, and no model learns from that: {_drop(without)}",
                    without,
                )
        elif distinct > MANY_VALUES:
            ranks = pc.cast(values.dictionary_encode().indices, pa.int64())
            saved = self._saving(name, _put(column, ranks))
            yield from self._told(
                f"`{name}` is text with more than {distinct:,} different values: as an index into a vocabulary "
                "(tft.compute_and_apply_vocabulary) it",
                saved,
            )

    def names(self) -> Iterator[Advice]:
        """Each Example has the name of each of its features."""
        names = self.sample.written.schema.names
        long = [name for name in names if len(name) > LONG_NAME]
        short = [f"{i:03d}" if name in long else name for i, name in enumerate(names)]
        if long:
            saved = self._part(self.sample.written.rename_columns(short))
            yield from self._told(
                f"{len(long)} features have long names (`{long[0]}`), which each Example repeats: with short ones it",
                saved,
            )

    def wide_floats(self) -> Iterator[Advice]:
        wide = {
            field.name
            for batch in self.sample.raw
            for field in batch.data.schema
            if batch.typed and pa.types.is_float64(field.type)
        }
        total = sum(batch.data.nbytes for batch in self.sample.raw)
        num_bytes = sum(batch.data.column(name).nbytes for batch in self.sample.raw for name in wide)
        if wide and num_bytes > 0.1 * total:
            yield Advice(
                f"{len(wide)} columns of the source are float64 (`{min(wide)}`), and Examples hold float32: as float32 "
                f"the source would be about {num_bytes / 2 / total:.0%} smaller to read",
                num_bytes / 2 / total / 2,
            )

    def _pixels(self, name: str, column: pa.Array) -> Iterator[Advice]:
        flat = column.flatten()
        if not pa.types.is_integer(flat.type) or len(flat) < PIXELS * max(1, len(column)):
            return
        extremes = pc.min_max(flat)
        if extremes["min"].as_py() < 0 or extremes["max"].as_py() > 255:
            return
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        pixels = flat.to_numpy(zero_copy_only=False).astype(np.uint8).tobytes()
        as_bytes = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(column), [None, offsets.buffers()[1], pa.py_buffer(pixels)]
        )
        saved = self._saving(name, as_bytes)
        yield Advice(
            f"`{name}` looks like pixels ({int(lengths.mean()):,} numbers from 0 to 255 in a row), stored as int64: "
            f"{_fewer(saved)} of the stored bytes as one bytes feature, and still fewer as PNG or JPEG "
            "(source.format: images, or source.load)",
            saved,
        )

    def _told(self, text: str, part: float) -> Iterator[Advice]:
        if part > TOLD:
            yield Advice(f"{text} would take {_fewer(part)} of the stored bytes", part)

    def _saving(self, name: str, instead: pa.Array | None) -> float:
        """The part of the stored bytes that is gone without the column, or with another one instead."""
        batch = self.sample.written
        at = batch.schema.get_field_index(name)
        if instead is None:
            return self._part(batch.remove_column(at)) if batch.num_columns > 1 else 1.0
        return self._part(batch.set_column(at, name, instead))

    def _part(self, batch: pa.RecordBatch) -> float:
        return 1 - stored_bytes(batch, self.sample, self.compression) / self.total


def _drop(part: float) -> str:
    return f"without it, {part:.1%} of the stored bytes would be gone"


def _fewer(part: float) -> str:
    return f"{part:.1%} less" if part >= 0 else f"{-part:.1%} more"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _as_numbers(values: pa.Array) -> pa.Array | None:
    """int64 or float32; None where a value is no number, or is more than one (0042)."""
    try:
        text = values.cast(pa.large_string() if pa.types.is_large_binary(values.type) else pa.string())
    except pa.ArrowInvalid:
        return None
    if pc.any(pc.match_substring_regex(text, r"^-?0\d")).as_py():
        return None
    for kind in (pa.int64(), pa.float32()):
        try:
            return text.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def _put(column: pa.Array, present: pa.Array) -> pa.Array:
    """The values where the column has one."""
    places = np.full(len(column), -1, np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    places[valid] = np.arange(len(present))
    return present.take(pa.array(places, mask=~valid))


def largest(sizes: dict[str, int], number: int) -> Sequence[str]:
    """The names with the most bytes, the largest first."""
    return sorted(sizes, key=lambda name: (-sizes[name], name))[:number]
