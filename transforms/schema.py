"""The schema: which features an Example has, of what kind and shape, and which column each comes from.

It is a TensorFlow Metadata ``Schema`` that TensorFlow Transform and Data Validation understand.  How it says things:

  required, ``shape``         ``presence.min_fraction`` 1 and ``shape``: read as ``FixedLenFeature``
  optional, fixed length      ``value_count`` with ``min`` = ``max``: read as ``VarLenFeature``
  any number of values        neither: read as ``VarLenFeature``
  a default value             ``tensor_representation_group``, ``dense_tensor.default_value``: it fills what is missing
  a ragged feature            ``tensor_representation_group``, ``ragged_tensor`` with one ``row_length`` partition: the
                              INT feature that holds the lengths of the inner lists
  a time                      ``time_domain.integer_format``: epoch in that unit, UTC
  a field of a struct         the annotation tag ``source: ["a", "b"]``; without one, the column of the feature's name
  a feature list              a field of the STRUCT feature ``##SEQUENCE##``, as tfx_bsl has it: the rows become
                              ``SequenceExample`` messages, and the other features their context
  64-bit floats               the annotation tag ``float64``: type BYTES, each value 8 bytes, little-endian, for
                              ``tf.io.decode_raw(value, tf.float64)``

Everything else (domains, constraints, other annotations) is kept as it was written.  A required feature with
``value_count`` 1 and no ``shape``, as Data Validation writes it, gets the shape of one value.
Source: https://github.com/tensorflow/metadata/blob/master/tensorflow_metadata/proto/v0/schema.proto
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from transforms.errors import SchemaError, shorten
from transforms.fingerprint import digest

Kind = Literal["int", "float", "bytes"]
TimeUnit = Literal["s", "ms", "us", "ns", "days"]

ARROW_TYPES: dict[Kind, pa.DataType] = {"int": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}

_TYPES: dict[Kind, int] = {"int": schema_pb2.INT, "float": schema_pb2.FLOAT, "bytes": schema_pb2.BYTES}
_KINDS = {number: kind for kind, number in _TYPES.items()}
_TIME_FORMATS: dict[TimeUnit, int] = {
    "s": schema_pb2.TimeDomain.UNIX_SECONDS,
    "ms": schema_pb2.TimeDomain.UNIX_MILLISECONDS,
    "us": schema_pb2.TimeDomain.UNIX_MICROSECONDS,
    "ns": schema_pb2.TimeDomain.UNIX_NANOSECONDS,
    "days": schema_pb2.TimeDomain.UNIX_DAYS,
}
_TIME_UNITS = {number: unit for unit, number in _TIME_FORMATS.items()}
_DEFAULT_FIELDS: dict[Kind, str] = {"int": "int_value", "float": "float_value", "bytes": "bytes_value"}
SEQUENCE = "##SEQUENCE##"
_SOURCE_TAG = "source: "
_FLOAT64_TAG = "float64"
# TensorFlow Transform leaves features of these stages out, and so do we.
_UNUSED_STAGES = {
    schema_pb2.PLANNED,
    schema_pb2.ALPHA,
    schema_pb2.DEPRECATED,
    schema_pb2.DEBUG_ONLY,
    schema_pb2.DISABLED,
    schema_pb2.VALIDATION_DERIVED,
}


@dataclass(frozen=True)
class Feature:
    """One feature of the Examples.

    ``source``: the column, and the struct fields below it, that the values come from.
    ``shape``: ``()`` exactly one value, ``(n, …)`` a fixed number of values in C order, ``None`` any number.
    ``ragged``: the values of a list of lists, flattened; the lengths are the feature whose ``row_lengths_of`` names it.
    ``steps``: lists of lists of values, one for each step of a SequenceExample, or lists of one value a step.
    ``other``: what else the schema says of the feature, as text.
    """

    name: str
    kind: Kind
    source: tuple[str, ...]
    required: bool = False
    shape: tuple[int, ...] | None = ()
    time_unit: TimeUnit | None = None
    float64: bool = False
    ragged: bool = False
    row_lengths_of: str | None = None
    steps: bool = False
    default: int | float | bytes | None = None
    other: str = ""

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the feature's column in a feature batch."""
        scalar = ARROW_TYPES[self.kind]
        if self.steps:
            return pa.list_(pa.list_(scalar))
        return scalar if self.shape == () else pa.list_(scalar)

    @property
    def num_values(self) -> int | None:
        """How many values a row has, where that is fixed."""
        if self.shape is None:
            return None
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class Schema:
    """``features``: in the order of the columns of feature batches.  ``other``: what else the proto says, as text."""

    features: tuple[Feature, ...]
    other: str = ""

    @classmethod
    def from_text(cls, text: str, *, path: str) -> Schema:
        """The schema that a ``schema.pbtxt`` holds.  Raises SchemaError, which names ``path`` and the feature."""
        proto = schema_pb2.Schema()
        try:
            text_format.Parse(text, proto)
        except text_format.ParseError as error:
            raise SchemaError(f"{path}: is not a TensorFlow Metadata schema in text form: {error}") from error
        return _from_proto(proto, path)

    def to_text(self) -> str:
        """The text form: the same for equal schemas, and read by ``from_text`` as an equal one."""
        return str(text_format.MessageToString(self.to_proto()))

    def to_proto(self) -> schema_pb2.Schema:
        """The TFMD schema.  Features of any number of values have no representation: readers take their default one."""
        proto = text_format.Parse(self.other, schema_pb2.Schema())
        by_name = {f.row_lengths_of: f.name for f in self.features if f.row_lengths_of}
        for feature in self.features:
            if not feature.steps:
                _write_feature(feature, proto.feature.add())
        if self.sequence is not None:
            struct = proto.feature.add(name=SEQUENCE, type=schema_pb2.STRUCT)
            for feature in self.features:
                if feature.steps:
                    _write_feature(feature, struct.struct_domain.feature.add())
        for feature in self.features:
            if feature.ragged:
                representation = proto.tensor_representation_group[""].tensor_representation[feature.name]
                representation.ragged_tensor.feature_path.step.append(feature.name)
                representation.ragged_tensor.partition.add(row_length=by_name[feature.name])
            elif feature.default is not None:
                dense = proto.tensor_representation_group[""].tensor_representation[feature.name].dense_tensor
                dense.column_name = feature.name
                dense.shape.CopyFrom(_shape_proto(feature.shape or ()))
                setattr(dense.default_value, _DEFAULT_FIELDS[feature.kind], feature.default)
        return proto

    @property
    def sequence(self) -> frozenset[str] | None:
        """The features that become feature lists of SequenceExamples; None: rows become Examples."""
        return frozenset(feature.name for feature in self.features if feature.steps) or None

    @cached_property
    def digest(self) -> str:
        """A hash of all that the schema says."""
        return digest(self.to_text())

    def arrow_schema(self) -> pa.Schema:
        """The schema of feature batches: int64, float32 and binary columns, and lists of these."""
        return pa.schema([pa.field(feature.name, feature.arrow_type) for feature in self.features])


