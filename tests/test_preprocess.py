"""The user's file: how it is loaded and told apart, and the transform graph on feature batches."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from transforms.analyze import accumulate, analyze
from transforms.errors import ConfigError, SchemaError
from transforms.preprocess import Preprocessing, TransformGraph
from transforms.schema import Schema

CODE = "from beside import FACTOR\n\n\ndef preprocessing_fn(inputs):\n    return {'x': inputs['x'] * FACTOR}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "preprocessing.py").write_text(CODE)
    return tmp_path


def load(folder: Path) -> Preprocessing:
    return Preprocessing.load(str(folder / "preprocessing.py"))


# ---- the digest ------------------------------------------------------------------------------------------------------


def test_digest_ignores_comments_and_sees_constants_of_other_modules(folder: Path) -> None:
    before = load(folder).digest
    (folder / "preprocessing.py").write_text(f"# A comment.\n{CODE}\n")
    (folder / "beside.py").write_text("FACTOR   =  2.0  # twice\n")
    assert load(folder).digest == before
    (folder / "beside.py").write_text("FACTOR = 3.0\n")
    assert load(folder).digest != before
    (folder / "beside.py").write_text("FACTOR = 2.0\n")
    assert load(folder).digest == before


def test_digest_follows_imports_into_packages(folder: Path) -> None:
    package = folder / "features"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "scaling.py").write_text("from . import constants\n")
    (package / "constants.py").write_text("A = 1\n")
    (folder / "preprocessing.py").write_text(CODE + "    import features.scaling\n")
    before = load(folder).digest
    (package / "constants.py").write_text("A = 2\n")
    assert load(folder).digest != before


def test_digest_does_not_depend_on_the_place(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    for name in ("preprocessing.py", "beside.py"):
        (other / name).write_text((folder / name).read_text())
    assert load(other).digest == load(folder).digest


def test_digest_imports_no_tensorflow(folder: Path) -> None:
    code = (
        "import sys; from transforms.preprocess import Preprocessing; "
        f"Preprocessing.load({str(folder / 'preprocessing.py')!r}).digest; assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)


# ---- loading ---------------------------------------------------------------------------------------------------------


def test_function_sees_edits_of_modules_beside_it(folder: Path) -> None:
    assert load(folder).function({"x": np.float32(3)})["x"] == 6
    (folder / "beside.py").write_text("FACTOR = 5.0  # longer\n")
    assert load(folder).function({"x": np.float32(3)})["x"] == 15
    assert str(folder) not in sys.path


def test_pickled_as_its_path(folder: Path) -> None:
    copy = pickle.loads(pickle.dumps(load(folder)))
    assert copy.digest == load(folder).digest and copy.function({"x": np.float32(1)})["x"] == 2


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n", "has no function preprocessing_fn; define"),
        ("def preprocessing_fn(:\n", "line 1: is not Python"),
        ("preprocessing_fn = 3\n", "preprocessing_fn is not a function"),
        (
            "def preprocessing_fn(i): pass\nimport no_such_module\n",
            r"preprocessing.py:2: import no_such_module: cannot",
        ),
    ],
)
def test_files_that_do_not_work_are_named(code: str, message: str, folder: Path) -> None:
    (folder / "preprocessing.py").write_text(code)
    with pytest.raises(ConfigError, match=message):
        _ = load(folder).function


def test_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere.py: cannot be read: No such file"):
        Preprocessing.load(str(folder / "nowhere.py"))


# ---- the transform graph ---------------------------------------------------------------------------------------------

SCHEMA = Schema.from_text(
    """
    feature { name: "x" type: FLOAT presence { min_fraction: 1 } shape {} }
    feature { name: "i" type: INT presence { min_fraction: 1 } shape {} }
    feature { name: "s" type: BYTES presence { min_fraction: 1 } shape {} }
    feature { name: "v" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 2 } } }
    feature { name: "words" type: BYTES }
    """,
    path="schema.pbtxt",
)


def graph(folder: Path, body: str) -> TransformGraph:
    (folder / "preprocessing.py").write_text(
        f"import tensorflow as tf\nimport tensorflow_transform as tft\n\n\ndef preprocessing_fn(t):\n    {body}\n"
    )
    out = folder / "graph"

    def run_phase(spec):
        accumulate(spec, [batch()], str(folder / f"phase-{spec.number}"))
        return [[str(folder / f"phase-{spec.number}")]]

    analyze(load(folder), SCHEMA, run_phase=run_phase, work_dir=str(folder / "work"), out_dir=str(out))
    return TransformGraph(str(out), SCHEMA)


def batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "x": pa.array([1.0, 2.0, 3.0], pa.float32()),
            "i": pa.array([3, 2**40, -1]),
            "s": pa.array([b"1", b"2", b"\xff"], pa.binary()),
            "v": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
            "words": pa.array([[b"a", b"b"], [], None], pa.list_(pa.binary())),
        }
    )


def test_outputs_have_the_form_of_feature_batches(folder: Path) -> None:
    transform = graph(
        folder,
        "r = tf.RaggedTensor.from_sparse(t['words']); return {"
        "'x': t['x'] + 1, 'm': tf.stack([t['v'], -t['v']], 1), 'w': t['words'], 'r': r, "
        "'rr': tf.strings.bytes_split(r), 'd3': tf.sparse.expand_dims(t['words'], 1), "
        "'flag': t['x'] > 1, 'small': tf.cast(t['i'], tf.int32), 'wide': tf.cast(t['x'], tf.float64) / 3}",
    )
    result = transform.transform(batch())
    assert result.schema == transform.output_schema()
    assert result.to_pydict() == {
        "d3$sparse_indices_0": [[0, 0], [], []],
        "d3$sparse_indices_1": [[0, 1], [], []],
        "d3$sparse_values": [[b"a", b"b"], [], []],
        "flag": [0, 1, 1],
        "m": [[1, 2, -1, -2], [3, 4, -3, -4], [5, 6, -5, -6]],
        "r$ragged_values": [[b"a", b"b"], [], []],
        "rr$ragged_values": [[b"a", b"b"], [], []],
        "rr$row_lengths_1": [[1, 1], [], []],
        "small": [3, 0, -1],
        "w": [[b"a", b"b"], [], []],
        "wide": [float(np.float32(v / 3)) for v in (1, 2, 3)],
        "x": [2, 3, 4],
    }


def test_zero_rows_and_slices(folder: Path) -> None:
    transform = graph(folder, "return {'x': t['x'] * 2, 'w': t['words'], 'v': t['v']}")
    assert transform.transform(batch().slice(0, 0)).num_rows == 0
    whole = transform.transform(batch())
    assert transform.transform(batch().slice(1)).to_pydict() == whole.slice(1).to_pydict()


def test_error_of_the_graph_names_the_row(folder: Path) -> None:
    transform = graph(folder, "return {'n': tf.strings.to_number(t['s'], tf.int64)}")
    with pytest.raises(SchemaError, match=r"row 3 of a batch \(x=3.0.*StringToNumberOp"):
        transform.transform(batch())


def test_float64_that_float32_cannot_hold_is_an_error(folder: Path) -> None:
    transform = graph(folder, "return {'big': tf.cast(t['i'], tf.float64) ** 5}")
    with pytest.raises(SchemaError, match="row 2 of a batch.*feature .*big.*: a float64 is too large for float32"):
        transform.transform(batch())


def test_missing_value_names_column_and_cure(folder: Path) -> None:
    transform = graph(folder, "return {'x': t['x']}")
    broken = batch().set_column(0, "x", pa.array([1.0, None, 2.0], pa.float32()))
    with pytest.raises(SchemaError, match="column 'x' has None in row 2 of a batch.*default value"):
        transform.transform(broken)


def test_graph_is_loaded_once(folder: Path) -> None:
    transform = graph(folder, "return {'x': t['x']}")
    assert TransformGraph(str(folder / "graph"), SCHEMA)._graph is transform._graph
