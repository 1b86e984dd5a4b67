"""The user's own step from RecordBatch to RecordBatch, before schema, split and preprocessing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.forecast import forecast
from pipeline.inspect import inspect
from transforms.errors import BadRowsError, ConfigError, SourceError

STEP = """
import pyarrow as pa
import pyarrow.compute as pc
from units import FACTOR

def clean(batch):
    grams = pc.multiply(pc.cast(batch.column("kg"), pa.float64()), FACTOR)
    return pa.record_batch({"id": batch.column("id"), "grams": pc.cast(grams, pa.int64())})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("id,kg\n" + "".join(f"{i},{i}.5\n" for i in range(10)))
    (tmp_path / "cleaning.py").write_text(STEP)
    (tmp_path / "units.py").write_text("FACTOR = 1000.0\n")
    return tmp_path


def run(folder: Path, step: str = "cleaning.py:clean", **options: Any) -> BuildResult:
    source = {"format": "csv", "files": "data/*"}
    content = {"name": "d", "source": source, "prepare": step, "output": {"dir": "out", "shuffle": "none"}} | options
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=1"]))


def rows(folder: Path) -> list[dict[str, Any]]:
    return inspect(str(folder / "out"), rows=1000).rows["all"]


def test_everything_after_it_sees_what_it_makes(folder: Path) -> None:
    run(folder, splits={"all": 1.0})
    assert rows(folder) == [{"id": i, "grams": 1000 * i + 500} for i in range(10)]


def test_its_code_is_part_of_the_key(folder: Path) -> None:
    run(folder)
    (folder / "cleaning.py").write_text(STEP + "\n# a comment\n")
    assert run(folder).up_to_date
    (folder / "units.py").write_text("FACTOR = 100.0\n")
    told = forecast(load(str(folder / "config.yaml")))
    again = run(folder)
    assert again.reasons == told.reasons == ("prepare, module units: constant in `FACTOR` changed",)
    assert rows(folder)[3]["grams"] == 350


def test_rows_that_it_leaves_out_are_counted(folder: Path) -> None:
    (folder / "cleaning.py").write_text(
        "import pyarrow as pa\nimport pyarrow.compute as pc\n"
        "def clean(batch):\n    return batch.filter(pc.is_in(batch['id'], pa.array(['1', '4'])))\n"
    )
    result = run(folder)
    assert (result.rows_read, result.removed_rows, result.splits["all"].rows) == (10, 8, 2)


def test_a_split_by_what_it_makes(folder: Path) -> None:
    result = run(folder, splits={"train": 0.5, "eval": 0.5}, split_by="grams")
    assert sum(split.rows for split in result.splits.values()) == 10


def test_bad_rows_keep_their_names(folder: Path) -> None:
    (folder / "cleaning.py").write_text("def clean(batch):\n    return batch\n")
    (folder / "schema.pbtxt").write_text('feature { name: "kg" type: INT }')
    with pytest.raises(BadRowsError, match="a.csv, row 1, column 'kg'"):
        run(folder, schema="schema.pbtxt")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def clean(batch):\n    return batch['nothing']\n",
            r"a.csv, in the rows from 1 on: .*cleaning.py:2: return b",
        ),
        ("def clean(batch):\n    return batch.to_pydict()\n", "clean returned dict; it takes a pyarrow.RecordBatch"),
    ],
)
def test_steps_that_fail(folder: Path, code: str, message: str) -> None:
    (folder / "cleaning.py").write_text(code)
    with pytest.raises(SourceError, match=message):
        run(folder)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("cleaning.py", "must be a file and a function in it, such as cleaning.py:clean"),
        ("nothing.py:clean", "does not exist"),
        ("cleaning.py:polish", "has no function polish; define `def polish"),
    ],
)
def test_steps_that_are_not_there(folder: Path, step: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(folder, step)
