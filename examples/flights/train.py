"""Trains a small Keras model on the shards of the flights, and exports it with the transform graph in front of it.

    python examples/flights/train.py examples/flights/out/flights model

What is exported takes raw rows, as serialized Examples of the source's columns, and gives the probability that each
flight is late.  Training read features that the same graph made, so there is no skew between the two.
"""

import argparse

import keras
import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils

from pipeline.load import dataset, open_split

LABEL = "late"
NUMBERS = ("distance_z", "planned_minutes_z", "day_of_year_01")
CATEGORIES = ("departure_bucket", "weekday", "carrier", "origin", "dest", "route", "carrier_hour")
BUCKETS = 512  # no feature has more values


def make_model() -> keras.Model:
    inputs = {name: keras.Input((), name=name, dtype="float32") for name in NUMBERS}
    inputs |= {name: keras.Input((), name=name, dtype="int64") for name in CATEGORIES}
    parts = [keras.ops.expand_dims(inputs[name], 1) for name in NUMBERS]
    parts += [keras.layers.Embedding(BUCKETS, 8)(inputs[name]) for name in CATEGORIES]
    hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Concatenate()(parts))
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))


def train(output_dir: str, *, version: str | None = None, epochs: int = 2, seed: int = 0) -> keras.Model:
    """The model, fitted to the train split."""
    keras.utils.set_random_seed(seed)
    model = make_model()
    model.compile("adam", "binary_crossentropy", metrics=["AUC"])
    train_split, eval_split = (open_split(output_dir, split, version=version) for split in ("train", "eval"))
    model.fit(
        dataset(train_split, batch_size=512, shuffle=20_000, label=LABEL, seed=seed),
        validation_data=dataset(eval_split, batch_size=512, label=LABEL),
        epochs=epochs,
        verbose=2,
    )
    return model


class Served(tf.Module):
    """The transform graph of a version, and a model behind it."""

    def __init__(self, version_dir: str, model: keras.Model) -> None:
        super().__init__()
        with open(f"{version_dir}/schema.pbtxt", encoding="utf-8") as stream:
            schema = text_format.Parse(stream.read(), schema_pb2.Schema())
        self._raw_spec = schema_utils.schema_as_feature_spec(schema).feature_spec
        self._transform = tft.TFTransformOutput(version_dir).transform_features_layer()  # keeps the vocabularies
        self._model = model

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def features(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the model is given, of serialized Examples of raw rows."""
        transformed = self._transform(tf.io.parse_example(rows, self._raw_spec))
        return {name: tensor for name, tensor in transformed.items() if name != LABEL}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def predict(self, rows: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"late": self._model(self.features(rows))[:, 0]}


def export(version_dir: str, model: keras.Model, path: str) -> None:
    """Writes a SavedModel whose default signature is ``predict``."""
    served = Served(version_dir, model)
    tf.saved_model.save(served, path, signatures={"serving_default": served.predict, "features": served.features})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output_dir", help="output.dir of the build")
    parser.add_argument("model", help="where the SavedModel goes")
    options = parser.parse_args()
    version_dir = open_split(options.output_dir, "train").folder
    export(version_dir, train(options.output_dir), options.model)


if __name__ == "__main__":
    main()
