"""Features that moved further than the schema or the config lets them, from version to version and split to split."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.layout import Layout
from transforms.errors import BuildError, ConfigError

SCHEMA = """
feature {{ name: "n" type: INT presence {{ min_fraction: 1 }} shape {{}} {n} }}
feature {{ name: "city" type: BYTES presence {{ min_fraction: 1 }} shape {{}} {city} }}
"""
DRIFT_N = "drift_comparator { jensen_shannon_divergence { threshold: 0.05 } }"
DRIFT_CITY = "drift_comparator { infinity_norm { threshold: 0.25 } }"


def write_data(folder: Path, *, shift: int = 0, berlin: int = 1) -> None:
    """Of ten rows, ``berlin`` are of Berlin and the others of Rome."""
    rows = [f"{i % 100 + shift},{'Berlin' if i % 10 < berlin else 'Rome'}" for i in range(2000)]
    (folder / "t.csv").write_text("n,city\n" + "\n".join(rows) + "\n")


def write_config(folder: Path, more: str = "", *, n: str = "", city: str = "") -> str:
    (folder / "schema.pbtxt").write_text(SCHEMA.format(n=n, city=city))
    config = folder / "c.yaml"
    config.write_text("name: t\nsource: {format: csv, files: t.csv}\nschema: schema.pbtxt\noutput: {dir: out}\n" + more)
    return str(config)


def builds(folder: Path, config: str) -> BuildResult:
    """The second build, after both features have moved."""
    write_data(folder)
    assert build(load(config)).moves == ()
    write_data(folder, shift=60, berlin=4)
    return build(load(config))


def test_without_a_word_nothing_is_compared(tmp_path: Path) -> None:
    assert builds(tmp_path, write_config(tmp_path)).moves == ()


def test_the_schema_says_how_far_a_feature_may_move(tmp_path: Path) -> None:
    result = builds(tmp_path, write_config(tmp_path, n=DRIFT_N, city=DRIFT_CITY))
    assert [(move.feature, move.measure, move.limit) for move in result.moves] == [
        ("n", "Jensen-Shannon", 0.05),
        ("city", "L-infinity", 0.25),
    ]
    assert result.moves[1].value == pytest.approx(0.3)
    assert any("`city` of all moved by 0.3 (L-infinity) from version" in warning for warning in result.warnings)


def test_a_feature_that_moved_less_is_not_told(tmp_path: Path) -> None:
    loose = DRIFT_CITY.replace("0.25", "0.35")
    assert [move.feature for move in builds(tmp_path, write_config(tmp_path, n=DRIFT_N, city=loose)).moves] == ["n"]


def test_fail_publishes_nothing_and_says_how_it_could_be(tmp_path: Path) -> None:
    config = write_config(tmp_path, "on_data_drift: fail\ndrift_threshold: 0.2\n")
    with pytest.raises(BuildError, match="on_data_drift is fail, so nothing was published") as error:
        builds(tmp_path, config)
    assert "`city` of all moved by 0.3 (L-infinity)" in str(error.value)
    assert len(Layout(str(tmp_path / "out")).published()) == 1
    result = build(load(config, ["on_data_drift=warn"]))
    assert len(result.moves) == 2 and result.reused_partitions == 1
    assert build(load(config)).up_to_date


def test_skew_between_splits(tmp_path: Path) -> None:
    splits = "splits: {train: 0.5, eval: 0.5}\nsplit_by: [city]\non_data_drift: warn\nskew_threshold: 0.1\n"
    (tmp_path / "t.csv").write_text("n,city\n" + "".join(f"{i // 8 % 50},city{i % 8}\n" for i in range(4000)))
    (move,) = build(load(write_config(tmp_path, splits))).moves  # each city is in one split
    assert (move.split, move.feature, move.limit, move.against) == ("eval", "city", 0.1, "train") and move.value >= 0.2


@pytest.mark.parametrize("more", ["drift_threshold: 0.2\n", "skew_threshold: 0.2\n", "on_data_drift: adapt\n"])
def test_thresholds_that_nothing_would_read_are_refused(tmp_path: Path, more: str) -> None:
    write_data(tmp_path)
    with pytest.raises(ConfigError):
        load(write_config(tmp_path, more))
