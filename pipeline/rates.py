"""How fast the last builds were, so that the next one can be told beforehand."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping

from pipeline.layout import Layout
from transforms.errors import CorruptError
from transforms.files import read_checked, write_checked

ENOUGH_BYTES = 8 << 20  # below, a step's time is that of its start

log = logging.getLogger("recordmill")


def read_rates(layout: Layout) -> dict[str, float]:
    """Bytes per second of each step, with all workers; none of a step that no build did yet."""
    path = _path(layout)
    if not os.path.exists(path):
        return {}
    try:
        return {str(step): float(rate) for step, rate in json.loads(read_checked(path)).items()}
    except (CorruptError, ValueError, AttributeError) as error:
        log.warning("%s", error)
        return {}


def note_rates(layout: Layout, *, num_bytes: Mapping[str, int], seconds: Mapping[str, float]) -> None:
    """Takes note of the steps that did enough to tell."""
    rates = read_rates(layout)
    for step, size in num_bytes.items():
        if seconds.get(step) and size and (size >= ENOUGH_BYTES or step not in rates):
            rates[step] = size / seconds[step]
    write_checked(_path(layout), json.dumps(rates, indent=1, sort_keys=True))


def _path(layout: Layout) -> str:
    return os.path.join(layout.cache_dir, "rates.json")
