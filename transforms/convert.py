"""Values of a column as the int64, float32 or binary values of a feature, and which of them cannot be that.

A null stays null.  Conversions are those that keep the value: text is parsed strictly, floats become integers only when
they are whole, nothing wraps around.  Times become whole units since the epoch in UTC, rounded down where the feature's
unit is coarser; a float64 becomes the nearest float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import SchemaError, shorten
from transforms.native import Int64, Pointer, kernel
from transforms.schema import ARROW_TYPES, Feature, TimeUnit

_text_to_int64 = kernel("text_to_int64", [Pointer, Pointer, Pointer, Int64, Int64, Pointer, Pointer], Int64)

_EXACT = 1 << 53  # doubles are exact integers up to here
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "days": 86_400 * 10**9}
_ZONE = r":.*([+-]\d\d(:?\d\d)?|Z)$"  # only a time has one


@dataclass(frozen=True)
class Converted:
    """``values``: as many as came in.  ``faults``: which of them (bool) have no meaning, and for what reason."""

    values: pa.Array
    faults: tuple[tuple[np.ndarray, str], ...] = ()


def _converted(values: pa.Array, bad: np.ndarray, reason: str) -> Converted:
    return Converted(values, ((bad, reason),)) if bad.any() else Converted(values)


class Mismatch(SchemaError):
    """The type of a whole column has no way to the feature's kind."""


def convert(values: pa.Array, feature: Feature) -> Converted:
    """The values as the feature's kind.  Raises Mismatch, whose message is the rest of a sentence about the column."""
    if pa.types.is_null(values.type):
        return Converted(pa.nulls(len(values), ARROW_TYPES[feature.kind]))
    if feature.kind == "int":
        return _to_int(values, feature)
    if feature.float64:
        return _to_float64_bytes(values)
    return _to_float(values) if feature.kind == "float" else Converted(_to_bytes(values))


def is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_binary(kind)
        or types.is_large_string(kind)
        or types.is_large_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
    )


# ---- int -------------------------------------------------------------------------------------------------------------


