"""Spans: which files belong to which, and which are taken."""

from __future__ import annotations

import pytest

from pipeline.config import load
from pipeline.patterns import expand, parse_span, select
from transforms.errors import ConfigError


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a\n1\n")


def spans_of(folder, text, **chosen):
    found = select([expand(text, folder=str(folder))], **chosen)
    return {span: [path[len(str(folder)) + 1 :] for path in paths] for span, paths in found.items()}


def test_days_in_both_spellings(tmp_path):
    touch(tmp_path, "day=2026-01-31/b.csv", "day=2026-01-31/a.csv", "day=20260201/a.csv", "day=latest/a.csv")
    assert spans_of(tmp_path, "day={DATE}/*.csv") == {
        "2026-01-31": ["day=2026-01-31/a.csv", "day=2026-01-31/b.csv"],
        "2026-02-01": ["day=20260201/a.csv"],
    }


def test_days_in_parts(tmp_path):
    touch(tmp_path, "year=2026/month=01/day=09/x.csv", "year=2025/month=12/day=31/x.csv")
    assert list(spans_of(tmp_path, "year={YYYY}/month={MM}/day={DD}/*.csv")) == ["2025-12-31", "2026-01-09"]


def test_numbers_sort_as_numbers_and_the_window_takes_the_newest(tmp_path):
    touch(tmp_path, *(f"span-{n}/x.csv" for n in (1, 2, 10, 9)), "span-007/x.csv")
    assert list(spans_of(tmp_path, "span-{SPAN}/x.csv")) == ["1", "2", "7", "9", "10"]
    assert list(spans_of(tmp_path, "span-{SPAN}/x.csv", window=2)) == ["9", "10"]
    assert list(spans_of(tmp_path, "span-{SPAN}/x.csv", first="2", last="9")) == ["2", "7", "9"]


def test_the_highest_version_of_each_span(tmp_path):
    touch(tmp_path, "s1/v1/a.csv", "s1/v10/a.csv", "s1/v10/b.csv", "s1/v9/a.csv", "s2/v1/a.csv")
    assert spans_of(tmp_path, "s{SPAN}/v{VERSION}/*.csv") == {
        "1": ["s1/v10/a.csv", "s1/v10/b.csv"],
        "2": ["s2/v1/a.csv"],
    }


def test_a_placeholder_that_stands_twice_stands_for_the_same(tmp_path):
    touch(tmp_path, "20260101/log-20260101.csv", "20260101/log-20260102.csv")
    assert spans_of(tmp_path, "{DATE}/log-{DATE}.csv") == {"2026-01-01": ["20260101/log-20260101.csv"]}


def test_other_parts_of_the_pattern_stay_globs(tmp_path):
    touch(tmp_path, "a[1]/deep/er/20260101-x.csv", "a[1]/20260102-y.csv", "a[1]/20260103-y.tsv", "a[1]/20260104-z.csv")
    folder = tmp_path / "a[1]"
    assert list(spans_of(folder, "**/{DATE}-[xy].csv")) == ["2026-01-01", "2026-01-02"]
    assert list(spans_of(folder, "{DATE}-[!y].csv")) == ["2026-01-04"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{DAY}.csv", "has {DAY}, and a pattern can have {DATE}"),
        ("{DATE}-{SPAN}.csv", "in one way"),
        ("{YYYY}-{MM}.csv", "in one way"),
        ("{VERSION}.csv", "in one way"),
        ("{DATE}.csv", "20260230 is no day of the calendar; rename it"),
        ("x-{SPAN}.csv", "matches no file"),
    ],
)
def test_patterns_that_make_no_sense(tmp_path, pattern, message):
    touch(tmp_path, "20260230.csv")
    with pytest.raises(ValueError, match="(?s)" + message.replace("{", r"\{").replace("}", r"\}")):
        expand(pattern, folder=str(tmp_path))


def test_labels():
    assert [parse_span(v) for v in ("2026-01-31", 7, "007")] == ["2026-01-31", "7", "7"]
    for wrong in ("yesterday", True, "2026-02-30"):
        with pytest.raises(ValueError):
            parse_span(wrong)


def config(folder, source):
    (folder / "c.yaml").write_text(f"name: x\nsource: {{format: csv, {source}}}\noutput: {{dir: out}}\n")
    return load(str(folder / "c.yaml"))


def test_the_config_chooses_spans(tmp_path):
    touch(tmp_path, *(f"day={day}/a.csv" for day in ("2026-01-01", "2026-01-02", "2026-01-03")), "other.csv")
    chosen = config(tmp_path, "files: 'day={DATE}/*', from: 2026-01-02, to: 2026-01-03, window: 1")
    assert list(chosen.files_by_span) == ["2026-01-03"]
    assert chosen.files == (str(tmp_path / "day=2026-01-03/a.csv"),)
    assert chosen.written(chosen.files[0]) == "day=2026-01-03/a.csv"
    assert list(config(tmp_path, "files: other.csv").files_by_span) == [""]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("files: other.csv, window: 3", "source.window.*tells none"),
        ("files: ['day={DATE}/*', other.csv]", "tells no span, and other patterns do"),
        ("files: 'day={DATE}/*', from: 12", "days and numbers"),
        ("files: 'day={DATE}/*', from: 2027-01-01", "leaves no span: the files have 2026-01-01 to 2026-01-01"),
        ("files: 'day={DATE}/*', from: soon", "must be a day"),
        ("files: 'day={DATE}/*', window: 0", "window"),
    ],
)
def test_choices_that_make_no_sense(tmp_path, source, message):
    touch(tmp_path, "day=2026-01-01/a.csv", "other.csv")
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, source)