def _write_feature(feature: Feature, proto: schema_pb2.Feature) -> None:
    text_format.Merge(feature.other, proto)
    proto.name = feature.name
    proto.type = _TYPES[feature.kind]
    if feature.required:
        proto.presence.min_fraction = 1
        proto.presence.min_count = max(proto.presence.min_count, 1)
        if feature.shape is not None:
            proto.shape.CopyFrom(_shape_proto(feature.shape))
    elif feature.shape is not None and feature.default is None:
        proto.value_count.min = proto.value_count.max = feature.num_values or 0
    if feature.time_unit:
        proto.time_domain.integer_format = _TIME_FORMATS[feature.time_unit]
    if feature.source != (feature.name,) and not feature.row_lengths_of:
        proto.annotation.tag.append(_SOURCE_TAG + json.dumps(feature.source, ensure_ascii=False))
    if feature.float64:
        proto.annotation.tag.append(_FLOAT64_TAG)


def _shape_proto(shape: tuple[int, ...]) -> schema_pb2.FixedShape:
    return schema_pb2.FixedShape(dim=[schema_pb2.FixedShape.Dim(size=size) for size in shape])


# ---- from the proto --------------------------------------------------------------------------------------------------


def _from_proto(proto: schema_pb2.Schema, path: str) -> Schema:
    if proto.sparse_feature or proto.weighted_feature:
        name = (list(proto.sparse_feature) or list(proto.weighted_feature))[0].name
        raise SchemaError(f"{path}: feature {name!r} is a sparse or weighted feature; declare its columns as features")
    features: dict[str, Feature] = {}
    context = [(message, False) for message in proto.feature if not _is_sequence(message)]
    steps = [
        (inner, True) for message in proto.feature if _is_sequence(message) for inner in message.struct_domain.feature
    ]
    for message, is_step in [*context, *steps]:
        if message.deprecated or message.lifecycle_stage in _UNUSED_STAGES:
            continue
        if message.name in features:
            raise SchemaError(f"{path}: feature {message.name!r} is there twice; leave one out")
        feature = _read_feature(message, path)
        features[message.name] = _as_steps(feature, path) if is_step else feature
    _read_representations(proto, features, path)
    rest = schema_pb2.Schema()
    rest.CopyFrom(proto)
    rest.ClearField("feature")
    rest.ClearField("tensor_representation_group")
    return Schema(tuple(features.values()), str(text_format.MessageToString(rest)))


