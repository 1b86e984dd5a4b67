from __future__ import annotations

import functools
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.errors import SchemaError
from transforms.example import Encoder, decode
from transforms.tfrecord import Records, scan

# tensorflow/core/example/{example,feature}.proto: message -> its fields in the order of their numbers.  Made here to
# spare the import of TensorFlow.
PROTOS = {
    "BytesList": ["repeated bytes value"],
    "FloatList": ["repeated float value"],
    "Int64List": ["repeated int64 value"],
    "Feature": ["oneof BytesList bytes_list", "oneof FloatList float_list", "oneof Int64List int64_list"],
    "Features": ["map Feature feature"],
    "FeatureList": ["repeated Feature feature"],
    "FeatureLists": ["map FeatureList feature_list"],
    "Example": ["optional Features features"],
    "SequenceExample": ["optional Features context", "optional FeatureLists feature_lists"],
}


@functools.cache
def messages() -> dict[str, Any]:
    """The classes of PROTOS."""
    file = descriptor_pb2.FileDescriptorProto(name="example_of_test.proto", package="t", syntax="proto3")
    for name, fields in PROTOS.items():
        message = file.message_type.add(name=name)
        for number, (label, kind, field_name) in enumerate(map(str.split, fields), 1):
            if label == "map":
                entry = message.nested_type.add(name=field_name.title().replace("_", "") + "Entry")
                entry.options.map_entry = True
                add_field(entry, 1, "optional", "string", "key")
                add_field(entry, 2, "optional", kind, "value")
                label, kind = "repeated", f"{name}.{entry.name}"
            added = add_field(message, number, "optional" if label == "oneof" else label, kind, field_name)
            if label == "oneof":
                added.oneof_index = 0
        if fields[0].startswith("oneof"):
            message.oneof_decl.add(name="kind")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}")) for name in PROTOS}


def add_field(message: Any, number: int, label: str, kind: str, name: str) -> Any:
    proto = descriptor_pb2.FieldDescriptorProto
    added = message.field.add(name=name, number=number, label=proto.Label.Value(f"LABEL_{label.upper()}"))
    if kind[0].isupper():
        added.type, added.type_name = proto.TYPE_MESSAGE, f".t.{kind}"
    else:
        added.type = proto.Type.Value(f"TYPE_{kind.upper()}")
    return added


def feature(kind: str, values: Iterable[Any]) -> Any:
    m = messages()
    made = m["Feature"]()
    getattr(made, kind).SetInParent()
    getattr(made, kind).value.extend(values)
    return made


def field(tag: int, content: bytes) -> bytes:
    """A field with a length before it, as protobuf's own varint encoder writes it."""
    from google.protobuf.internal.encoder import _VarintBytes

    return bytes([tag]) + _VarintBytes(len(content)) + content


def features(named: Iterable[tuple[str, Any]]) -> bytes:
    """Features in the given order; protobuf serializes each."""
    return b"".join(messages()["Features"](feature={name: f}).SerializeToString() for name, f in named)


def example(named: Iterable[tuple[str, Any]]) -> bytes:
    return field(0x0A, features(named))


def payloads(records: Records) -> list[bytes]:
    """After the frames are checked."""
    assert scan(records.data, name="encoded").offsets.tolist() == records.offsets.tolist()
    return [bytes(records.payload(i)) for i in range(len(records))]


def encode(**columns: pa.Array) -> list[bytes]:
    batch = pa.record_batch(columns)
    return payloads(Encoder(batch.schema).encode(batch))


def encode_between_guards(encoder: Encoder, batch: pa.RecordBatch) -> list[bytes]:
    """Encodes twice; the second time into memory that shows whether more was written than was asked for."""
    first = encoder.encode(batch)
    room = first.data.base.nbytes
    out = np.full(room + 1000, 0xAA, dtype=np.uint8)
    again = encoder.encode(batch, out=out)
    assert again.data.tobytes() == first.data.tobytes()
    assert (out[room:] == 0xAA).all()
    return payloads(again)


