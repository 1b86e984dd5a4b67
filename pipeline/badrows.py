"""The rows that a version lacks, for people who want to mend them: JSON lines below ``bad_rows/`` in its folder."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence

from pipeline.config import Config
from transforms.blockfile import BlockFile
from transforms.build import bad_rows
from transforms.files import committed
from transforms.partition import BadRow, Partition, Place, redacted
from transforms.sources import Locates

FOLDER = "bad_rows"
FILE = os.path.join(FOLDER, "bad_rows.jsonl")


def write_bad_rows(
    config: Config, partitions: Sequence[Partition], block_files: Sequence[BlockFile], folder: str
) -> None:
    """Writes ``folder/bad_rows/bad_rows.jsonl``, if there are any: a line for each row, in the order of the source.

    ``file`` (as the config calls it), ``partition``, ``row`` (from 1, without a header), and, for text, ``line`` (from
    1) and ``offset`` (bytes of the text, unpacked), ``column``, ``value`` (shortened; null where ``redact`` says so)
    and ``reason``.
    """
    found = [(p, row) for p, f in zip(partitions, block_files, strict=True) for row in bad_rows(p, f)]
    if not found:
        return
    rows = redacted((row for _, row in found), config.redact or ())
    places = _places(config, rows)
    with committed(os.path.join(folder, FILE)) as output:
        for (partition, _), row in zip(found, rows, strict=True):
            place = places.get((row.path, row.row))
            line = {
                "file": config.written(row.path),
                "partition": partition.place,
                "row": row.row + 1,
                "line": place.line if place else None,
                "offset": place.offset if place else None,
                "column": row.column,
                "value": row.value,
                "reason": row.reason,
            }
            output.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def _places(config: Config, rows: Sequence[BadRow]) -> dict[tuple[str, int], Place]:
    source = config.source_spec.open_bare()
    if not isinstance(source, Locates):
        return {}
    by_path: defaultdict[str, set[int]] = defaultdict(set)
    for row in rows:
        by_path[row.path].add(row.row)
    return {
        (path, row): place
        for path, ordinals in by_path.items()
        for row, place in zip(sorted(ordinals), source.locate(path, sorted(ordinals)), strict=True)
    }
