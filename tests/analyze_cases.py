"""Data and ``preprocessing_fn``s that the analysis is held against stock TensorFlow Transform with."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft

ROWS, BATCH = 1500, 250
SCHEMA = """
feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape {} }
feature { name: "y" type: FLOAT presence { min_fraction: 1 } shape {} }
feature { name: "w" type: FLOAT presence { min_fraction: 1 } shape {} }
feature { name: "i" type: INT presence { min_fraction: 1 } shape {} }
feature { name: "label" type: INT presence { min_fraction: 1 } shape {} }
feature { name: "s" type: BYTES presence { min_fraction: 1 } shape {} }
feature { name: "k" type: BYTES presence { min_fraction: 1 } shape {} }
feature { name: "text" type: BYTES presence { min_fraction: 1 } shape {} }
feature { name: "v3" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 3 } } }
feature { name: "optional" type: FLOAT value_count { min: 1 max: 1 } }
feature { name: "words" type: BYTES }
feature { name: "ints" type: INT }
feature { name: "ragged" type: BYTES }
feature { name: "ragged_lengths" type: INT }
feature { name: "filled" type: BYTES }
tensor_representation_group {
  key: ""
  value {
    tensor_representation {
      key: "ragged"
      value { ragged_tensor { feature_path { step: "ragged" } partition { row_length: "ragged_lengths" } } }
    }
    tensor_representation {
      key: "filled"
      value { dense_tensor { column_name: "filled" shape {} default_value { bytes_value: "none" } } }
    }
  }
}
"""
WORDS = [f"w{i} x" if i % 7 == 0 else f"tok{i}" for i in range(300)] + ["", "a\nb", "a\rb", "é"]
BYTES = [word.encode() for word in WORDS] + [b"\xff\xfe"]


def make_batches() -> list[pa.RecordBatch]:
    """ROWS rows in feature batches; skewed words, ties in counts, missing values, empty lists, NaN-free numbers."""
    rng = np.random.default_rng(7)

    def words(count: int) -> list[bytes]:
        return [BYTES[i] for i in rng.zipf(1.3, count) % len(BYTES)]

    def lists(make, most: int) -> list[list]:
        return [list(make(int(n))) for n in rng.integers(0, most, ROWS)]

    lengths = lists(lambda n: rng.integers(0, 4, n).tolist(), 4)
    columns = {
        "x": pa.array((rng.normal(3, 2, ROWS) * 8).round() / 8, pa.float32()),
        "y": pa.array((rng.exponential(2, ROWS) * 16).round() / 16, pa.float32()),
        "w": pa.array(rng.integers(1, 5, ROWS).astype(float), pa.float32()),
        "i": pa.array(rng.integers(-20, 50, ROWS)),
        "label": pa.array(rng.integers(0, 3, ROWS)),
        "s": pa.array(words(ROWS), pa.binary()),
        "k": pa.array([[b"a", b"b", b"c", b"dd"][j] for j in rng.integers(0, 4, ROWS)], pa.binary()),
        "text": pa.array([b" ".join(words(n)) for n in rng.integers(0, 9, ROWS)], pa.binary()),
        "v3": pa.array(((rng.normal(0, 1, (ROWS, 3)) * 16).round() / 16).tolist(), pa.list_(pa.float32())),
        "optional": pa.array([v if v < 3 else None for v in rng.normal(2, 1, ROWS)], pa.float32()),
        "words": pa.array(lists(words, 5), pa.list_(pa.binary())),
        "ints": pa.array(lists(lambda n: rng.integers(0, 90, n).tolist(), 4), pa.list_(pa.int64())),
        "ragged": pa.array([words(sum(inner)) for inner in lengths], pa.list_(pa.binary())),
        "ragged_lengths": pa.array(lengths, pa.list_(pa.int64())),
        "filled": pa.array([w if i % 3 else None for i, w in enumerate(words(ROWS))], pa.binary()),
    }
    table = pa.table(columns)
    return [table.slice(i, BATCH).combine_chunks().to_batches()[0] for i in range(0, ROWS, BATCH)]


def _zeros(x):
    return tf.zeros_like(x)


def _dense(sparse):
    return tf.sparse.to_dense(sparse)


def core(t):
    """A bit of everything, in two phases; part of every run."""
    z = tft.scale_to_z_score(t["x"])
    return {
        "z": z,
        "z_optional": tft.scale_to_z_score(t["optional"]),
        "b": tft.bucketize(z, 4),
        "s": tft.compute_and_apply_vocabulary(t["s"], vocab_filename="s", num_oov_buckets=1),
        "words": tft.compute_and_apply_vocabulary(t["words"], vocab_filename="words", top_k=20, store_frequency=True),
        "i": tft.compute_and_apply_vocabulary(t["i"], vocab_filename="i", top_k=11),
        "zk": tft.scale_to_z_score_per_key(t["y"], t["k"]),
        "v3": tft.scale_to_0_1(t["v3"], elementwise=True),
        "mi": tft.compute_and_apply_vocabulary(t["s"], labels=t["label"], vocab_filename="mi", top_k=30),
        "ragged": t["ragged"],
        "filled": t["filled"],
    }


def numbers(t):
    x, y = t["x"], t["y"]
    statistics = (tft.min(x), tft.max(x), tft.mean(x), tft.var(x), tft.sum(y))
    noisy = tf.sin(tf.cast(t["i"], tf.float32) * 1.7) * 1e3 + x / 3.0
    with_nan = tf.where(y > 3.0, noisy * float("nan"), noisy)
    histogram, edges = tft.histogram(x, boundaries=6)
    outputs = {f"statistic_{i}": _zeros(x) + value for i, value in enumerate(statistics)}
    return outputs | {
        "size": _zeros(t["i"]) + tft.size(x),
        "z": tft.scale_to_z_score(noisy),
        "z_elementwise": tft.scale_to_z_score(t["v3"], elementwise=True),
        "z_int": tft.scale_to_z_score(t["i"]),
        "z_nan": tf.where(tf.math.is_nan(with_nan), _zeros(x), tft.scale_to_z_score(with_nan)),
        "min_max": tft.scale_by_min_max(x, -1.0, 1.0),
        "scaled": tft.scale_to_0_1(t["optional"]),
        "gaussian": tft.scale_to_gaussian(y),
        "histogram": tf.cast(histogram, tf.float32) + _zeros(x)[:, None],
        "edges": edges + _zeros(x)[:, None],
        "density": tft.estimated_probability_density(x, boundaries=5),
        "pca": tf.abs(tf.matmul(t["v3"], tft.pca(t["v3"], 2, tf.float32))),
        "covariance": tft.covariance(t["v3"], tf.float32)[None] + _zeros(t["v3"])[:, None],
    }


def quantiles(t):
    x = t["x"]
    bounds = tft.quantiles(x, 5, 0.01)
    return {
        "b": tft.bucketize(x, 6),
        "b_weighted": tft.bucketize(x, 6, weights=t["w"]),
        "b_elementwise": tft.bucketize(t["v3"], 4, elementwise=True),
        "b_int": tft.bucketize(t["i"], 5),
        "b_optional": tft.bucketize(t["optional"], 3),
        "applied": tft.apply_buckets(t["y"], bounds),
        "interpolated": tft.apply_buckets_with_interpolation(t["y"], bounds),
        "b_per_key": tft.bucketize_per_key(x, t["k"], 4),
    }


def vocabularies(t):
    s = t["s"]
    return {
        "all": tft.compute_and_apply_vocabulary(s, vocab_filename="all"),
        "threshold": tft.compute_and_apply_vocabulary(s, frequency_threshold=4, num_oov_buckets=3, vocab_filename="th"),
        "shuffled": tft.compute_and_apply_vocabulary(s, fingerprint_shuffle=True, vocab_filename="fp"),
        "records": tft.compute_and_apply_vocabulary(t["k"], file_format="tfrecord_gzip", vocab_filename="records"),
        "lower": tft.compute_and_apply_vocabulary(tf.strings.upper(t["k"]), top_k=30, vocab_filename="upper"),
        "int_all": tft.compute_and_apply_vocabulary(t["i"], vocab_filename="int_all"),
        "ints": tft.compute_and_apply_vocabulary(t["ints"], top_k=20, vocab_filename="ints"),
        "ragged": tft.compute_and_apply_vocabulary(t["ragged"], vocab_filename="ragged"),
        "filled": tft.compute_and_apply_vocabulary(t["filled"], vocab_filename="filled"),
        "reserved": tft.compute_and_apply_vocabulary(
            s, top_k=20, reserved_tokens=["tok1", "PAD"], vocab_filename="reserved"
        ),
        "empty": tft.compute_and_apply_vocabulary(s, frequency_threshold=10**6, vocab_filename="empty"),
        "empty_top": tft.compute_and_apply_vocabulary(
            s, frequency_threshold=10**6, top_k=3, vocab_filename="empty_top"
        ),
    }


def coverage(t):
    tft.vocabulary(
        t["s"],
        top_k=5,
        vocab_filename="coverage",
        key_fn=lambda token: token[:4],
        coverage_top_k=2,
        coverage_frequency_threshold=2,
    )
    return {
        "x": t["x"],
        "w": tft.compute_and_apply_vocabulary(t["s"], weights=t["w"], vocab_filename="weighted"),
        "w_top": tft.compute_and_apply_vocabulary(
            t["k"], weights=t["x"], top_k=3, vocab_filename="weighted_top", store_frequency=True
        ),
    }


def information(t):
    s, label = t["s"], t["label"]
    return {
        "mi": tft.compute_and_apply_vocabulary(t["k"], labels=label, vocab_filename="mi", store_frequency=True),
        "mi_0": tft.compute_and_apply_vocabulary(s, labels=label, vocab_filename="mi_0", min_diff_from_avg=0.0),
        "adjusted": tft.compute_and_apply_vocabulary(
            s, labels=label, use_adjusted_mutual_info=True, top_k=30, vocab_filename="adjusted"
        ),
        "weighted": tft.compute_and_apply_vocabulary(s, labels=label, weights=t["w"], top_k=25, vocab_filename="wmi"),
        "int": tft.compute_and_apply_vocabulary(t["i"], labels=label, top_k=9, vocab_filename="imi"),
    }


def text(t):
    tokens = tf.strings.split(t["text"], " ").to_sparse()
    ids = tft.compute_and_apply_vocabulary(tft.ngrams(tokens, (1, 2), " "), top_k=200, vocab_filename="ngrams")
    indices, weights = tft.tfidf(ids, 201)
    return {"ids": ids, "indices": indices, "weights": weights, "bag": tft.bag_of_words(tokens, (1, 1), " ")}


def per_key(t):
    x, k = t["x"], t["k"]
    keys, counts = tft.count_per_key(k)
    tft.count_per_key(tf.strings.as_string(t["i"]), key_vocabulary_filename="counts")
    return {
        "z": tft.scale_to_z_score_per_key(x, k),
        "min_max": tft.scale_by_min_max_per_key(x, k, -1, 1),
        "scaled": tft.scale_to_0_1_per_key(t["y"], t["s"]),
        "min_max_file": tft.scale_by_min_max_per_key(x, k, 0, 1, key_vocabulary_filename="key_min_max"),
        "z_file": tft.scale_to_z_score_per_key(x, k, key_vocabulary_filename="key_z"),
        "count": tf.reduce_sum(counts) + _zeros(t["label"]),
        "key": tf.fill(tf.shape(k), keys[1]),
    }


def phases(t):
    """Three phases: scaled, its square scaled, that bucketed; and a vocabulary of a vocabulary's indices."""
    z = tft.scale_to_z_score(tft.scale_to_0_1(t["x"]) ** 2)
    ids = tft.compute_and_apply_vocabulary(t["s"], top_k=60, vocab_filename="first")
    return {
        "b": tft.bucketize(z, 5),
        "e": tft.scale_to_0_1(tf.exp(z)),
        "ids": tft.compute_and_apply_vocabulary(ids, top_k=10, vocab_filename="second"),
        "z_ids": tft.scale_to_z_score(tf.cast(ids, tf.float32)),
    }