# Every kind of value: its list in a Feature, what Python holds, and what the Feature holds of it.
def int_range(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2 ** min(bits, 63) - 1)
    edges = [0, 1, 127, 128, 255, 2**14, 2**21 - 1, 2**28, 2**35, 2**42, 2**49, 2**56 - 1, 2**56, high, low, -1]
    return st.integers(low, high) | st.sampled_from([e for e in edges if low <= e <= high])


def same(value: Any) -> Any:
    return value


FLOATS = st.floats(width=32)
TEXT = st.text(max_size=20) | st.text(min_size=90, max_size=200)
BYTES = st.binary(max_size=20) | st.binary(min_size=90, max_size=300)
KINDS: list[tuple[pa.DataType, str, st.SearchStrategy[Any], Callable[[Any], Any]]] = [
    (pa.bool_(), "int64_list", st.booleans(), int),
    *((getattr(pa, f"int{b}")(), "int64_list", int_range(b, signed=True), same) for b in (8, 16, 32, 64)),
    *((getattr(pa, f"uint{b}")(), "int64_list", int_range(b, signed=False), same) for b in (8, 16, 32, 64)),
    (pa.float16(), "float_list", st.floats(width=16), same),
    (pa.float32(), "float_list", FLOATS, same),
    (pa.float64(), "float_list", FLOATS | st.floats(-1e38, 1e38), lambda v: float(np.float32(v))),
    *((kind, "bytes_list", TEXT, str.encode) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, "bytes_list", BYTES, same) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(5), "bytes_list", st.binary(min_size=5, max_size=5), same),
    (pa.dictionary(pa.int8(), pa.string()), "bytes_list", st.sampled_from(["a", "bc", "", "d" * 150]), str.encode),
    (pa.dictionary(pa.int32(), pa.int64()), "int64_list", st.sampled_from([0, 1, -5, 2**60]), same),
]
NAMES = st.sampled_from(["x", "a_feature", "ü" * 8, "n" * 107, "n" * 117, "n" * 118, "n" * 121, "long " * 40])


@st.composite
def columns(draw: st.DrawFn, rows: int) -> tuple[pa.Array, list[Any]]:
    """A column, and the Feature of each of its rows (None: absent)."""
    kind, field_name, values, held = draw(st.sampled_from(KINDS))
    values = values.filter(lambda v: v == v)  # NaN has a test of its own
    shape = draw(st.sampled_from(["scalar", "list", "large_list", "fixed", "list_view"]))
    extra = draw(st.integers(0, 3))  # rows before and behind, cut off by a slice
    total = rows + 2 * extra
    if shape == "scalar":
        content = draw(st.lists(st.none() | values, min_size=total, max_size=total))
        if pa.types.is_dictionary(kind):
            array = pa.array(content, kind.value_type).dictionary_encode().cast(kind)
        else:
            array = pa.array(content, kind)
        lists = [None if v is None else [v] for v in content]
    else:
        size = draw(st.integers(0, 4))
        bounds = {"min_size": size, "max_size": size} if shape == "fixed" else {"max_size": 6}
        lists = draw(st.lists(st.none() | st.lists(values, **bounds), min_size=total, max_size=total))
        array = nested(lists, kind, shape, size)
    expected = [None if row is None else feature(field_name, map(held, row)) for row in lists]
    return array.slice(extra, rows), expected[extra : extra + rows]


def nested(lists: list[list[Any] | None], kind: pa.DataType, shape: str, size: int) -> pa.Array:
    if pa.types.is_dictionary(kind):
        plain = nested(lists, kind.value_type, "large_list", size)
        encoded = plain.values.dictionary_encode().cast(kind)
        return pa.LargeListArray.from_arrays(plain.offsets, encoded, mask=plain.is_null())
    made = {
        "list": pa.list_(kind),
        "large_list": pa.large_list(kind),
        "fixed": pa.list_(kind, size),
        "list_view": pa.list_view(kind),
    }
    return pa.array(lists, made[shape])


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[bytes]]:
    rows = draw(st.integers(0, 6))
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    made = [draw(columns(rows)) for _ in names]
    fields = [pa.field(name, array.type) for name, (array, _) in zip(names, made, strict=True)]
    struct = pa.StructArray.from_arrays([array for array, _ in made], fields=fields) if made else None
    batch = pa.RecordBatch.from_struct_array(struct) if struct is not None else pa.record_batch({})
    expected = [
        example((name, column[row]) for name, (_, column) in zip(names, made, strict=True) if column[row] is not None)
        for row in range(batch.num_rows)
    ]
    return batch, expected