def _is_sequence(message: schema_pb2.Feature) -> bool:
    return bool(message.name == SEQUENCE and message.type == schema_pb2.STRUCT)


def _as_steps(feature: Feature, path: str) -> Feature:
    if feature.required or feature.shape is not None:
        raise SchemaError(
            f"{path}: feature {feature.name!r} of {SEQUENCE} has a shape, presence or value_count; leave these out: a "
            "step holds any number of values"
        )
    return replace(feature, steps=True)


def _read_feature(message: schema_pb2.Feature, path: str) -> Feature:
    name = message.name
    if not name:
        raise SchemaError(f'{path}: a feature has no name; write name: "<the column\'s name>"')
    if message.type not in _KINDS:
        raise SchemaError(
            f"{path}: feature {name!r} has type {schema_pb2.FeatureType.Name(message.type)}; features are INT, FLOAT "
            "or BYTES: declare each field of a struct as a feature of its own"
        )
    rest = schema_pb2.Feature()
    rest.CopyFrom(message)
    source, float64 = _read_tags(rest, path)
    required = message.presence.min_fraction == 1
    shape = _read_shape(message, required, path)
    time_unit = _TIME_UNITS.get(message.time_domain.integer_format)
    for key in ("name", "type", "shape", *(("value_count",) if shape is not None else ())):
        rest.ClearField(key)
    if required:
        rest.presence.ClearField("min_fraction")
        if rest.presence.min_count <= 1:
            rest.ClearField("presence")
    if time_unit:
        rest.ClearField("time_domain")
    kind = _KINDS[message.type]
    if time_unit and kind != "int":
        raise SchemaError(f"{path}: feature {name!r} is a time in {time_unit} and must have type INT")
    if float64 and kind != "bytes":
        raise SchemaError(f"{path}: feature {name!r} keeps 64-bit floats and must have type BYTES")
    return Feature(
        name=name,
        kind=kind,
        source=source,
        required=required,
        shape=shape,
        time_unit=time_unit,
        float64=float64,
        other=str(text_format.MessageToString(rest)),
    )


def _read_tags(message: schema_pb2.Feature, path: str) -> tuple[tuple[str, ...], bool]:
    """The source and whether 64-bit floats are kept; takes these tags out of the message."""
    source: tuple[str, ...] = (message.name,)
    kept = []
    for tag in message.annotation.tag:
        if tag.startswith(_SOURCE_TAG):
            source = _read_source(tag, message.name, path)
        elif tag != _FLOAT64_TAG:
            kept.append(tag)
    float64 = _FLOAT64_TAG in message.annotation.tag
    del message.annotation.tag[:]
    message.annotation.tag.extend(kept)
    if not message.annotation.ByteSize():
        message.ClearField("annotation")
    return source, float64