def table(t):
    """A table of the user's own in front of an analyzer: a resource, which a plain GraphDef cannot hold."""
    with tf.init_scope():
        initializer = tf.lookup.KeyValueTensorInitializer(["a", "b", "c"], ["A", "B", "C"])
        upper = tf.lookup.StaticHashTable(initializer, "?")
    return {
        "v": tft.compute_and_apply_vocabulary(upper.lookup(t["k"]), vocab_filename="upper"),
        "z": tft.scale_to_z_score(t["x"]),
    }


def nothing_but_z(t):
    return {"z": tft.scale_to_z_score(t["x"])}


def nothing(t):
    """No analyzer at all; and every form of output."""
    return {
        "double": t["x"] * 2,
        "hash": tft.hash_strings(t["s"], 50),
        "words": t["words"],
        "ragged": t["ragged"],
        "matrix": tf.stack([t["v3"], t["v3"] * 2], axis=1),
        "int32": tf.cast(t["i"], tf.int32),
        "flag": t["x"] > 3,
    }


def beam_analyzer(t):
    """An analyzer of the user's own, as a Beam transform: only stock TensorFlow Transform runs it."""
    import apache_beam as beam

    class Greatest(beam.PTransform):
        def expand(self, batches):
            return (
                batches
                | beam.Map(lambda batch: float(np.max(batch[0])))
                | beam.CombineGlobally(max)
                | beam.Map(lambda value: [np.float32(value)])
                | beam.FlatMap(lambda values: values)
            )

    (greatest,) = tft.experimental.ptransform_analyzer([t["x"]], Greatest(), [tf.float32], [[]])
    return {"x": t["x"] - greatest}