@settings(max_examples=400, deadline=None)
@given(batches())
def test_byte_for_byte_what_protobuf_writes(case: tuple[pa.RecordBatch, list[bytes]]) -> None:
    batch, expected = case
    assert encode_between_guards(Encoder(batch.schema), batch) == expected


def test_copies_in_whole_words_stay_inside_the_memory() -> None:
    batch = pa.record_batch({"x": pa.array(["a", "b" * 60])}).slice(0, 1)
    assert encode_between_guards(Encoder(batch.schema), batch) == [example([("x", feature("bytes_list", [b"a"]))])]


def steps(lists: list[Any]) -> Any:
    return messages()["FeatureList"](feature=lists)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from([kind for kind in KINDS if not pa.types.is_dictionary(kind[0])]), st.integers(0, 2))
def test_sequences_byte_for_byte(data: st.DataObject, kind: Any, extra: int) -> None:
    arrow, name, values, held = kind
    values = values.filter(lambda v: v == v)
    rows = data.draw(st.integers(0, 4)) + 2 * extra
    nested_lists = st.none() | st.lists(st.lists(values, max_size=4), max_size=4)
    frames = data.draw(st.lists(nested_lists, min_size=rows, max_size=rows))
    labels = data.draw(st.lists(st.none() | st.lists(values, max_size=4), min_size=rows, max_size=rows))
    batch = pa.record_batch(
        {
            "frames": pa.array(frames, pa.list_(pa.large_list(arrow))),
            "id": pa.array(range(rows), pa.int64()),
            "labels": pa.array(labels, pa.large_list(arrow)),
        }
    ).slice(extra, rows - 2 * extra)
    expected = []
    for i in range(extra, rows - extra):
        lists = {
            "frames": None if frames[i] is None else [feature(name, map(held, step)) for step in frames[i]],
            "labels": None if labels[i] is None else [feature(name, [held(value)]) for value in labels[i]],
        }
        entries = b"".join(
            messages()["FeatureLists"](feature_list={key: steps(value)}).SerializeToString()
            for key, value in lists.items()
            if value is not None
        )
        expected.append(field(0x0A, features([("id", feature("int64_list", [i]))])) + field(0x12, entries))
    encoder = Encoder(batch.schema, sequence=frozenset({"frames", "labels"}))
    assert encode_between_guards(encoder, batch) == expected
    for message in expected:
        messages()["SequenceExample"].FromString(message)


def test_absent_null_and_empty() -> None:
    """Reported as vahidk/tfrecord#101 and ray-project/ray#31831: a null leaves the feature out, an empty list stays."""
    tags, counts = [[], None, ["a", "b"], [""]], [[], None, [1, -1], [0]]
    found = encode(tags=pa.array(tags, pa.list_(pa.string())), counts=pa.array(counts, pa.list_(pa.int64())))
    assert found == [
        example([("tags", feature("bytes_list", [])), ("counts", feature("int64_list", []))]),
        example([]),
        example([("tags", feature("bytes_list", [b"a", b"b"])), ("counts", feature("int64_list", [1, -1]))]),
        example([("tags", feature("bytes_list", [b""])), ("counts", feature("int64_list", [0]))]),
    ]
    assert found[1] == b"\x0a\x00"


def test_columns_without_values() -> None:
    nothing = pa.nulls(2)
    lists = pa.array([[], None], pa.list_(pa.null()))
    assert encode(nothing=nothing, lists=lists, x=pa.array([1, 2])) == [
        example([("lists", feature("bytes_list", [])), ("x", feature("int64_list", [1]))]),
        example([("x", feature("int64_list", [2]))]),
    ]


