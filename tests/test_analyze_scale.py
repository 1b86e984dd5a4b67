"""The number of Beam jobs of an analysis goes by its phases alone, and there may be many of either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import analysis, plan, stages
from pipeline.build import build
from pipeline.config import load
from pipeline.inspect import inspect

HEAD = "import tensorflow_transform as tft\n\ndef preprocessing_fn(x):\n    out = {'id': x['id']}\n"


def run(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Builds, and returns the labels of the stages of the analysis."""
    (folder / "data.csv").write_text("id,v,s\n" + "".join(f"{i},{i % 17}.25,w{i % 9}\n" for i in range(500)))
    (folder / "preprocessing.py").write_text(f"{HEAD}{body}    return out\n")
    config = {
        "name": "d",
        "source": {"format": "csv", "files": "data.csv"},
        "preprocess": "preprocessing.py",
        "output": {"dir": "out"},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    labels: list[str] = []

    def noted(label: str, *arguments: Any, **options: Any) -> None:
        labels.append(label)
        stages.run_stage(label, *arguments, **options)

    monkeypatch.setattr(plan, "PARTITION_BYTES", 3000)
    monkeypatch.setattr(analysis, "run_stage", noted)
    build(load(str(folder / "config.yaml"), ["runner.workers=1"]))
    return labels


@pytest.mark.parametrize("analyzers", [2, 120])
def test_one_job_for_each_phase_whatever_the_number_of_analyzers(
    tmp_path: Path, analyzers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"    for i in range({analyzers}):\n        out[f'o{{i}}'] = tft.scale_to_z_score(x['v'] * (1.0 + i))\n"
    assert run(tmp_path, body, monkeypatch) == ["Accumulate0"]


def test_three_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default runner, on which stock TFT does not get through three."""
    body = "    out['z'] = tft.scale_to_0_1(tft.scale_to_z_score(tft.scale_to_z_score(x['v']) * 3.0))\n"
    assert run(tmp_path, body, monkeypatch) == ["Accumulate0", "Accumulate1", "Accumulate2"]
    rows = sorted(inspect(str(tmp_path / "out"), rows=1000).rows["all"], key=lambda row: row["id"])
    values = np.array([i % 17 + 0.25 for i in range(500)])
    expected = (values - values.min()) / (values.max() - values.min())
    assert np.allclose([row["z"] for row in rows], expected, atol=1e-5)
