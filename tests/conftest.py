"""Hypothesis without a time limit for an example, which a busy machine breaks; in CI the same examples each time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("here", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("here")