def test_no_rows_and_no_columns() -> None:
    for kind, *_ in KINDS:
        batch = pa.RecordBatch.from_arrays([pa.array([], kind)], ["x"])
        assert len(Encoder(batch.schema).encode(batch)) == 0
        lists = pa.RecordBatch.from_arrays([pa.array([], pa.list_(kind))], ["x"])
        assert len(Encoder(lists.schema, sequence=frozenset("x")).encode(lists)) == 0
    batch = pa.record_batch({"x": pa.array([1, 2])}).select([])
    assert payloads(Encoder(batch.schema).encode(batch)) == [b"\x0a\x00"] * 2


def test_nan_and_infinity_pass() -> None:
    values = [math.inf, -math.inf, math.nan]
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        for message, value in zip(encode(x=pa.array(values, kind)), values, strict=True):
            found = messages()["Example"].FromString(message).features.feature["x"].float_list.value[0]
            assert found == value or (math.isnan(found) and math.isnan(value))


def test_a_dictionary_may_hold_null() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    assert encode(x=array) == [example([("x", feature("bytes_list", [b"a"]))]), example([]), example([])]


def test_list_views_may_overlap_and_run_backwards() -> None:
    views = pa.ListViewArray.from_arrays([2, 0, 1], [1, 2, 2], pa.array([10, 20, 30]))
    lists = [[30], [10, 20], [20, 30]]
    assert encode(x=views) == [example([("x", feature("int64_list", each))]) for each in lists]


def test_values_under_null_lists_do_not_count() -> None:
    """Arrow leaves undefined what stands there."""
    mask = pa.array([False, True, False])
    numbers = pa.array([1, 2**64 - 1, 3], pa.uint64())
    wide = pa.array([1.0, 1e300, 3.0])
    holes = pa.array([1, None, 3])
    for values, name in ((numbers, "int64_list"), (wide, "float_list"), (holes, "int64_list")):
        expected = [example([("x", feature(name, [1]))]), example([]), example([("x", feature(name, [3]))])]
        assert encode(x=pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), values, mask=mask)) == expected
        assert encode(x=pa.FixedSizeListArray.from_arrays(values, 1, mask=mask)) == expected
    scalars = pa.Array.from_buffers(pa.uint64(), 3, [pa.py_buffer(b"\x05"), numbers.buffers()[1]])
    assert encode(x=scalars)[1] == b"\x0a\x00"


