"""The page on a version, and the distances that it tells."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pipeline.build import build
from pipeline.cli import app
from pipeline.compare import Distance, distances
from pipeline.config import load
from pipeline.statistics import to_proto
from transforms.statistics import Collector


def dataset(**columns: pa.Array) -> object:
    batch = pa.RecordBatch.from_pydict(columns)
    collector = Collector(["all"])
    collector.look(batch, np.zeros(batch.num_rows, np.int32))
    return to_proto(collector.finish(), {"all": batch.num_rows}).datasets[0]


def numbers(low: float, high: float) -> pa.Array:
    return pa.array(np.linspace(low, high, 20_000).astype(np.float32))


@pytest.mark.parametrize(
    ("old", "new", "low", "high"),
    [
        (numbers(0, 1), numbers(0, 1), 0, 0.001),
        (numbers(0, 1), numbers(2, 3), 0.999, 1),
        (numbers(0, 1), numbers(0, 2), 0.3, 0.32),  # by hand: 0.75 * log2(4/3) = 0.311
        (numbers(5, 5), numbers(5, 5), 0, 0),
        (numbers(5, 5), numbers(4, 6), 0.99, 1),
        (numbers(5, 5), numbers(6, 6), 1, 1),
    ],
)
def test_how_far_numbers_moved(old: pa.Array, new: pa.Array, low: float, high: float) -> None:
    (found,) = distances(dataset(x=old), dataset(x=new))
    assert found.measure == "Jensen-Shannon" and low - 1e-9 <= found.value <= high + 1e-9
    (back,) = distances(dataset(x=new), dataset(x=old))
    assert back.value == pytest.approx(found.value, abs=1e-9)


def test_how_far_text_moved() -> None:
    old = pa.array([b"a"] * 60 + [b"b"] * 40, pa.binary())
    new = pa.array([b"a"] * 30 + [b"b"] * 50 + [b"c"] * 20, pa.binary())
    assert distances(dataset(x=old), dataset(x=new)) == [Distance("x", "L-infinity", pytest.approx(0.3), "a")]
    assert distances(dataset(x=old), dataset(y=new)) == []
    assert distances(dataset(x=old), dataset(x=numbers(0, 1).slice(0, 100))) == []


class Checker(HTMLParser):
    """Every tag is closed, and nothing is fetched from anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        addresses = [value or "" for name, value in attrs if name in ("src", "href")]
        assert all(address.startswith("data:") for address in addresses) and tag != "script"
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(path: Path) -> str:
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    assert checker.open == []
    return " ".join(checker.text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(
        "name: t\nsource: {format: csv, files: rows.csv}\nsplits: {train: 0.75, eval: 0.25}\noutput: {dir: out}\n"
        "max_bad_rows: 10\n"
    )
    write(tmp_path, 0)
    return tmp_path


def write(folder: Path, more: int) -> None:
    rows = [f"{i + more},{'<b>Köln' if i % 3 else 'Bonn'}" for i in range(2000)]
    (folder / "rows.csv").write_text("id,city\n" + "\n".join(rows) + "\n1,2,3\n", encoding="utf-8")


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == status, result.output
    return result.output


def test_a_page_of_a_version(folder: Path) -> None:
    build(load(str(folder / "c.yaml")))
    page = folder / "out" / "report.html"
    assert run("report", str(folder / "out")).strip() == str(page)
    text = shown(page)
    assert "2,001 rows read: 2,000 written" in text and "1 bad" in text
    assert "has 3 cells" in text and "<b>Köln" in text and "string, 0.0% missing" in text
    assert "No feature moved by more than 0.1 (2 comparisons)." in text
    assert "How it was built" in text and "BuildBlocks" in text and "0 of 1 partitions came from the cache" in text
    assert "Schema and first rows of train" in text and "row 4" in text
    write(folder, 5000)
    build(load(str(folder / "c.yaml")))
    run("report", str(folder / "out"), "-o", str(folder / "new.html"))
    text = shown(folder / "new.html")
    assert "Jensen-Shannon" in text and "1.000" in text and "train, since 20" in text
    first = sorted(path.name for path in (folder / "out" / "versions").iterdir())[0]
    run("report", str(folder / "out"), "--version", first)
    assert "since" not in shown(page)


def test_what_cannot_be_shown_is_said(folder: Path) -> None:
    assert "is not an output folder" in run("report", str(folder), status=2)
    result = build(load(str(folder / "c.yaml")))
    (Path(result.path) / "stats.pb").unlink()
    assert "has no whole stats.pb" in run("report", str(folder / "out"), status=1)


def test_a_version_whose_build_left_no_report_is_shown_without(folder: Path) -> None:
    version = build(load(str(folder / "c.yaml"))).version
    report = folder / "out" / "reports" / f"{version}.json"
    report.write_text("{")
    run("report", str(folder / "out"))
    text = shown(folder / "out" / "report.html")
    assert "How it was built" not in text and "Features of train" in text
    build(load(str(folder / "c.yaml"), ["output.level=3"]))
    run("gc", str(folder / "out"), "--keep", "1")
    assert not report.exists() and len(list(report.parent.iterdir())) == 1
