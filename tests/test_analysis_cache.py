"""What a partition accumulated for an analyzer is kept, and used again exactly as long as it holds."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline import plan
from pipeline.build import BuildResult, build
from pipeline.config import load
from pipeline.layout import Layout, Manifest
from transforms.analyze.sections import SectionFile

HEAD = "import tensorflow as tf\nimport tensorflow_transform as tft\n\nSCALE = 2.0\nUNUSED = 1\n\n"
MEAN = "    out['m'] = tft.scale_to_z_score(x['a'] * SCALE)\n"
VOCABULARY = "    out['v'] = tft.compute_and_apply_vocabulary(x['s'])\n"
TWO_PHASES = "    out['p'] = tft.scale_to_0_1(tft.scale_to_z_score(x['a']))\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Path:
    monkeypatch.setattr(plan, "PARTITION_BYTES", 900)
    caplog.set_level(logging.INFO, "recordmill")
    (tmp_path / "data").mkdir()
    for i in range(5):
        write(tmp_path, i)
    return tmp_path


def write(folder: Path, number: int, *, first: float = 0.0, step: float = 1.0) -> None:
    lines = "".join(f"{number},{first + i * step + 0.5},token {i % 7}\n" for i in range(40))
    (folder / "data" / f"{number}.csv").write_text("id,a,s\n" + lines)


def run(folder: Path, *body: str, head: str = HEAD, **config: Any) -> BuildResult:
    code = f"{head}def preprocessing_fn(x):\n    out = {{'a': x['a']}}\n{''.join(body)}    return out\n"
    (folder / "preprocessing.py").write_text(code)
    content = {
        "name": "d",
        "source": {"format": "csv", "files": "data/*"},
        "preprocess": "preprocessing.py",
        "output": {"dir": "out"},
    } | config
    (folder / "config.yaml").write_text(json.dumps(content))
    return build(load(str(folder / "config.yaml"), ["runner.workers=1"]))


def read(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int, int]]:
    """Phase, partitions that were read, partitions: of each phase since the last call."""
    found = re.findall(r"analysis, phase (\d+): (\d+) of (\d+) partitions are read", caplog.text)
    caplog.clear()
    return [tuple(map(int, numbers)) for numbers in found]  # type: ignore[misc]


def sections(folder: Path) -> list[set[str]]:
    """Of each file of accumulators of one partition, the oldest first."""
    partition = sorted((folder / "out" / "cache" / "accumulators").iterdir())[0]
    files = sorted(partition.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return [set(SectionFile(str(path)).names) for path in files]


def transformed(result: BuildResult) -> dict[str, bytes]:
    found = Path(result.path)
    return {str(p.relative_to(found)): p.read_bytes() for p in found.glob("*/*.tfrecord*")}


def from_nothing(folder: Path, *body: str, **config: Any) -> dict[str, bytes]:
    shutil.rmtree(folder / "out")
    return transformed(run(folder, *body, **config))


def test_only_a_new_partition_is_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(folder, MEAN, VOCABULARY)
    assert read(caplog) == [(0, 5, 5)]
    write(folder, 5, first=1000)
    second = run(folder, MEAN, VOCABULARY)
    assert read(caplog) == [(0, 1, 6)]
    assert any(reason.startswith("analysis: scale_to_z_score/mean_and_var") for reason in second.reasons)
    assert second.built_partitions == 6
    assert transformed(second) == from_nothing(folder, MEAN, VOCABULARY)


def test_unchanged_results_encode_nothing_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = "    out['u'] = tft.scale_to_0_1(x['a'])\n"
    run(folder, body, VOCABULARY.replace("x['s'])", "x['s'], frequency_threshold=1000)"))
    write(folder, 5, first=0.25, step=0.5)
    second = run(folder, body, VOCABULARY.replace("x['s'])", "x['s'], frequency_threshold=1000)"))
    assert read(caplog) == [(0, 5, 5), (0, 1, 6)]
    assert (second.built_partitions, second.reasons) == (1, ("source: data/5.csv is new",))


def test_a_new_analyzer_alone_is_accumulated(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(folder, MEAN, VOCABULARY)
    run(folder, MEAN, VOCABULARY, "    out['q'] = tft.bucketize(x['a'], 3)\n")
    assert read(caplog) == [(0, 5, 5), (0, 5, 5)]
    first, second = sections(folder)
    assert len(second) == 1 and not first & second
    run(folder, VOCABULARY, "    out['q'] = tft.bucketize(x['a'], 3)\n")
    assert read(caplog) == [(0, 0, 5)]


def test_parameters_of_a_combiner_tell_entries_apart(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    coarse = "    out['q'] = tft.bucketize(x['a'], 3, epsilon=0.1)\n"
    run(folder, coarse)
    run(folder, coarse.replace("0.1", "0.01"))
    assert read(caplog) == [(0, 5, 5), (0, 5, 5)]
    assert len(set.union(*sections(folder)) - {"column a"}) == 2


def test_an_edit_invalidates_what_depends_on_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = run(folder, MEAN, VOCABULARY)
    same = run(folder, MEAN, VOCABULARY, head=HEAD.replace("UNUSED = 1", "UNUSED = 2  # more"))
    assert same.up_to_date and same.version == first.version
    assert read(caplog) == [(0, 5, 5), (0, 0, 5)]
    run(folder, MEAN, VOCABULARY, head=HEAD.replace("2.0", "3.0"))
    assert read(caplog) == [(0, 5, 5)]
    assert [len(names - {"column a"}) for names in sections(folder)] == [2, 1]


def test_later_phases_depend_on_the_results_of_earlier_ones(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(folder, TWO_PHASES)
    assert read(caplog) == [(0, 5, 5), (1, 5, 5)]
    run(folder, TWO_PHASES, VOCABULARY)
    assert read(caplog) == [(0, 5, 5), (1, 0, 5)]
    write(folder, 5)  # the mean stays, the variance too: the same values once more
    run(folder, TWO_PHASES, VOCABULARY)
    assert read(caplog) == [(0, 1, 6), (1, 1, 6)]
    write(folder, 6, first=500)
    last = run(folder, TWO_PHASES, VOCABULARY)
    assert read(caplog) == [(0, 1, 7), (1, 7, 7)]
    assert transformed(last) == from_nothing(folder, TWO_PHASES, VOCABULARY)


@pytest.mark.parametrize("kind", ["accumulators", "transforms"])
@pytest.mark.parametrize("cut", [False, True])
def test_damaged_entries_are_made_again(folder: Path, kind: str, cut: bool) -> None:
    whole = transformed(run(folder, MEAN, VOCABULARY))
    places = [path for path in sorted((folder / "out" / "cache" / kind).rglob("*")) if path.is_file()]
    for path in places[:2] + places[-1:]:
        if kind == "accumulators":
            shutil.rmtree(folder / "out" / "cache" / "transforms")
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 16
        path.write_bytes(content[: len(content) // 2] if cut else content)
        shutil.rmtree(folder / "out" / "versions")
        (folder / "out" / "LATEST").unlink()
        again = run(folder, MEAN, VOCABULARY)
        assert any(str(path) in warning for warning in again.warnings), again.warnings
        assert transformed(again) == whole


def test_what_cannot_be_told_apart_is_not_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = "    out['r'] = tft.scale_to_0_1(x['a'] + tf.random.uniform([], 0.0, 0.0))\n"
    run(folder, body)
    write(folder, 5)
    run(folder, body)
    assert read(caplog) == [(0, 5, 5), (0, 6, 6)]
    assert not (folder / "out" / "cache" / "accumulators").exists()


def test_the_manifest_tells_each_result(folder: Path) -> None:
    result = run(folder, MEAN, VOCABULARY)
    manifest = Manifest.load(Layout(str(folder / "out")).manifest_path(result.version))
    assert len(manifest.analyzers) >= 3
    assert all(len(value) >= 32 for value in manifest.analyzers.values())
