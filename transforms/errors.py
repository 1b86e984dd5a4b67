"""What can go wrong, as one short tree.

RecordmillError
  ConfigError     the config or the command is wrong: nothing was done (exit status 2)
  SourceError     an input file cannot be read as what it is said to be
  SchemaError     data and schema do not fit, or a column has no form as a feature
  BadRowsError    rows that cannot become Examples, more than the build may drop
  CorruptError    a file of ours, or a TFRecord file, is damaged
  OutputError     a path cannot be written
  BuildError      a step of the build failed

Each message names the file, row, column or option, the value, and the cure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transforms.partition import BadRow


class RecordmillError(Exception):
    """Base of every error that recordmill raises on purpose."""


class ConfigError(RecordmillError):
    pass


class SourceError(RecordmillError):
    pass


class SchemaError(RecordmillError):
    pass


class BadRowsError(RecordmillError):
    """``rows``: what was found (``partition.BadRow``), all of it; the message shows the first few.

    ``allowed``: how many rows may be bad, in words.
    """

    SHOWN = 5

    def __init__(self, rows: Sequence[BadRow], allowed: str = "none is allowed") -> None:
        self.rows = tuple(rows)
        self.allowed = allowed
        more = len(self.rows) - self.SHOWN
        lines = [str(row) for row in self.rows[: self.SHOWN]] + ([f"and {more} more"] if more > 0 else [])
        count = f"{len(self.rows)} bad row{'s' if len(self.rows) != 1 else ''}"
        super().__init__("\n  ".join([f"{count}, and {allowed}:", *lines]))


class CorruptError(RecordmillError):
    pass


class OutputError(RecordmillError):
    pass


class BuildError(RecordmillError):
    pass


def missing_extra(package: str, extra: str, what: str) -> ConfigError:
    """What to install for something that not everyone needs."""
    return ConfigError(f"{what} need the package {package}, which is not installed: pip install 'recordmill[{extra}]'")


def shorten(value: object, limit: int = 60) -> str:
    """``repr(value)``, cut in the middle to ``limit`` characters: for messages, never for data."""
    text = repr(value)
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
