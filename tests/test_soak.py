"""Short forms of the soak tests; ``python tests/soak.py --help`` has the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import soak

from pipeline import plan
from transforms import cut, deal


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module, name in ((plan, "PARTITION_BYTES"), (cut, "BLOCK_BYTES"), (deal, "SECTION_PARTITIONS")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back after the test
    soak.make_small()
    return tmp_path / "world"


@pytest.mark.parametrize("seed", [11, 12])
def test_edits_give_what_a_build_from_nothing_gives(folder: Path, seed: int) -> None:
    soak.property_test(folder, steps=12, seed=seed)


def test_edits_with_preprocessing(folder: Path) -> None:
    soak.property_test(folder, steps=3, seed=13, preprocess=True)


def test_builds_that_are_killed(folder: Path) -> None:
    soak.kill_test(folder, steps=3, seed=14)


def test_file_operations_that_fail(folder: Path) -> None:
    assert soak.faults_test(folder, seed=15, every=11) > 10


def test_damaged_entries(folder: Path) -> None:
    soak.flips_test(folder, steps=6, seed=16)
