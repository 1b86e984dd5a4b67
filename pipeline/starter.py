"""The texts that ``recordmill init`` writes: a commented config, and a ``preprocessing.py`` to start from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

FEW_INTEGERS = 32  # up to so many different values, whole numbers are taken for categories or flags
VOCABULARY_SIZE = 1000  # up to so many different texts get a vocabulary; more are hashed
LONG_VALUE = 512  # values of more bytes on the average are contents, not names of something
LABELS = ("label", "labels", "target", "y", "class", "clicked", "click")


@dataclass(frozen=True)
class Column:
    """A feature of the schema.  ``kind``: int, float or bytes.

    ``distinct``: different values in the rows looked at; ``mean_bytes``: of a value there.
    """

    name: str
    kind: str
    is_list: bool
    is_nested: bool
    required: bool
    distinct: int
    mean_bytes: float = 0.0

    @property
    def treatment(self) -> str:
        """What the preprocessing does with it: a key of ``_TITLES``."""
        if self.is_nested or self.distinct == 0:
            return "left out"
        if self.name.lower() in LABELS:
            return "label"
        if self.kind == "bytes" and self.mean_bytes > LONG_VALUE:
            return "content"
        if self.kind == "bytes":
            return "vocabulary" if self.distinct <= VOCABULARY_SIZE else "hashed"
        return "as it is" if self.kind == "int" and self.distinct <= FEW_INTEGERS else "z-score"

    @property
    def expression(self) -> str:
        """The feature, in Python with TFT."""
        raw = f"inputs[{_quoted(self.name)}]"
        if self.treatment == "z-score":
            return self._filled(f"tft.scale_to_z_score({raw})", "0.0")
        if self.treatment == "as it is":
            return self._filled(raw, "-1")
        text = self._filled(raw, '""')
        if self.treatment == "vocabulary":
            return f"tft.compute_and_apply_vocabulary({text}, num_oov_buckets=1)"
        return f"tft.hash_strings({text}, HASH_BUCKETS)" if self.treatment == "hashed" else raw

    def _filled(self, expression: str, default: str) -> str:
        """Single values that may be missing are filled; lists keep their lengths."""
        return expression if self.required or self.is_list else f"_fill_missing({expression}, {default})"


_TITLES = {
    "label": "The label, as it is.",
    "z-score": "Numbers; a missing one becomes the mean, which is 0.",
    "as it is": f"Whole numbers of at most {FEW_INTEGERS} different values; a missing one becomes -1.",
    "vocabulary": "Texts that come back again and again; missing ones and those not seen in training share an index.",
    "content": "Long values, such as images and articles, as they are.",
    "hashed": "Texts of very many different values.",
}
_FILL_MISSING = '''

def _fill_missing(values, default):
    """A column that may be missing arrives sparse: make it dense, with the default where it is missing."""
    one_a_row = tf.SparseTensor(values.indices, values.values, [values.dense_shape[0], 1])
    return tf.squeeze(tf.sparse.to_dense(one_a_row, default_value=tf.cast(default, values.dtype)), axis=1)
'''


def preprocessing_text(name: str, columns: Sequence[Column]) -> str:
    """A module with a ``preprocessing_fn`` for the columns."""
    groups = {title: [c for c in columns if c.treatment == treatment] for treatment, title in _TITLES.items()}
    body = []
    for title, members in groups.items():
        body += [f"        # {title}"] if members else []
        body += [f"        {_quoted(c.name)}: {c.expression},  # {_values(c)}" for c in members]
    left_out = [c for c in columns if c.treatment == "left out"]
    body += [f"        # Left out, as it has no value or is nested: {_quoted(c.name)}" for c in left_out]
    code = "\n".join(["    return {", *body, "    }"])
    fills = "_fill_missing(" in code
    used = {"import tensorflow as tf": fills, "import tensorflow_transform as tft": "tft." in code}
    head = [
        f'"""Preprocessing of {name}: a start, to be made better.\n\n'
        'Ordinary TensorFlow Transform, see https://www.tensorflow.org/tfx/transform/get_started\n"""',
        "\n".join(line for line, needed in used.items() if needed),
        "HASH_BUCKETS = 1024" if "HASH_BUCKETS" in code else "",
    ]
    function = f'def preprocessing_fn(inputs):\n    """Columns of the source in, features out."""\n{code}\n'
    return "\n\n".join(part for part in head if part) + "\n\n\n" + function + (_FILL_MISSING if fills else "")


def config_text(
    *, name: str, format: str, files: Sequence[str], delimiter: str, preprocessing: str, columns: Sequence[Column]
) -> str:
    """A config in YAML with a comment on each choice; ``files`` and ``preprocessing`` relative to it."""
    one_or_many = f" {_yaml(files[0])}" if len(files) == 1 else "".join(f"\n    - {_yaml(file)}" for file in files)
    separator = "" if delimiter == "," else f"\n  delimiter: {_quoted(delimiter)}"
    key = next(
        (c for c in columns if c.name.lower().endswith("id")),
        max(columns, key=lambda c: (c.kind == "bytes", c.distinct)),
    )
    return f"""\
# What to build, for `recordmill build`.  Paths are relative to this file.
name: {_yaml(name)}
source:
  format: {format}
  files:{one_or_many}{separator}

# The types of the columns come from all the data.  A published version has them in its schema.pbtxt: copy it here and
# change it to fix them.
# schema: schema.pbtxt

# Each row goes to a split by its content, or by that of the key columns: rows with equal keys stay together.
splits: {{train: 0.8, eval: 0.1, test: 0.1}}
# split_by: [{_quoted(key.name)}]

preprocess: {_yaml(preprocessing)}      # leave it out to write the columns as they are
analyze: train                    # means and vocabularies come from the train split alone; or all

output:
  dir: {_yaml(f"out/{name}")}
  compression: gzip               # gzip, zlib, none
  level: 1                        # 1 is fastest, 9 smallest
  shard_size: 128MiB              # or a number of shards for each split: shards: 16
  shuffle: blocks                 # none; blocks: good for training, and fast; rows: an exact permutation
  seed: 0
runner: {{name: direct, workers: 2}}
"""


def _values(column: Column) -> str:
    kind = {"int": "whole number", "float": "number", "bytes": "text"}[column.kind]
    return f"{kind}{'s, many a row' if column.is_list else ''}, {column.distinct:,} different"


def _quoted(text: str) -> str:
    """As a literal of Python and of YAML alike."""
    return json.dumps(text, ensure_ascii=False)


def _yaml(text: str) -> str:
    """As a value in YAML, without quotes where none are needed."""
    plain = re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./*?-]*", text) and text.lower() not in ("true", "false", "null")
    return text if plain else _quoted(text)
