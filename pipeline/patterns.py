"""The files that paths and patterns of a config stand for, and the spans that they belong to.

A span is what arrives at one time: a day, say, or the delivery of a number.  ``{DATE}`` in a pattern stands for a day,
as ``20260131`` or ``2026-01-31`` (or in parts: ``{YYYY}``, ``{MM}`` and ``{DD}``), ``{SPAN}`` for a span's number, and
``{VERSION}`` for the number of a span's version, of which the highest is taken.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from transforms.storage import check_address, info_of, is_remote, list_files

NO_SPAN = ""  # the one span of files whose pattern names none

# The globs that find what a placeholder may stand for, and the expression that tells what it does stand for.
_DIGIT = "[0-9]"
_PLACEHOLDERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "DATE": ((_DIGIT * 8, f"{_DIGIT * 4}-{_DIGIT * 2}-{_DIGIT * 2}"), r"\d{8}|\d{4}-\d\d-\d\d"),
    "YYYY": ((_DIGIT * 4,), r"\d{4}"),
    "MM": ((_DIGIT * 2,), r"\d\d"),
    "DD": ((_DIGIT * 2,), r"\d\d"),
    "SPAN": ((_DIGIT + "*",), r"\d+"),
    "VERSION": ((_DIGIT + "*",), r"\d+"),
}
_DATE_PARTS = ("YYYY", "MM", "DD")
_FIND = re.compile(r"\{([A-Z]+)\}")


@dataclass(frozen=True)
class FilePattern:
    """A path or glob as the user wrote it, and the files that it stands for (absolute, in order).

    ``spans``: the span of each file, where the pattern tells; a day as ``2026-01-31``, a number without leading zeros.
    """

    text: str
    paths: tuple[str, ...]
    spans: Mapping[str, str] = field(default_factory=dict)


def span_order(span: str) -> tuple[int, str]:
    """Sorts the labels of spans, the oldest first."""
    return (len(span), span)


def expand(text: str, *, folder: str) -> FilePattern:
    """The files behind a path or a glob (``**`` for folders at any depth), relative to ``folder``.

    A path that exists is taken as it stands, whatever characters it has.  Raises ValueError when there is no such file,
    or one that cannot be read.
    """
    if is_remote(text):
        return _expand_remote(text)
    path = os.path.normpath(os.path.join(folder, text))
    spans: dict[str, str] = {}
    if os.path.lexists(path) or not (glob.has_magic(text) or _FIND.search(text)):
        if os.path.isdir(path):
            raise ValueError(f"is a folder; write {os.path.join(text, '*')} for the files in it")
        found = [path]
    elif _FIND.search(text):
        spans = _expand_spans(text, folder)
        found = list(spans)
    else:
        found = _glob(text, folder)
    if not found or not os.path.lexists(found[0]):
        raise ValueError(f"matches no file; {_what_is_there(text, folder)}")
    for match in found:
        if not os.access(match, os.R_OK):
            what = "cannot be read" if os.path.exists(match) else "is a link to a file that does not exist"
            raise ValueError(f"{match} {what}; mend it, or name files that leave it out")
    return FilePattern(text, tuple(found), spans)


def _expand_remote(text: str) -> FilePattern:
    check_address(text)
    spans: dict[str, str] = {}
    try:
        if _FIND.search(text):
            spans = _expand_spans(text, "")
            found = list(spans)
        else:
            found = _glob(text, "") if glob.has_magic(text) else [info_of(text).path]
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or str(error).splitlines()[0]}") from error
    if not found:
        names = [file.path for file in list_files(_fixed_part(text))]
        raise ValueError(f"matches no file; {_fixed_part(text)} holds {_listed(names)}")
    return FilePattern(text, tuple(found), spans)


def select(
    patterns: Sequence[FilePattern], *, window: int | None = None, first: str | None = None, last: str | None = None
) -> dict[str, tuple[str, ...]]:
    """The files by span, the oldest span first: of the newest ``window`` spans between ``first`` and ``last``.

    Every file once, in the order of the patterns.  Without spans, all files are those of ``NO_SPAN``.
    """
    by_span: defaultdict[str, dict[str, None]] = defaultdict(dict)
    seen: set[str] = set()
    for pattern in patterns:
        for path in pattern.paths:
            if path not in seen:
                seen.add(path)
                by_span[pattern.spans.get(path, NO_SPAN)][path] = None
    spans = sorted(by_span, key=span_order)
    if first is not None:
        spans = [span for span in spans if span_order(span) >= span_order(first)]
    if last is not None:
        spans = [span for span in spans if span_order(span) <= span_order(last)]
    return {span: tuple(by_span[span]) for span in (spans[-window:] if window is not None else spans)}


def parse_span(value: object) -> str:
    """The label of a span that a config names: a day or a number.  Raises ValueError when it is neither."""
    if isinstance(value, date):
        return value.isoformat()
    if re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)):
        return _day(str(value))
    if isinstance(value, bool) or not re.fullmatch(r"\d+", str(value)):
        raise ValueError("must be a day such as 2026-01-31, or the number of a span")
    return str(int(str(value)))


def _glob(text: str, folder: str) -> list[str]:
    if is_remote(text):
        begin = _fixed_part(text)
        files = list_files(begin, recursive="/" in text[len(begin) + 1 :])
        expression = _expression(text)
        return [f.path for f in files if expression.fullmatch(f.path) and "/." not in f.path[len(begin) :]]
    pattern = os.path.normpath(os.path.join(glob.escape(folder), text))
    return sorted(match for match in glob.glob(pattern, recursive=True) if not os.path.isdir(match))


def _expand_spans(text: str, folder: str) -> dict[str, str]:
    """The span of each file of the pattern, of the highest version of its span alone; in the order of the spans."""
    names = _FIND.findall(text)
    for name in names:
        if name not in _PLACEHOLDERS:
            known = ", ".join(f"{{{known}}}" for known in _PLACEHOLDERS)
            raise ValueError(f"has {{{name}}}, and a pattern can have {known}")
    kinds = [kind for kind in ("DATE", "YYYY", "SPAN") if kind in names]
    if len(kinds) != 1 or {"YYYY", "MM", "DD"} & set(names) not in (set(), set(_DATE_PARTS)):
        raise ValueError("must say what the spans are in one way: {DATE}, or {YYYY} with {MM} and {DD}, or {SPAN}")
    expression = _expression(text if is_remote(text) else os.path.normpath(os.path.join(glob.escape(folder), text)))
    found: dict[str, tuple[str, int]] = {}
    between = _FIND.split(text)[::2]
    for globs in itertools.product(*(_PLACEHOLDERS[name][0] for name in names)):
        pattern = "".join(itertools.chain(*zip(between, (*globs, ""), strict=True)))
        for path in _glob(pattern, folder):
            if match := expression.fullmatch(path):
                values = match.groupdict()
                found[path] = (_label(path, values), int(values.get("VERSION") or 0))
    newest: dict[str, int] = {}
    for span, version in found.values():
        newest[span] = max(version, newest.get(span, 0))
    taken = {path: span for path, (span, version) in found.items() if version == newest[span]}
    return dict(sorted(taken.items(), key=lambda item: (span_order(item[1]), item[0])))


def _expression(pattern: str) -> re.Pattern[str]:
    """What a path that a pattern found must look like; a placeholder that stands twice must stand for the same."""
    parts, seen = [], set[str]()
    for part in re.split(r"(\{[A-Z]+\}|\*\*/?|\*|\?|\[!?\]?[^\]]*\])", pattern):
        if name := _FIND.fullmatch(part):
            value = f"(?P<{name[1]}>{_PLACEHOLDERS[name[1]][1]})" if name[1] not in seen else f"(?P={name[1]})"
            parts.append(rf"(?<!\d){value}(?!\d)" if name[1] in ("SPAN", "VERSION", "DATE") else value)
            seen.add(name[1])
        elif part.startswith("["):
            parts.append(
                f"[{'^' if part[1] == '!' else ''}{re.escape(part[1:-1].lstrip('!')).replace(chr(92) + '-', '-')}]"
            )
        else:
            parts.append({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part)))
    return re.compile("".join(parts), re.DOTALL)


def _label(path: str, values: Mapping[str, str | None]) -> str:
    if values.get("SPAN"):
        return str(int(str(values["SPAN"])))
    text = values.get("DATE") or "".join(str(values[part]) for part in _DATE_PARTS)
    try:
        return _day(text)
    except ValueError as error:
        raise ValueError(f"finds {path}, and {error}; rename it") from error


def _day(text: str) -> str:
    digits = text.replace("-", "")
    try:
        return date(int(digits[:4]), int(digits[4:6]), int(digits[6:])).isoformat()
    except ValueError as error:
        raise ValueError(f"{text} is no day of the calendar") from error


def _what_is_there(pattern: str, folder: str) -> str:
    """The deepest folder of the pattern that exists, and what is in it."""
    below = os.path.dirname(pattern)
    while glob.has_magic(below) or not os.path.isdir(os.path.join(folder, below)):
        below = os.path.dirname(below)
    found = os.path.normpath(os.path.join(folder, below))
    return f"{found} holds {_listed(sorted(os.listdir(found)))}"


def _fixed_part(text: str) -> str:
    """The folder of an address in which all that the pattern finds must be."""
    magic = re.search(r"[*?\[{]", text)
    return text[: magic.start() if magic else len(text)].rpartition("/")[0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5]) or 'nothing'}{more}"
