"""A version as one page of HTML that needs nothing else: what it holds, how its features are spread, what moved."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pipeline.badrows import FILE
from pipeline.compare import distances
from pipeline.inspect import Inspection, inspect
from pipeline.layout import Layout, Manifest
from pipeline.printing import duration, shortened, size
from pipeline.result import read_report
from pipeline.statistics import STATISTICS, statistics_of
from pipeline.times import StageTime, by_step
from transforms.errors import CorruptError
from transforms.files import write_committed
from transforms.images import thumbnail

FAR = 0.1  # of a distance: marked
ROWS = 5  # that are shown

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--bar:#0969da;--bad:#b42318;--back:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4ae;--line:#30363d;--bar:#58a6ff;--bad:#ff8a80;
--back:#0d1117}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:70rem;margin:0 auto;
padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}h3{font-size:1rem;margin:.2rem 0;overflow-wrap:anywhere}
p{margin:.3rem 0}.soft{color:var(--soft)}.bad{color:var(--bad)}
.wide{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.2rem .8rem .2rem 0;text-align:left;
border-bottom:1px solid var(--line)}td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.features{display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:1rem}
.features section{border:1px solid var(--line);border-radius:.4rem;padding:.6rem}
img{max-height:6rem}svg{width:100%;height:5rem;display:block}rect{fill:var(--bar)}
"""


@dataclass(frozen=True)
class _Split:
    """One split's DatasetFeatureStatistics, and that of the version before, if it has one."""

    name: str
    now: Any
    before: Any | None