def _to_int(values: pa.Array, feature: Feature) -> Converted:
    kind = values.type
    if kind == pa.int64():
        return Converted(values)
    if is_text(kind):
        return _parse_times(values, feature.time_unit) if feature.time_unit else _parse_ints(values)
    if pa.types.is_temporal(kind):
        return _to_epoch(values, feature.time_unit)
    if kind == pa.uint64():
        reason = "does not fit a 64-bit integer; declare the column as FLOAT or BYTES"
        return _to_int64(values, pc.greater(values, pa.scalar(2**63 - 1, kind)), reason)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return Converted(values.cast(pa.int64()))
    if pa.types.is_floating(kind):
        return _whole_floats(values)
    if pa.types.is_decimal(kind):
        return _parse_ints(pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", ""))
    raise _mismatch(values, feature)


def _to_int64(values: pa.Array, bad: pa.BooleanArray, reason: str) -> Converted:
    """The cast of all values or, when some are bad, of the others."""
    mask = _mask(bad)
    if not mask.any():
        return Converted(values.cast(pa.int64()))
    return _converted(_nulled(values, mask).cast(pa.int64()), mask, reason)


def _mask(bad: pa.BooleanArray) -> np.ndarray:
    return np.array(bad.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _nulled(values: pa.Array, mask: np.ndarray) -> pa.Array:
    return pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)


def _parse_ints(values: pa.Array) -> Converted:
    text = _narrow(values, pa.binary())
    out, bad = np.empty(len(text), np.int64), np.empty(len(text), np.uint8)
    valid, offsets, data = text.buffers()
    found = len(text) and _text_to_int64(
        offsets.address,
        data.address if data else None,
        valid.address if valid else None,
        text.offset,
        len(text),
        out.ctypes.data,
        bad.ctypes.data,
    )
    parsed = pa.Array.from_buffers(
        pa.int64(), len(text), [_validity(text), pa.py_buffer(out)], null_count=text.null_count
    )
    if not found:
        return Converted(parsed)
    reason = "is not an integer that fits 64 bits; correct it, or declare the column as FLOAT or BYTES"
    return _converted(parsed, bad.view(bool), reason)


def _validity(column: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of a column, from bit 0 on."""
    if not column.null_count:
        return None
    if column.offset == 0:
        return column.buffers()[0]
    return pa.array(np.asarray(column.is_valid().to_numpy(zero_copy_only=False))).buffers()[1]


def _whole_floats(values: pa.Array) -> Converted:
    doubles = values.cast(pa.float64())
    whole = pc.and_(pc.equal(doubles, pc.trunc(doubles)), pc.less_equal(pc.abs(doubles), float(_EXACT)))
    reason = "is not a whole number that a double holds exactly; declare the column as FLOAT"
    return _to_int64(doubles, pc.invert(whole), reason)


# ---- times -----------------------------------------------------------------------------------------------------------


def _to_epoch(values: pa.Array, unit: TimeUnit | None) -> Converted:
    """Whole units since the epoch (or midnight, for times of day); durations in their own unit."""
    kind = values.type
    if pa.types.is_duration(kind) and unit is None:
        return Converted(values.cast(pa.int64()))
    if unit is None:
        raise Mismatch(
            f"holds {kind} values, whose unit as an INT is not declared; say time_domain "
            "{ integer_format: UNIX_SECONDS }, or another unit"
        )
    own = "days" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
    counts = values.cast(pa.int32()).cast(pa.int64()) if kind.bit_width == 32 else values.cast(pa.int64())
    return _rescaled(counts, _NANOSECONDS[own], _NANOSECONDS[unit])


def _rescaled(counts: pa.Array, own: int, wanted: int) -> Converted:
    """Counts of one unit as those of another, both in nanoseconds."""
    if own == wanted:
        return Converted(counts)
    plain = counts.fill_null(0).to_numpy()
    if own < wanted:
        return Converted(_with_nulls(plain // (wanted // own), counts))
    factor = own // wanted
    limit = (2**63 - 1) // factor
    bad = (plain > limit) | (plain < -limit)
    scaled = _with_nulls(np.where(bad, 0, plain) * factor, counts)
    return _converted(scaled, bad, "does not fit the unit of the feature; declare a coarser one")


def _with_nulls(plain: np.ndarray, like: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        pa.int64(), len(like), [_validity(like), pa.py_buffer(np.ascontiguousarray(plain))], null_count=like.null_count
    )


def _parse_times(values: pa.Array, unit: TimeUnit) -> Converted:
    """ISO 8601 dates and times, with a zone or in UTC; a plain integer is a count of units already."""
    text = _narrow(values, pa.string())
    counts = _parse_ints(text)
    if not counts.faults:
        return counts
    (no_integer, _), *_ = counts.faults
    times, bad = _parse_iso(_nulled(text, ~no_integer), "ns" if unit == "ns" else "us")
    scaled = _rescaled(times, 1 if unit == "ns" else 1000, _NANOSECONDS[unit])
    both = pc.if_else(pa.array(no_integer), scaled.values, counts.values)
    return _converted(both, bad, "is neither an ISO 8601 date or time nor an integer")


def _parse_iso(text: pa.StringArray, unit: str) -> tuple[pa.Array, np.ndarray]:
    """Units (ns or us) since the epoch, and which texts (bool) are no times."""
    if unit == "us":
        text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    zoned = _mask(pc.match_substring_regex(text, _ZONE))
    parts, bad = [], np.zeros(len(text), bool)
    for others, kind in ((zoned, pa.timestamp(unit)), (~zoned, pa.timestamp(unit, "UTC"))):
        part = _nulled(text, others)
        try:
            times = part.cast(kind)
        except pa.ArrowInvalid:
            wrong = np.array([_fails(value, kind) for value in part])
            bad |= wrong
            times = _nulled(part, wrong).cast(kind)
        parts.append(times.cast(pa.int64()))
    return pc.coalesce(*parts), bad


def _fails(value: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowInvalid:
        return True
    return False


# ---- float and bytes -------------------------------------------------------------------------------------------------


def _to_float(values: pa.Array) -> Converted:
    if values.type == pa.float32():
        return Converted(values)
    doubles = _to_double(values)
    # Arrow's cast gives infinity where a double is beyond float32, without an error.
    singles = doubles.values.cast(pa.float32(), safe=False)
    overflow = pc.and_(pc.is_inf(singles), pc.invert(pc.is_inf(doubles.values)))
    if not pc.any(overflow).as_py():
        return Converted(singles, doubles.faults)
    reason = "does not fit float32; declare the column as BYTES with the tag float64 to keep 64 bits"
    return Converted(singles, (*doubles.faults, (_mask(overflow), reason)))


def _to_double(values: pa.Array) -> Converted:
    kind = values.type
    if is_text(kind):
        return _parse_doubles(_narrow(values, pa.string()))
    if pa.types.is_boolean(kind):
        return Converted(values.cast(pa.int8()).cast(pa.float64()))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return Converted(values.cast(pa.float64(), safe=False))
    raise Mismatch(f"holds {kind} values, which are no floats; declare the column as INT or BYTES")


def _parse_doubles(text: pa.StringArray) -> Converted:
    try:
        parsed = Converted(text.cast(pa.float64()))
    except pa.ArrowInvalid:
        bad = np.array([_fails(value, pa.float64()) for value in text])
        parsed = _converted(
            _nulled(text, bad).cast(pa.float64()), bad, "is not a number; correct it, or declare the column as BYTES"
        )
    infinite = pc.is_inf(parsed.values)
    if not pc.any(infinite).as_py():
        return parsed
    overflow = _mask(pc.and_(infinite, pc.match_substring_regex(text, r"\d")))  # 1e400; "inf" has no digit
    reason = "does not fit a 64-bit float; declare the column as BYTES"
    found = _converted(_nulled(parsed.values, overflow), overflow, reason)
    return Converted(found.values, parsed.faults + found.faults)


def _to_float64_bytes(values: pa.Array) -> Converted:
    doubles = _to_double(values)
    raw = doubles.values.fill_null(0.0).to_numpy().astype("<f8")
    offsets = np.arange(len(raw) + 1, dtype=np.int32) * 8
    buffers = [_validity(doubles.values), pa.py_buffer(offsets), pa.py_buffer(raw)]
    packed = pa.Array.from_buffers(pa.binary(), len(raw), buffers, null_count=doubles.values.null_count)
    return Converted(packed, doubles.faults)


def _to_bytes(values: pa.Array) -> pa.Array:
    kind = values.type
    if is_text(kind):
        return _narrow(values, pa.binary())
    if pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    if pa.types.is_nested(kind):
        raise Mismatch(f"holds {kind} values; declare their fields as features, or leave the column out")
    return values.cast(pa.string()).view(pa.binary())


def _narrow(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Text of any layout as ``kind`` (string or binary), without a copy where it has 32-bit offsets already."""
    if values.type == kind:
        return values
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return values.view(kind)
    return values.cast(kind)


def _mismatch(values: pa.Array, feature: Feature) -> Mismatch:
    return Mismatch(f"holds {shorten(str(values.type))} values, and the schema says {feature.kind}")
