"""Bad rows for people to put right: ``recordmill replay`` writes them, and the config's ``corrections`` reads them."""

from __future__ import annotations

import bisect
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.badrows import FILE
from pipeline.config import Config
from pipeline.layout import SCHEMA, Layout
from pipeline.plan import list_partitions, row_spec
from transforms.errors import ConfigError
from transforms.files import committed
from transforms.partition import FileSlice, Partition
from transforms.schema import Schema
from transforms.sources.corrected import uncorrected

DEFAULT = "corrections.jsonl"


@dataclass(frozen=True)
class Replayed:
    """``added``: rows that the file did not have; ``kept``: lines that it had; ``gone``: rows whose files are gone."""

    path: str
    added: int
    kept: int
    gone: int


def write_corrections(config: Config, output: str | None = None) -> Replayed:
    """Adds a line for each bad row of the latest version to ``output``, with the value to put right, whole.

    A line has ``file``, ``row`` (from 1), ``content`` (hash of the part of the file that has it), ``reason`` and
    ``values``: the column that is wrong; null where the source could make nothing of the row.  Raises ConfigError when
    there is no version.
    """
    layout = Layout(config.output_dir)
    version = layout.latest()
    if version is None:
        raise ConfigError(f"{config.output_dir}: has no version yet, whose bad rows could be put right")
    path = output or config.corrections_path or config.resolve(DEFAULT)
    lines = _lines(path)
    there = {(line.get("file"), line.get("row"), line.get("content")) for line in lines}
    bad = _lines(os.path.join(layout.version_dir(version), FILE))
    schema_path = os.path.join(layout.version_dir(version), SCHEMA)
    with open(schema_path, encoding="utf-8") as stream:
        kinds = row_spec(config, Schema.from_text(stream.read(), path=schema_path)).kinds
    made, gone = _made(config, bad, kinds)
    added = [line for line in made if (line["file"], line["row"], line["content"]) not in there]
    if added:
        with committed(path) as stream:
            for line in [*lines, *added]:
                stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return Replayed(path, len(added), len(lines), gone)


def _lines(path: str) -> list[dict[str, Any]]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise ConfigError(f"{path}: is no file of JSON lines: {error}") from error


def _made(config: Config, bad: Sequence[dict[str, Any]], kinds: Mapping[str, str]) -> tuple[list[dict[str, Any]], int]:
    """The lines for bad rows, and for how many there is no file any more."""
    pieces = defaultdict[str, list[FileSlice]](list)
    for partition in list_partitions(config):
        for piece in partition.slices:
            pieces[config.written(piece.path)].append(piece)
    by_piece = defaultdict[FileSlice, dict[int, dict[str, Any]]](dict)
    gone = 0
    for row in bad:
        found = sorted(pieces[row["file"]], key=lambda piece: piece.first_row)
        if not found:
            gone += 1
            continue
        place = bisect.bisect_right([piece.first_row for piece in found], row["row"] - 1) - 1
        by_piece[found[place]].setdefault(row["row"] - 1, row)
    return [line for piece, rows in by_piece.items() for line in _of_piece(config, piece, rows, kinds)], gone


def _of_piece(
    config: Config, piece: FileSlice, rows: dict[int, dict[str, Any]], kinds: Mapping[str, str]
) -> list[dict[str, Any]]:
    values: dict[int, dict[str, Any] | None] = dict.fromkeys(rows)
    content = uncorrected(piece.fingerprint)
    source = config.source_spec.open_bare()
    bare = Partition((replace(piece, fingerprint=content),))
    for raw in source.read(bare, declared=kinds, on_bad_row=lambda row: None):
        for index, ordinal in enumerate(raw.rows.tolist()):
            if (row := rows.get(ordinal)) is None:
                continue
            column = str(row["column"]).split(".")[0]
            name = row["column"] if row["column"] in raw.data.schema.names else column
            there = name in raw.data.schema.names
            values[ordinal] = {name: _plain(raw.data.column(name)[index].as_py())} if there else {}
    return [
        {
            "file": row["file"],
            "row": row["row"],
            "content": content,
            "line": row["line"],
            "reason": row["reason"],
            "values": values[ordinal],
        }
        for ordinal, row in sorted(rows.items())
    ]


def _plain(value: Any) -> Any:
    """The value as JSON has it; bytes that are no text are null."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
