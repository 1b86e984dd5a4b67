"""A short form of ``python tests/fuzz.py``."""

from __future__ import annotations

import pytest

from tests.fuzz import KINDS, fuzz


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_end_well(kind: str) -> None:
    endings, faults = fuzz(kind, 120)
    assert not faults and sum(endings.values()) == 120