def _read_source(tag: str, name: str, path: str) -> tuple[str, ...]:
    try:
        steps = json.loads(tag.removeprefix(_SOURCE_TAG))
    except ValueError:
        steps = None
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) and step for step in steps):
        raise SchemaError(
            f"{path}: feature {name!r} has the tag {shorten(tag)}; write source: and the names of the column and of "
            'the fields below it as a JSON list, such as source: ["user", "age"]'
        )
    return tuple(steps)


def _read_shape(message: schema_pb2.Feature, required: bool, path: str) -> tuple[int, ...] | None:
    count = message.value_count
    if message.HasField("shape"):
        shape = tuple(dim.size for dim in message.shape.dim)
        if not required:
            raise SchemaError(
                f"{path}: feature {message.name!r} has a shape, but may be missing; set presence {{min_fraction: 1}}, "
                "or value_count in place of shape"
            )
        if any(size < 1 for size in shape):
            raise SchemaError(f"{path}: feature {message.name!r} has a dimension without a size; give each a size")
        return shape
    if message.HasField("value_counts"):
        raise SchemaError(
            f"{path}: feature {message.name!r} is nested (value_counts); declare a ragged_tensor representation instead"
        )
    if not message.HasField("value_count") or count.min != count.max or count.min < 1:
        return None
    return () if count.min == 1 else (count.min,)


def _read_representations(proto: schema_pb2.Schema, features: dict[str, Feature], path: str) -> None:
    for group in proto.tensor_representation_group.values():
        for name, representation in sorted(group.tensor_representation.items()):
            kind = representation.WhichOneof("kind")
            if kind == "dense_tensor":
                _read_dense(name, representation.dense_tensor, features, path)
            elif kind == "ragged_tensor":
                _read_ragged(name, representation.ragged_tensor, features, path)
            elif kind != "varlen_sparse_tensor":
                raise SchemaError(
                    f"{path}: the representation of {name!r} is a {kind}; only dense_tensor, varlen_sparse_tensor and "
                    "ragged_tensor are read"
                )


def _read_dense(name: str, dense: Any, features: dict[str, Feature], path: str) -> None:
    feature = _represented(name, dense.column_name, features, path)
    shape = tuple(dim.size for dim in dense.shape.dim)
    field_name = dense.default_value.WhichOneof("kind")
    default = getattr(dense.default_value, field_name) if field_name else None
    if field_name and field_name.replace("uint", "int") != _DEFAULT_FIELDS[feature.kind]:
        raise SchemaError(
            f"{path}: feature {name!r} is {feature.kind}, but its default value is a {field_name}; write "
            f"{_DEFAULT_FIELDS[feature.kind]}"
        )
    if default is None and not feature.required:
        raise SchemaError(
            f"{path}: feature {name!r} is dense, but may be missing; give a default_value, or set presence "
            "{min_fraction: 1}"
        )
    if feature.float64 and default is not None and len(default) != 8:
        raise SchemaError(f"{path}: feature {name!r} keeps 64-bit floats; its default_value must be 8 bytes")
    features[name] = replace(feature, shape=shape, default=default)


def _read_ragged(name: str, ragged: Any, features: dict[str, Feature], path: str) -> None:
    if len(ragged.partition) != 1 or not ragged.partition[0].row_length:
        raise SchemaError(f"{path}: the ragged feature {name!r} must have exactly one partition, a row_length")
    feature = _represented(name, ".".join(ragged.feature_path.step), features, path)
    lengths = _represented(ragged.partition[0].row_length, ragged.partition[0].row_length, features, path)
    if lengths.kind != "int" or feature.shape is not None or lengths.shape is not None:
        raise SchemaError(
            f"{path}: the ragged feature {name!r} needs {lengths.name!r} of type INT, and both without shape and "
            "value_count"
        )
    features[name] = replace(feature, ragged=True)
    features[lengths.name] = replace(lengths, source=feature.source, row_lengths_of=name)


def _represented(name: str, column: str, features: dict[str, Feature], path: str) -> Feature:
    if column != name or name not in features:
        raise SchemaError(
            f"{path}: the representation of {name!r} is of {column!r}; give it the name of a feature of the schema"
        )
    return features[name]
