"""For TensorFlow: a ``tf.data.Dataset`` of parsed batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow_metadata.proto.v0 import schema_pb2

from pipeline.load.version import Split, check_shard
from transforms.errors import ConfigError
from transforms.schema import SEQUENCE

if TYPE_CHECKING:
    import tensorflow as tf

FILES_AT_ONCE = 16


def dataset(
    split: Split,
    *,
    batch_size: int,
    shuffle: int = 0,
    seed: int | None = None,
    repeat: bool = False,
    shard: tuple[int, int] = (0, 1),
    label: str | None = None,
    drop_remainder: bool = False,
    deterministic: bool | None = None,
) -> tf.data.Dataset:
    """Batches of ``{feature: tensor}``, or with ``label`` pairs of these and the label's tensor.

    Features of a fixed shape are dense, ``[batch, *shape]``; others sparse, or ragged where the schema says so.  Steps
    of SequenceExamples are ragged.  ``shuffle``: how many records are shuffled at a time, and with it the order of the
    files; ``seed`` makes both the same in each run.  ``repeat``: without an end.  ``shard``: this reader's number, and
    how many read together; each gets whole files if these can be dealt evenly, and else each n-th record.
    ``deterministic``: whether the order is the same in each run, or batches come as they are ready; None: unless they
    are shuffled without a seed.  Its cardinality is known, so that Keras shows how far it is.  Iterators can be saved
    by ``tf.train.Checkpoint``.

    Raises ConfigError for a label that is no feature.
    """
    import tensorflow as tf

    check_shard(shard)
    spec = feature_spec(split)
    if label is not None and label not in spec:
        raise ConfigError(f"label {label!r}: there is no such feature; there are {', '.join(spec)}")
    if deterministic is None:
        deterministic = not shuffle or seed is not None
    index, count = shard
    whole_files = len(split.shards) % count == 0
    paths = [split.path(info) for info in (split.shards[index::count] if whole_files else split.shards)]
    files = tf.data.Dataset.from_tensor_slices(tf.constant(paths, tf.string))
    if shuffle and whole_files:  # all readers must see other records in one order
        files = files.shuffle(max(len(paths), 1), seed=seed)
    records = files.interleave(
        lambda path: tf.data.TFRecordDataset(path, split.compression.tensorflow_type, buffer_size=1 << 20),
        cycle_length=min(max(len(paths), 1), FILES_AT_ONCE),
        block_length=16,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=deterministic or not whole_files,
    )
    if not whole_files:
        records = records.shard(count, index)
    if shuffle:
        records = records.shuffle(shuffle, seed=seed)
    if repeat:
        records = records.repeat()

    def parse(serialized: tf.Tensor) -> Any:
        parsed = dict(_parse(tf, serialized, spec, split))
        return (parsed, parsed.pop(label)) if label is not None else parsed

    batched = records.batch(batch_size, drop_remainder=drop_remainder)
    batches = batched.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)
    if not repeat:
        total = split.num_records
        ours = sum(i.num_records for i in split.shards[index::count]) if whole_files else -(-(total - index) // count)
        number = ours // batch_size if drop_remainder else -(-ours // batch_size)
        batches = batches.apply(tf.data.experimental.assert_cardinality(number))
    return batches.prefetch(tf.data.AUTOTUNE)


def feature_spec(split: Split) -> dict[str, Any]:
    """What ``tf.io.parse_example`` wants, as TensorFlow Transform makes it of the schema; with the steps' features."""
    import tensorflow as tf
    from tensorflow_transform.tf_metadata import schema_utils

    context, steps = schema_pb2.Schema(), []
    context.CopyFrom(split.schema)
    del context.feature[:]
    for feature in split.schema.feature:
        if feature.name == SEQUENCE:
            steps = list(feature.struct_domain.feature)
        else:
            context.feature.append(feature)
    spec: dict[str, Any] = dict(schema_utils.schema_as_feature_spec(context).feature_spec)
    kinds = {schema_pb2.INT: tf.int64, schema_pb2.FLOAT: tf.float32, schema_pb2.BYTES: tf.string}
    return spec | {feature.name: tf.io.RaggedFeature(kinds[feature.type]) for feature in steps}


def _parse(tf: Any, serialized: Any, spec: dict[str, Any], split: Split) -> dict[str, Any]:
    if not split.is_sequence:
        found: dict[str, Any] = tf.io.parse_example(serialized, spec)
        return found
    steps = {
        f.name for feature in split.schema.feature if feature.name == SEQUENCE for f in feature.struct_domain.feature
    }
    context, sequence, _ = tf.io.parse_sequence_example(
        serialized,
        context_features={name: kind for name, kind in spec.items() if name not in steps} or None,
        sequence_features={name: spec[name] for name in spec if name in steps},
    )
    return {**context, **sequence}