def test_buffers_need_no_alignment() -> None:
    for kind, values in ((pa.int64(), [1, -1, 2**40]), (pa.float32(), [0.5, 1.5, 2.5]), (pa.int16(), [1, 2, -3])):
        plain = pa.array(values, kind)
        shifted = pa.py_buffer(b"?" + plain.buffers()[1].to_pybytes()).slice(1)
        assert encode(x=pa.Array.from_buffers(kind, 3, [None, shifted])) == encode(x=plain)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], [2, None]]), "column 'x', row 1 of the batch: None: a null inside a list"),
        (pa.array([["a"], [None]]).slice(1), "column 'x', row 0 of the batch: None: a null inside a list"),
        (pa.array([[1, 2], [None, 3]], pa.list_(pa.int8(), 2)), "column 'x', row 1 .* null inside"),
        (pa.array([None, [None, 3], [1, 1]], pa.list_(pa.int8(), 2)), "column 'x', row 1 .* null inside"),
        (pa.array([[], [None]], pa.list_view(pa.int64())), "column 'x', row 1 .* null inside"),
        (pa.array([[], [None]], pa.list_(pa.null())), "column 'x', row 1 .* null inside"),
        (pa.array([[True], None, [None]]), "column 'x', row 2 .* null inside"),
        (pa.array([1, 2**63], pa.uint64()), "column 'x', row 1 .*: 9223372036854775808: does not fit into an int64"),
        (pa.array([[1], [], [0, 2**64 - 1]], pa.list_(pa.uint64())), "row 2 .*: 18446744073709551615: does not fit"),
        (pa.array([1.0, math.inf, -1e39]), "column 'x', row 2 .*: -1e[+]39: does not fit into a float32"),
        (pa.array([[1.0, 3.5e38]]), "column 'x', row 0 .*: 3.5e[+]38: does not fit into a float32"),
        (pa.array([1, None, 2**63], pa.uint64()).dictionary_encode(), "row 2 .*: 9223372036854775808: does not fit"),
    ],
)
def test_values_without_a_place_are_named(column: pa.Array, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        encode(fine=pa.array(range(len(column))), x=column)


@pytest.mark.parametrize("inner", [[[1, None]], [[1], None]])
def test_nulls_inside_sequences_are_named(inner: list[Any]) -> None:
    batch = pa.record_batch({"x": pa.array([None, [[1]], inner], pa.list_(pa.list_(pa.int64())))})
    with pytest.raises(SchemaError, match="column 'x', row 2 of the batch: None: a null inside a list"):
        Encoder(batch.schema, sequence=frozenset({"x"})).encode(batch)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.struct([("a", pa.int64())]), "'x' of type struct<a: int64> has no form as a feature; leave it out"),
        (pa.timestamp("us"), "has no form as a feature"),
        (pa.decimal128(10, 2), "has no form as a feature"),
        (pa.map_(pa.string(), pa.int64()), "has no form as a feature"),
        (pa.list_(pa.struct([("a", pa.int64())])), "has no form as a feature"),
        (pa.list_(pa.list_(pa.int64())), "is nested too deep for a feature; flatten it, or name it in sequence"),
    ],
)
def test_types_without_a_form_are_named_before_any_data(kind: pa.DataType, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Encoder(pa.schema([("x", kind)]))


def test_names_are_checked_before_any_data() -> None:
    with pytest.raises(SchemaError, match="column 'x' stands 2 times"):
        Encoder(pa.schema([("x", pa.int64()), ("y", pa.int64()), ("x", pa.string())]))
    with pytest.raises(SchemaError, match="sequence names 'z', which is no column; there are .'x'."):
        Encoder(pa.schema([("x", pa.int64())]), sequence=frozenset({"z"}))
    with pytest.raises(SchemaError, match="column 'x' of type int64 is no list, so it has no steps"):
        Encoder(pa.schema([("x", pa.int64())]), sequence=frozenset({"x"}))


def test_a_batch_of_another_schema_is_refused() -> None:
    encoder = Encoder(pa.schema([("x", pa.int64()), ("y", pa.string())]))
    x, y = pa.array([1]), pa.array(["a"])
    for columns_given, message in (
        ({"x": x}, "column 'y' is not there"),
        ({"x": x, "y": x}, "column 'y' is int64, not string"),
        ({"x": x, "y": y, "z": x}, "column 'z' is too much"),
        ({"y": y, "x": x}, "the order of its columns is .'y', 'x'."),
    ):
        with pytest.raises(SchemaError, match=message):
            encoder.encode(pa.record_batch(columns_given))


def test_nullability_and_metadata_do_not_matter() -> None:
    encoder = Encoder(pa.schema([pa.field("x", pa.int64(), nullable=False)], metadata={"a": "b"}))
    assert len(encoder.encode(pa.record_batch({"x": pa.array([1])}))) == 1


def test_a_table_is_encoded_a_batch_at_a_time() -> None:
    table = pa.concat_tables([pa.table({"x": [1, 2, 3]}), pa.table({"x": [4, 5]})])
    parts = list(Encoder(table.schema).encode_table(table, batch_rows=2))
    assert [len(part) for part in parts] == [2, 1, 2]
    assert [m for part in parts for m in payloads(part)] == encode(x=pa.array([1, 2, 3, 4, 5]))


def test_out_is_used_when_it_is_large_enough() -> None:
    batch = pa.record_batch({"x": pa.array(["some text"] * 100)})
    encoder = Encoder(batch.schema)
    out = np.empty(1 << 20, dtype=np.uint8)
    assert np.shares_memory(encoder.encode(batch, out=out).data, out)
    small = np.zeros(100, dtype=np.uint8)
    assert not np.shares_memory(encoder.encode(batch, out=small).data, small)
    assert not small.any()


def test_rows_of_very_different_size() -> None:
    """The length of a row is written before it is known: each change of its own size is a case."""
    sizes = [0, 100, 3_000_000, 20, 127, 128, 16_383, 16_384, 1, 2_097_151, 2_097_152, 5]
    texts = [b"\xab" * size for size in sizes]
    assert encode(x=pa.array(texts)) == [example([("x", feature("bytes_list", [text]))]) for text in texts]


def test_a_record_of_100_megabytes() -> None:
    image = bytes(range(256)) * (400 << 10)
    [message] = encode(image=pa.array([image]))
    assert message == example([("image", feature("bytes_list", [image]))])


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32"])
def test_many_integers_in_one_list(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 128, 200_000).astype(kind)
    pixels[::1000] = -1 if kind != "uint8" else 200
    column = pa.FixedSizeListArray.from_arrays(pa.array(pixels), len(pixels))
    assert encode(x=column) == [example([("x", feature("int64_list", pixels.tolist()))])]


def test_examples_that_protobuf_does_not_read_are_refused() -> None:
    zeros = np.zeros(2**31, dtype=np.uint8)  # pages that nobody touches
    offsets = np.array([0, 1, 2**31 - 10], dtype=np.int64)
    column = pa.Array.from_buffers(pa.large_binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(zeros)])
    batch = pa.record_batch({"small": pa.array([1, 2]), "large": column})
    with pytest.raises(SchemaError, match=r"row 1 .* more than 2\^31 - 1 bytes.* largest column is 'large'"):
        Encoder(batch.schema).encode(batch)


