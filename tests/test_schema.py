"""The schema: text and back, what TensorFlow Transform reads of it, and errors that name the feature."""

from __future__ import annotations

import pyarrow as pa
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from transforms.errors import SchemaError
from transforms.schema import Feature, Schema

EVERYTHING = Schema(
    (
        Feature("age", "int", ("age",), required=True),
        Feature("income", "float", ("income",)),
        Feature("user.city", "bytes", ("user", "city"), shape=None),
        Feature("odd.name", "bytes", ("odd.name",), required=True),
        Feature("matrix", "float", ("matrix",), required=True, shape=(2, 3)),
        Feature("triple", "int", ("triple",), shape=(3,)),
        Feature("when", "int", ("when",), time_unit="ms"),
        Feature("exact", "bytes", ("exact",), float64=True),
        Feature("r.x", "float", ("r", "x"), shape=None, ragged=True),
        Feature("r.x.row_lengths", "int", ("r", "x"), shape=None, row_lengths_of="r.x"),
        Feature("colour", "bytes", ("colour",), default=b"gr\xc3\xbcn"),
        Feature("count", "int", ("count",), default=-1),
    )
)


def test_text_and_back() -> None:
    text = EVERYTHING.to_text()
    again = Schema.from_text(text, path="schema.pbtxt")
    assert again == EVERYTHING and again.to_text() == text and again.digest == EVERYTHING.digest


NAMES = st.text("ab.ü '\"", min_size=1, max_size=5)


@st.composite
def features(draw: st.DrawFn, name: str) -> Feature:
    kind = draw(st.sampled_from(["int", "float", "bytes"]))
    required = draw(st.booleans())
    shape = draw(st.sampled_from([(), (2,), None, *([(2, 3)] if required else [])]))
    default = None
    if shape is not None and draw(st.booleans()):
        default = draw({"int": st.integers(-(2**63), 2**63 - 1), "float": st.just(0.5), "bytes": st.binary()}[kind])
    return Feature(
        name=name,
        kind=kind,
        source=draw(st.one_of(st.just((name,)), st.lists(NAMES, min_size=1, max_size=3).map(tuple))),
        required=required,
        shape=shape,
        time_unit=draw(st.sampled_from(["s", "days", None])) if kind == "int" else None,
        float64=kind == "bytes" and default is None and draw(st.booleans()),
        default=default,
    )


@settings(deadline=None)
@given(st.lists(NAMES, unique=True, max_size=5).flatmap(lambda names: st.tuples(*map(features, names))))
def test_any_schema_and_back(some: tuple[Feature, ...]) -> None:
    schema = Schema(some)
    again = Schema.from_text(schema.to_text(), path="schema.pbtxt")
    assert again == schema
    assert again.digest == schema.digest


def test_digests_differ_with_what_is_said() -> None:
    feature = Feature("a", "int", ("a",))
    others = [
        Feature("b", "int", ("b",)),
        Feature("a", "float", ("a",)),
        Feature("a", "int", ("b",)),
        Feature("a", "int", ("a",), required=True),
        Feature("a", "int", ("a",), shape=None),
        Feature("a", "int", ("a",), time_unit="s"),
        Feature("a", "int", ("a",), default=0),
    ]
    assert len({Schema((other,)).digest for other in [feature, *others]}) == 8


def test_feature_batches_are_of_three_kinds_and_lists_of_them() -> None:
    arrow = EVERYTHING.arrow_schema()
    assert arrow.field("age").type == pa.int64()
    assert arrow.field("income").type == pa.float32()
    assert arrow.field("exact").type == pa.binary()
    assert arrow.field("matrix").type == pa.list_(pa.float32())
    assert arrow.field("r.x.row_lengths").type == pa.list_(pa.int64())


