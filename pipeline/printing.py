"""How results are printed: tables and lines for people, on a terminal in colours and elsewhere plain, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from transforms.files import write_committed


def write_json(content: Mapping[str, Any], path: str) -> None:
    write_committed(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def size(num_bytes: float) -> str:
    """``1.2 MB``: powers of 1000, as disks and networks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2f} s"
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def stdout() -> Console:
    """Lines are never broken for a pipe, whatever width the terminal had."""
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=1000)


def table_of(*left: str, right: Iterable[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def to_plain(value: Any) -> Any:
    """Values as JSON has them: bytes as text, with ``\\xff`` for what is no UTF-8."""
    if isinstance(value, Mapping):
        return {name: to_plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [to_plain(part) for part in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def shortened(value: Any, limit: int = 200) -> str:
    text = json.dumps(value if not isinstance(value, list) else value[:limit], ensure_ascii=False, default=to_plain)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