def test_decode_is_the_way_back() -> None:
    columns_given = {
        "number": pa.array([[1], None, [3]], pa.list_(pa.int64())),
        "text": pa.array([["a"], ["b", "c"], None], pa.list_(pa.string())),
        "score": pa.array([[0.5], [1.5], [2.5]], pa.list_(pa.float32())),
    }
    decoded = decode(pa.array(encode(**columns_given), pa.binary()))
    found = {name: decoded.column(name).to_pylist() for name in decoded.schema.names}
    assert found == {
        "number": [[1], None, [3]],
        "text": [[b"a"], [b"b", b"c"], None],
        "score": [[0.5], [1.5], [2.5]],
    }
    with pytest.raises(SchemaError, match="not serialized Examples"):
        decode(pa.array([b"\xff\xff"]))


def test_same_examples_as_tfx_bsl() -> None:
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    rng = np.random.default_rng(0)
    lists = [rng.integers(-(10**12), 10**12, rng.integers(0, 9)).tolist() for _ in range(300)]
    batch = pa.record_batch(
        {
            "ints": pa.array(lists, pa.list_(pa.int64())),
            "floats": pa.array([[float(v) for v in each] for each in lists], pa.list_(pa.float32())),
            "bytes": pa.array([[str(v).encode() for v in each] for each in lists], pa.list_(pa.binary())),
        }
    )
    theirs = RecordBatchToExamplesEncoder().encode(batch)
    parse = messages()["Example"].FromString
    assert [parse(m) for m in payloads(Encoder(batch.schema).encode(batch))] == [parse(m) for m in theirs]


READ_WITH_TENSORFLOW = """
import sys, tensorflow as tf
for record in tf.data.TFRecordDataset(sys.argv[1]):
    example = tf.train.Example.FromString(record.numpy())
    assert len(example.features.feature) == 3
    kinds = {"i": tf.int64, "t": tf.string, "v": tf.float32}
    spec = {name: tf.io.FixedLenFeature([2] if name == "v" else [], kind) for name, kind in kinds.items()}
    parsed = tf.io.parse_single_example(record, spec)
    print(int(parsed["i"]), parsed["t"].numpy().decode(), parsed["v"].numpy().tolist())
"""


@pytest.mark.slow
def test_tensorflow_parses_it(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "i": pa.array([1, -2, 2**62]),
            "t": pa.array(["one", "", "drei"]),
            "v": pa.array([[1, 2], [3, 4], [0.5, -1]], pa.list_(pa.float32(), 2)),
        }
    )
    path = tmp_path / "x.tfrecord"
    Encoder(batch.schema).encode(batch).data.tofile(path)
    command = [sys.executable, "-c", READ_WITH_TENSORFLOW, str(path)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert found == f"1 one [1.0, 2.0]\n-2  [3.0, 4.0]\n{2**62} drei [0.5, -1.0]\n"