def write_page(directory: str, *, version: str | None, path: str | None) -> str:
    """Writes the page of the version (None: the latest) and returns where: ``path``, or report.html in the folder of
    the builds.

    Raises LayoutError where there is no such version, and CorruptError where its files are damaged.
    """
    layout = Layout(directory)
    layout.check_published()
    name = layout.find(version)
    manifest = Manifest.load(layout.manifest_path(name))
    earlier = [other for other in layout.published() if other < name]
    now = statistics_of(layout, name)
    if now is None:
        raise CorruptError(f"{layout.version_dir(name)}: has no whole {STATISTICS}; build the version again")
    old = statistics_of(layout, earlier[-1]) if earlier else None
    before = {dataset.name: dataset for dataset in old.datasets} if old is not None else {}
    splits = [_Split(dataset.name, dataset, before.get(dataset.name)) for dataset in now.datasets]
    hidden = frozenset(manifest.config.get("redact") or ())
    body = [
        *_summary(manifest),
        *_how_built(read_report(layout, name)),
        *_moved(splits, earlier[-1] if old is not None else None),
        *_bad_rows(os.path.join(layout.version_dir(name), FILE), manifest),
        *_rows(inspect(directory, version=name, split=splits[0].name, rows=ROWS), hidden),
        *(line for split in splits for line in _features(split, hidden)),
    ]
    title = f"{escape(manifest.name)} {escape(name)}"
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><main>\n<h1>{title}</h1>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )
    written = path or os.path.join(layout.dir, "report.html")
    write_committed(written, page)
    return written


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """The first ``words`` columns hold words, the others numbers."""
    kinds = ["" if i < words else ' class="n"' for i in range(len(head))]
    top = "".join(f'<th scope="col"{kind}>{escape(cell)}</th>' for kind, cell in zip(kinds, head, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    ]
    body = f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="wide" tabindex="0"><table>{body}</table></div>'


def _summary(manifest: Manifest) -> list[str]:
    totals, sources = manifest.totals, manifest.sources
    shards = [shard.num_bytes for shard in manifest.shards]
    source = sum(file.num_bytes for file in sources)
    share = f", {sum(shards) / source:.0%} of the source" if source else ""
    rows = []
    for split, found in manifest.splits.items():
        sizes = [shard.num_bytes for shard in found]
        rows.append(
            (split, f"{sum(s.num_records for s in found):,}", f"{len(found):,}", size(sum(sizes)))
            + ((size(min(sizes)), size(max(sizes))) if sizes else ("", ""))
        )
    return [
        f'<p class="soft">made {escape(manifest.created)} from {len(sources):,} files, {size(source)}</p>',
        f"<p>{totals.read:,} rows read: {totals.written:,} written, "
        f'<span class="{"bad" if totals.bad else "soft"}">{totals.bad:,} bad</span>, '
        f"{totals.dropped:,} dropped, {totals.removed:,} removed. {size(sum(shards))} in {len(shards):,} shards"
        f"{share}.</p>",
        "<h2>Splits</h2>",
        _table(("split", "rows", "shards", "size", "smallest", "largest"), rows),
    ]


def _how_built(report: Mapping[str, Any] | None) -> list[str]:
    """How long the steps took and what the cache had, of the build that made the version."""
    if report is None:
        return []
    read, seconds = report["rows_read"], report["seconds"]
    partitions = report["built_partitions"] + report["reused_partitions"]
    shards = report["built_shards"] + report["reused_shards"]
    lines = [
        "<h2>How it was built</h2>",
        f"<p>In {duration(seconds)}, {report['rows_per_second']:,.0f} rows/s of {read:,}. "
        f"{report['reused_partitions']:,} of {partitions:,} partitions came from the cache, "
        f"{report['reused_shards']:,} of {shards:,} shards from an earlier version.</p>",
        *(f"<p>because {escape(reason)}</p>" for reason in report["reasons"]),
        *(f'<p class="bad">{escape(warning)}</p>' for warning in report["warnings"]),
    ]
    rows = []
    for stage in map(lambda found: StageTime(**found), report["stages"]):
        took = {name: part for name, part in by_step([stage]).items() if part >= 0.01 * stage.busy}
        told = ", ".join(f"{name} {part / stage.busy:.0%}" for name, part in took.items())
        rate = f"{size(stage.num_bytes / stage.seconds)}/s" if stage.num_bytes and stage.seconds else ""
        rows.append((stage.stage, told, f"{stage.tasks:,}", duration(stage.seconds), rate))
    return [*lines, _table(("stage", "the workers' time", "tasks", "time", "read"), rows, words=2)]


def _moved(splits: Sequence[_Split], earlier: str | None) -> list[str]:
    """Drift since the version before, and skew of the other splits against the first."""
    found = []
    for split in splits:
        if split.before is not None:
            found += [(f"{split.name}, since {earlier}", moved) for moved in distances(split.before, split.now)]
        if split is not splits[0]:
            found += [(f"{split.name}, from {splits[0].name}", moved) for moved in distances(splits[0].now, split.now)]
    far = [(where, moved) for where, moved in found if moved.value > FAR]
    lines = ["<h2>What moved</h2>"]
    if not found:
        return [*lines, '<p class="soft">There is nothing to compare with.</p>']
    if not far:
        return [*lines, f"<p>No feature moved by more than {FAR} ({len(found):,} comparisons).</p>"]
    rows = [(where, m.feature, f"{m.measure}{f' ({m.most})' if m.most else ''}", f"{m.value:.3f}") for where, m in far]
    return [*lines, _table(("split", "feature", "measure", "distance"), rows, words=3)]


def _bad_rows(path: str, manifest: Manifest) -> list[str]:
    if not manifest.totals.bad:
        return []
    reasons: Counter[tuple[str, str]] = Counter()
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            reasons[row.get("column") or "", row["reason"]] += 1
    rows = [(column, reason, f"{count:,}") for (column, reason), count in reasons.most_common(50)]
    return ["<h2>Bad rows</h2>", _table(("column", "reason", "rows"), rows, words=2)]


def _rows(found: Inspection, hidden: frozenset[str]) -> list[str]:
    """The schema of what is written, with the first rows."""
    (split,) = found.splits
    rows = found.rows[split]
    head = ("feature", "kind", "shape", *(f"row {number}" for number in range(len(rows))))
    lines = []
    for feature in found.features:
        kind = feature.kind if feature.required else f"{feature.kind}, may be missing"
        values = [_value(row.get(feature.name), hide=feature.name in hidden) for row in rows]
        cells = [escape(feature.name), escape(kind), escape(feature.shape), *values]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return [
        f"<h2>Schema and first rows of {escape(split)}</h2>",
        f'<div class="wide" tabindex="0"><table>{body}</table></div>',
    ]


def _value(value: Any, *, hide: bool) -> str:
    if value is None:
        return ""
    if hide:
        return "…"
    if isinstance(value, bytes):
        picture = thumbnail(value)
        if picture is not None:
            return f'<img alt="" src="{picture}">'
    return escape(shortened(_rounded(value), 60))


def _rounded(value: Any) -> Any:
    """float32 as it would be written, instead of as the float64 that it is here."""
    if isinstance(value, list):
        return [_rounded(part) for part in value[:60]]
    return float(f"{value:.7g}") if isinstance(value, float) and math.isfinite(value) else value


def _features(split: _Split, hidden: frozenset[str]) -> list[str]:
    cards = "".join(_card(feature, split.now.num_examples, hidden) for feature in split.now.features)
    return [f"<h2>Features of {escape(split.name)}</h2>", f'<div class="features">{cards}</div>']


def _card(feature: Any, rows: int, hidden: frozenset[str]) -> str:
    name, stats = feature.path.step[0], getattr(feature, feature.WhichOneof("stats"))
    missing = stats.common_stats.num_missing
    kind = feature.Type.Name(feature.type).lower()
    lines = [f"{kind}, {missing / rows:.1%} missing" if rows else kind]
    bars: list[tuple[str, float]] = []
    if feature.HasField("num_stats"):
        lines.append(f"{stats.min:.5g} to {stats.max:.5g}, median {stats.median:.5g}")
        lines.append(f"mean {stats.mean:.5g}, deviation {stats.std_dev:.5g}, {stats.num_zeros:,} zeros")
        for histogram in stats.histograms:
            if histogram.type == histogram.STANDARD:
                bars = [(f"{b.low_value:.4g} to {b.high_value:.4g}", b.sample_count) for b in histogram.buckets]
    else:
        lines.append(f"about {stats.unique:,} different values")
        if name in hidden:
            lines.append("its values are redacted")
        elif feature.HasField("string_stats"):
            bars = [(top.value, top.frequency) for top in stats.top_values[:20]]
            lines.append("most: " + ", ".join(f"{top.value[:20]} {top.frequency:,.0f}" for top in stats.top_values[:3]))
        else:
            lines.append(f"{stats.avg_num_bytes:,.0f} bytes in the mean")
    text = "".join(f'<p class="soft">{escape(line)}</p>' for line in lines)
    return f"<section><h3>{escape(name)}</h3>{_plot(name, bars)}{text}</section>"


def _plot(name: str, bars: Sequence[tuple[str, float]]) -> str:
    if not bars:
        return ""
    most = max(height for _, height in bars) or 1.0
    drawn = "".join(
        f'<rect x="{i}" y="{1 - height / most:.4f}" width="0.9" height="{height / most:.4f}">'
        f"<title>{escape(label)}: {height:,.0f}</title></rect>"
        for i, (label, height) in enumerate(bars)
    )
    return (
        f'<svg viewBox="0 0 {len(bars)} 1" preserveAspectRatio="none" role="img" '
        f'aria-label="how {escape(name, quote=True)} is spread">{drawn}</svg>'
    )