def test_transform_reads_it_as_it_is_written() -> None:
    import tensorflow as tf
    from tensorflow_transform.tf_metadata import schema_utils

    specs = schema_utils.schema_as_feature_spec(EVERYTHING.to_proto()).feature_spec
    assert specs == {
        "age": tf.io.FixedLenFeature([], tf.int64),
        "income": tf.io.VarLenFeature(tf.float32),
        "user.city": tf.io.VarLenFeature(tf.string),
        "odd.name": tf.io.FixedLenFeature([], tf.string),
        "matrix": tf.io.FixedLenFeature([2, 3], tf.float32),
        "triple": tf.io.VarLenFeature(tf.int64),
        "when": tf.io.VarLenFeature(tf.int64),
        "exact": tf.io.VarLenFeature(tf.string),
        "r.x": tf.io.RaggedFeature(
            tf.float32,
            value_key="r.x",
            partitions=[tf.io.RaggedFeature.RowLengths("r.x.row_lengths")],
            row_splits_dtype=tf.int64,
        ),
        "colour": tf.io.FixedLenFeature([], tf.string, default_value="grün"),
        "count": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
    }


def test_what_data_validation_writes() -> None:
    text = """
    feature {
      name: "payment"
      type: BYTES
      domain: "payment"
      presence { min_fraction: 1.0 min_count: 1 }
      value_count { min: 1 max: 1 }
    }
    feature { name: "fare" type: FLOAT presence { min_count: 1 } value_count { min: 1 max: 1 } }
    feature { name: "old" type: FLOAT lifecycle_stage: DEPRECATED }
    feature { name: "tags" type: BYTES value_count { min: 1 max: 5 } }
    string_domain { name: "payment" value: "Cash" value: "Card" }
    """
    schema = Schema.from_text(text, path="schema.pbtxt")
    assert [(f.name, f.required, f.shape) for f in schema.features] == [
        ("payment", True, ()),
        ("fare", False, ()),
        ("tags", False, None),
    ]
    proto = schema.to_proto()
    assert proto.feature[0].domain == "payment" and proto.string_domain[0].value == ["Cash", "Card"]
    assert proto.feature[1].presence.min_count == 1 and proto.feature[2].value_count.max == 5
    assert Schema.from_text(schema.to_text(), path="schema.pbtxt") == schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('feature { name: "a" type: INT', "is not a TensorFlow Metadata schema in text form"),
        ('feature { name: "a" typo: INT }', "typo"),
        ('feature { name: "a" } ', "feature 'a' has type TYPE_UNKNOWN; features are INT, FLOAT or BYTES"),
        ('feature { name: "a" type: STRUCT }', "has type STRUCT"),
        ('feature { name: "a" type: INT } feature { name: "a" type: INT }', "feature 'a' is there twice"),
        ("feature { type: INT }", "a feature has no name"),
        ('feature { name: "a" type: INT shape {} }', "'a' has a shape, but may be missing; set presence"),
        (
            'feature { name: "a" type: INT shape { dim { size: -1 } } presence { min_fraction: 1 } }',
            "a dimension without a size",
        ),
        ('feature { name: "a" type: FLOAT time_domain { integer_format: UNIX_DAYS } }', "must have type INT"),
        ('feature { name: "a" type: FLOAT annotation { tag: "float64" } }', "must have type BYTES"),
        ('feature { name: "a" type: INT annotation { tag: "source: a.b" } }', "JSON list"),
        ('sparse_feature { name: "s" }', "'s' is a sparse or weighted feature"),
        (
            'feature { name: "a" type: INT } tensor_representation_group { key: "" value { tensor_representation '
            '{ key: "a" value { dense_tensor { column_name: "a" default_value { bytes_value: "x" } } } } } }',
            "default value is a bytes_value; write int_value",
        ),
        (
            'feature { name: "a" type: INT } tensor_representation_group { key: "" value { tensor_representation '
            '{ key: "b" value { dense_tensor { column_name: "b" } } } } }',
            "the representation of 'b'",
        ),
        (
            'feature { name: "a" type: INT } tensor_representation_group { key: "" value { tensor_representation '
            '{ key: "a" value { ragged_tensor { feature_path { step: "a" } } } } } }',
            "'a' must have exactly one partition",
        ),
    ],
)
def test_errors_name_the_file_and_the_feature(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match="^my/schema.pbtxt: ") as error:
        Schema.from_text(text, path="my/schema.pbtxt")
    assert message in str(error.value)


def test_the_proto_is_a_schema_of_its_own() -> None:
    proto = EVERYTHING.to_proto()
    assert isinstance(proto, schema_pb2.Schema)
    assert text_format.MessageToString(proto) == EVERYTHING.to_text()
    proto.feature[0].name = "changed"
    assert EVERYTHING.to_proto().feature[0].name == "age"
