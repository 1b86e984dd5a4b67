"""What README.md tells people to run, run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config import Config, load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_config_is_the_contract(tmp_path: Path) -> None:
    (config,) = blocks("yaml")
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "data").mkdir()
    for name in ("schema.pbtxt", "preprocessing.py", "corrections.jsonl", "data/flights-1.csv.gz"):
        (tmp_path / name).touch()
    (tmp_path / "cleaning.py").write_text("def clean(batch):\n    return batch\n")
    assert isinstance(load(str(tmp_path / "config.yaml")), Config)


@pytest.mark.slow
def test_the_beam_example_runs(tmp_path: Path) -> None:
    example = next(block for block in blocks("python") if "WriteToTFRecord" in block)
    subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"days-0000{i}-of-00002.tfrecord.gz" for i in range(2)]


@pytest.mark.slow
def test_the_example_is_built_and_read_as_shown(tmp_path: Path) -> None:
    """The example's command line without its set-up, and the snippet that reads the result."""
    line = next(line.strip() for line in README.splitlines() if line.startswith("    python3 -m venv"))
    commands = [part.replace(".venv/bin/", f"{Path(sys.executable).parent}/") for part in line.split(" && ")[2:]]
    assert [command.split()[1] for command in commands] == ["build", "inspect"]
    build = f"{commands[0]} --set output.dir={tmp_path / 'out' / 'flights'}"
    subprocess.run(build.split(), cwd=ROOT, check=True)
    snippet = next(block for block in blocks("python") if "open_split" in block)
    snippets = [snippet + "assert len(next(iter(batches))[1]) == 512\n"]
    snippets += re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "loading.md").read_text(encoding="utf-8"), re.S)
    assert len(snippets) == 4
    for snippet in snippets:
        subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, check=True)
