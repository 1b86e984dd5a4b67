"""The values that features may have: observed in the data, declared by the schema, and those outside of what it says.

A domain is what the TFMD schema declares: ``string_domain`` (of the feature, or by ``domain`` one of the schema), the
range of ``int_domain`` or ``float_domain``, and ``distribution_constraints.min_domain_mass``, the part of the values
that must lie in it (1 when not given).  Missing values and NaN lie outside of no domain.
Source: https://github.com/tensorflow/metadata/blob/master/tensorflow_metadata/proto/v0/schema.proto
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from transforms.errors import SchemaError, shorten
from transforms.schema import Feature, Schema

MAX_VALUES = 100  # different ones that a domain of text may have
LONGEST = 256  # bytes of such a value
SHOWN = 3


@dataclass(frozen=True)
class Values:
    """Some values of a feature: how many, the least and the greatest of numbers, and which texts.

    ``texts``: sorted; None: more than ``MAX_VALUES`` different ones, a long one, or one that is no UTF-8.
    """

    count: int = 0
    least: int | float | None = None
    greatest: int | float | None = None
    texts: tuple[str, ...] | None = ()

    def __add__(self, other: Values) -> Values:
        both = None if self.texts is None or other.texts is None else tuple(sorted({*self.texts, *other.texts}))
        bounds = [(v.least, v.greatest) for v in (self, other) if v.least is not None and v.greatest is not None]
        return Values(
            count=self.count + other.count,
            least=min((least for least, _ in bounds), default=None),
            greatest=max((greatest for _, greatest in bounds), default=None),
            texts=both if both is None or len(both) <= MAX_VALUES else None,
        )

    def __str__(self) -> str:
        if self.least is not None:
            return f"{self.least}" if self.least == self.greatest else f"{self.least} to {self.greatest}"
        if not self.texts:
            return "many different ones"
        more = f" and {len(self.texts) - SHOWN} more" if len(self.texts) > SHOWN else ""
        return ", ".join(shorten(text) for text in self.texts[:SHOWN]) + more


FeatureValues = Mapping[str, Values]


def to_plain(values: FeatureValues) -> dict[str, Any]:
    return {name: asdict(found) for name, found in values.items()}


def from_plain(content: Mapping[str, Any]) -> FeatureValues:
    return {
        name: Values(**found | {"texts": None if found["texts"] is None else tuple(found["texts"])})
        for name, found in content.items()
    }


def add(parts: Iterable[FeatureValues]) -> dict[str, Values]:
    """The values of all the data, from those of its parts."""
    total: dict[str, Values] = {}
    for part in parts:
        for name, found in part.items():
            total[name] = total.get(name, Values()) + found
    return total


def observe(batches: Iterable[pa.RecordBatch]) -> dict[str, Values]:
    """The values in feature batches (see ``Schema.arrow_schema``).  Memory goes by the number of features."""
    found: dict[str, Values] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            before = found.get(name, Values())
            found[name] = before + _values(_flat(column), texts=before.texts is not None)
    return found


def _flat(column: pa.Array) -> pa.Array:
    while pa.types.is_nested(column.type):
        column = column.flatten()
    return column.drop_null() if column.null_count else column


def _values(column: pa.Array, *, texts: bool = True) -> Values:
    if not len(column):
        return Values()
    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        bounds = pc.min_max(column)  # of floats: NaN does not count
        least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
        return Values(len(column), *((None, None) if least != least else (least, greatest)))
    return Values(len(column), texts=_texts(column) if texts else None)


def _texts(column: pa.Array) -> tuple[str, ...] | None:
    if len(column) > 10 * MAX_VALUES and len(column[: 10 * MAX_VALUES].unique()) > MAX_VALUES:
        return None
    unique = column.unique()
    if len(unique) > MAX_VALUES or pc.max(pc.binary_length(unique)).as_py() > LONGEST:
        return None
    try:
        return tuple(sorted(value.decode() for value in unique.to_pylist()))
    except UnicodeDecodeError:
        return None


# ---- against the schema ----------------------------------------------------------------------------------------------


class DomainCheck:
    """Counts the values of feature batches that lie outside of their domains, and of how many values."""

    def __init__(self, schema: Schema) -> None:
        self._outside = {name: test for name, test in _tests(schema).items() if test is not None}
        self.values: dict[str, int] = dict.fromkeys(self._outside, 0)
        self.strays: dict[str, Values] = {}

    def look(self, batch: pa.RecordBatch) -> None:
        for name, outside in self._outside.items():
            column = _flat(batch.column(name))
            self.values[name] += len(column)
            if not len(column) or (mask := outside(column)) is None:
                continue
            strays = column.filter(mask)
            if len(strays):
                self.strays[name] = self.strays.get(name, Values()) + _values(strays)


_Test = Callable[[pa.Array], pa.Array | None]  # which values lie outside; None: none of them


def _tests(schema: Schema) -> dict[str, _Test | None]:
    proto = text_format.Parse(schema.other, schema_pb2.Schema())
    shared = {domain.name: domain for domain in proto.string_domain}
    return {feature.name: _test(feature, shared) for feature in schema.features}


def _test(feature: Feature, shared: Mapping[str, Any]) -> _Test | None:
    about = text_format.Parse(feature.other, schema_pb2.Feature())
    kind = about.WhichOneof("domain_info")
    if kind in ("string_domain", "domain") and feature.kind == "bytes":
        if kind == "domain" and about.domain not in shared:
            raise SchemaError(
                f"feature {feature.name!r} has the domain {about.domain!r}, which the schema does not define; add a "
                "string_domain of that name"
            )
        domain = about.string_domain if kind == "string_domain" else shared[about.domain]
        known = pa.array([value.encode() for value in domain.value], pa.binary())
        return lambda column: pc.invert(pc.is_in(column, known.cast(column.type)))
    if kind == "int_domain" and feature.kind == "int":
        return _range(about.int_domain, pa.int64())
    if kind == "float_domain" and feature.kind == "float":
        return _range(about.float_domain, pa.float32())
    return None


def _range(domain: Any, type_: pa.DataType) -> _Test | None:
    least = pa.scalar(domain.min, type_) if domain.HasField("min") else None
    greatest = pa.scalar(domain.max, type_) if domain.HasField("max") else None

    def outside(column: pa.Array) -> pa.Array | None:
        bounds = pc.min_max(column)
        below = least is not None and pc.less(bounds["min"], least).as_py()
        above = greatest is not None and pc.greater(bounds["max"], greatest).as_py()
        if below and above:
            return pc.or_(pc.less(column, least), pc.greater(column, greatest))
        return pc.less(column, least) if below else pc.greater(column, greatest) if above else None

    return outside if least is not None or greatest is not None else None


def too_many(schema: Schema, strays: FeatureValues, values: Mapping[str, int]) -> dict[str, Values]:
    """The strays of the features that have more of them than ``min_domain_mass`` allows."""
    allowed = {}
    for feature in schema.features:
        constraints = text_format.Parse(feature.other, schema_pb2.Feature()).distribution_constraints
        allowed[feature.name] = 1 - constraints.min_domain_mass  # 1 when it is not given
    return {name: found for name, found in strays.items() if found.count > allowed[name] * values[name]}


# ---- into the schema -------------------------------------------------------------------------------------------------


def with_domains(schema: Schema, values: FeatureValues) -> Schema:
    """The schema with what was observed: the range of integers, and the texts where they are few and come again."""

    def declared(feature: Feature) -> Feature:
        found, about = values.get(feature.name), text_format.Parse(feature.other, schema_pb2.Feature())
        if found is None or not found.count or feature.time_unit or feature.row_lengths_of:
            return feature
        if feature.kind == "int" and isinstance(found.least, int) and isinstance(found.greatest, int):
            about.int_domain.min, about.int_domain.max = found.least, found.greatest
        elif feature.kind == "bytes" and found.texts and 2 * len(found.texts) <= found.count and not feature.float64:
            about.string_domain.value.extend(found.texts)
        return replace(feature, other=str(text_format.MessageToString(about)))

    return replace(schema, features=tuple(declared(feature) for feature in schema.features))


def widened(schema: Schema, strays: FeatureValues) -> Schema:
    """The schema with domains that hold the strays too; without a domain where they are too many different texts."""
    proto = text_format.Parse(schema.other, schema_pb2.Schema())
    shared = {domain.name: domain for domain in proto.string_domain}

    def wider(feature: Feature) -> Feature:
        found, about = strays.get(feature.name), text_format.Parse(feature.other, schema_pb2.Feature())
        if found is None:
            return feature
        kind = about.WhichOneof("domain_info")
        domain = shared[about.domain] if kind == "domain" else getattr(about, kind)
        if kind in ("int_domain", "float_domain"):
            if domain.HasField("min"):
                domain.min = min(domain.min, found.least)
            if domain.HasField("max"):
                domain.max = max(domain.max, found.greatest)
        elif found.texts is None:
            about.ClearField(kind)
        else:
            domain.value.extend(text for text in found.texts if text not in domain.value)
        return replace(feature, other=str(text_format.MessageToString(about)))

    features = tuple(wider(feature) for feature in schema.features)
    return Schema(features, str(text_format.MessageToString(proto)))
