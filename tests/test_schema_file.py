"""``recordmill schema``, and what ``on_schema_drift`` does with data that differ from the schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.build import BuildResult, build
from pipeline.cli import app
from pipeline.config import load
from pipeline.layout import Layout
from transforms.errors import ConfigError, SchemaError
from transforms.schema import Schema

FIRST = "id,color,size\n1,red,1.5\n2,blue,2\n3,red,\n4,blue,7\n"
SECOND = "id,color,size,gate\n5,green,x,4\n99,,,5\n"
DIFFERENCES = [
    "column 'color' is required, and 1 of 6 rows have no value",
    "column 'size' is float in the schema, and holds text cell",
    "column 'gate' is not in the schema; 2 of 6 rows have it",
    "feature 'id' has 2 of 6 values outside of its domain: 5 to 99",
    "feature 'color' has 1 of 5 values outside of its domain: 'green'",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(FIRST)
    write_config(tmp_path)
    return tmp_path


def write_config(folder: Path, **more: object) -> None:
    config = {"name": "t", "source": {"format": "csv", "files": "*.csv"}, "output": {"dir": "out"}}
    (folder / "c.yaml").write_text(json.dumps(config | {"runner": {"workers": 1}} | more))


def command(folder: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["schema", str(folder / "c.yaml"), *arguments])
    return result.exit_code, result.output


def run(folder: Path, **more: object) -> BuildResult:
    write_config(folder, schema="schema.pbtxt", **more)
    return build(load(str(folder / "c.yaml")))


def published(folder: Path) -> Schema:
    layout = Layout(str(folder / "out"))
    path = Path(layout.version_dir(layout.latest() or ""), "schema.pbtxt")
    return Schema.from_text(path.read_text(), path=str(path))


def test_the_schema_of_all_rows_fits_them(folder: Path) -> None:
    status, output = command(folder)
    assert status == 0 and "3 features, from all 4 rows" in output
    text = (folder / "schema.pbtxt").read_text()
    assert 'value: "blue"' in text and "max: 4" in text and "type: FLOAT" in text
    write_config(folder, schema="schema.pbtxt")
    status, output = command(folder)
    assert status == 0 and "All 4 rows are as" in output
    assert not run(folder, on_schema_drift="fail").warnings


def test_a_file_that_is_there_stays(folder: Path) -> None:
    (folder / "schema.pbtxt").write_text("mine")
    status, output = command(folder)
    assert status == 2 and "already there" in output
    assert (folder / "schema.pbtxt").read_text() == "mine"
    assert command(folder, "-o", str(folder / "new.pbtxt"))[0] == 0
    assert command(folder, "--force")[0] == 0
    assert (folder / "schema.pbtxt").read_text() == (folder / "new.pbtxt").read_text()


def drifted(folder: Path) -> None:
    command(folder)
    (folder / "b.csv").write_text(SECOND)
    write_config(folder, schema="schema.pbtxt")


def test_each_difference_is_told_with_counts_and_an_example(folder: Path) -> None:
    drifted(folder)
    before = (folder / "schema.pbtxt").read_text()
    status, output = command(folder)
    assert status == 1 and all(difference in output for difference in DIFFERENCES), output
    assert "b.csv, row 1, 'x'" in output
    assert (folder / "schema.pbtxt").read_text() == before
    status, output = command(folder, "--update")
    assert status == 0 and "Wrote" in output
    assert command(folder)[0] == 0  # all rows are as the new one says
    assert run(folder, on_schema_drift="fail").bad_rows == 0


def test_fail_publishes_nothing(folder: Path) -> None:
    drifted(folder)
    with pytest.raises(SchemaError, match="on_schema_drift is fail") as found:
        run(folder, on_schema_drift="fail", max_bad_rows=9)
    assert all(difference in str(found.value) for difference in DIFFERENCES[:3])
    assert Layout(str(folder / "out")).latest() is None


def test_fail_looks_at_values_too(folder: Path) -> None:
    command(folder)
    (folder / "b.csv").write_text("id,color,size\n5,green,1\n")
    with pytest.raises(SchemaError, match="'color' has 1 of 5 values outside of its domain: 'green'"):
        run(folder, on_schema_drift="fail")
    assert Layout(str(folder / "out")).latest() is None


def test_warn_is_the_default(folder: Path) -> None:
    drifted(folder)
    result = run(folder, max_bad_rows=9)
    assert result.bad_rows == 2  # the text in a column of numbers, the missing color
    assert any("leaves out columns of the data: 'gate'" in warning for warning in result.warnings)
    (folder / "b.csv").write_text("id,color,size\n5,green,1\n")
    result = run(folder)
    assert [w.partition(": ")[2] for w in result.warnings] == [
        "feature 'id' has 1 of 5 values outside of its domain: 5",
        "feature 'color' has 1 of 5 values outside of its domain: 'green'",
    ]


def test_adapt_takes_the_data_as_they_are(folder: Path) -> None:
    drifted(folder)
    result = run(folder, on_schema_drift="adapt")
    assert (result.rows_read, result.bad_rows) == (6, 0)
    assert len(result.warnings) == len(DIFFERENCES)
    features = {feature.name: feature for feature in published(folder).features}
    assert (features["size"].kind, features["gate"].kind, features["color"].required) == ("bytes", "int", False)
    assert "max: 99" in features["id"].other and 'value: "green"' in features["color"].other
    assert run(folder, on_schema_drift="adapt").up_to_date


def test_a_column_that_no_row_has_any_more(folder: Path) -> None:
    command(folder)
    (folder / "a.csv").write_text("id,size\n1,1.5\n2,2\n")
    with pytest.raises(SchemaError, match="column 'color' has no value in any row"):
        run(folder, on_schema_drift="fail")
    assert run(folder, on_schema_drift="adapt").rows_read == 2
    assert not {f.name: f for f in published(folder).features}["color"].required


def test_lists_of_another_length(folder: Path) -> None:
    (folder / "a.csv").unlink()
    (folder / "a.jsonl").write_text('{"v": [1, 2]}\n{"v": [3]}\n')
    (folder / "schema.pbtxt").write_text(
        'feature { name: "v" type: INT presence { min_fraction: 1 } shape { dim { size: 2 } } }'
    )
    source = {"source": {"format": "jsonl", "files": "*.jsonl"}}
    with pytest.raises(SchemaError, match="column 'v' has 2 values in the schema, and 1 to 2 in the rows"):
        run(folder, on_schema_drift="fail", **source)
    assert run(folder, on_schema_drift="adapt", **source).bad_rows == 0


@pytest.mark.parametrize("policy", ["fail", "warn", "adapt"])
def test_without_a_file_the_last_version_counts(folder: Path, policy: str) -> None:
    write_config(folder, on_schema_drift=policy)
    first = build(load(str(folder / "c.yaml")))
    assert not first.warnings
    (folder / "b.csv").write_text(SECOND)
    if policy == "fail":
        with pytest.raises(SchemaError, match=f"than version {first.version}.*\n  .*`color` changed"):
            build(load(str(folder / "c.yaml")))
        return
    second = build(load(str(folder / "c.yaml")))
    assert second.rows_read == 6 and len(second.warnings) == (3 if policy == "warn" else 0)


def test_redacted_values_are_not_shown(folder: Path) -> None:
    command(folder)
    (folder / "b.csv").write_text("id,color,size\n5,green,1\n")
    result = run(folder, redact=["color"])
    assert result.warnings[-1].endswith("feature 'color' has 1 of 5 values outside of its domain")


def test_a_policy_that_is_not_there(folder: Path) -> None:
    write_config(folder, on_schema_drift="ignore")
    with pytest.raises(ConfigError, match="on_schema_drift 'ignore'"):
        load(str(folder / "c.yaml"))
