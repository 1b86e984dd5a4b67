"""The command ``recordmill``; each subcommand imports what it needs when it runs, so that help comes at once."""

from __future__ import annotations

import gc

from pipeline.cli import building, looking, mending
from pipeline.cli.app import app

__all__ = ["app", "building", "mending", "looking", "main"]


def main() -> None:
    """The command.  What imports make stays to the end: the garbage collector need not look at it again and again."""
    gc.set_threshold(100_000, 50, 50)
    try:
        app()
    finally:
        gc.freeze()
