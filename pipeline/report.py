"""What the commands print that take a config."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from pipeline.printing import duration, size, stdout, table_of
from pipeline.times import by_step

if TYPE_CHECKING:
    from pipeline.advise import Advised
    from pipeline.bottleneck import Finding
    from pipeline.config import Config
    from pipeline.forecast import Forecast
    from pipeline.init import Initialized
    from pipeline.replay import Replayed
    from pipeline.result import BuildResult
    from pipeline.schema_file import SchemaResult


_FEATURES = 12  # that a table of them shows
_SHORT_STEP = 0.05  # seconds: steps below are not worth a word


def show_replayed(found: Replayed, *, config_path: str, named: bool) -> None:
    """``named``: the config says ``corrections`` already."""
    path = os.path.relpath(found.path)
    console = stdout()
    console.print(f"{found.added:,} bad rows added to {escape(path)}, which had {found.kept:,}")
    if found.gone:
        console.print(f"[yellow]{found.gone:,} more are of files that the config does not name any more[/]")
    if found.added + found.kept:
        where = "" if named else f", say `corrections: {path}` in {config_path}"
        console.print(escape(f"Put their values right{where}, and run: recordmill build {config_path}"))


def show_profile(result: BuildResult, findings: Sequence[Finding], paths: Sequence[str]) -> None:
    console = stdout()
    if not result.stages:
        console.print("No stage had anything to do: there is no profile.")
        return
    table = table_of("stage", right=("tasks", "workers", "time", "at work", "longest task"))
    table.add_column("steps", overflow="fold")
    for stage in result.stages:
        steps = by_step([stage])
        total = sum(steps.values()) or 1.0
        told = ", ".join(f"{name} {took / total:.0%}" for name, took in steps.items() if took >= 0.01 * total)
        table.add_row(
            stage.stage,
            f"{stage.tasks:,}",
            f"{stage.workers:,}",
            duration(stage.seconds),
            f"{stage.busy / (stage.seconds * stage.workers):.0%}" if stage.seconds else "",
            duration(stage.longest_seconds),
            told,
        )
    console.print(table)
    for finding in findings:
        saved = f" (about {duration(finding.seconds)})" if finding.seconds else ""
        console.print(f"[yellow]·[/] {escape(finding.text)}{saved}")
    for path in paths:
        console.print(escape(path))


def show_build(result: BuildResult) -> None:
    console = stdout()
    if result.up_to_date:
        console.print(f"[green]Nothing to do:[/] version [bold]{result.version}[/] is up to date.")
    else:
        console.print(f"[green]Published[/] version [bold]{result.version}[/].")
    table = table_of("split", right=("rows", "share", "shards", "size", "bytes/row"))
    written = sum(split.rows for split in result.splits.values())
    for name, split in result.splits.items():
        per_row = f"{split.num_bytes / split.rows:.1f}" if split.rows else ""
        share = f"{split.rows / written:.1%}" if written else ""
        table.add_row(escape(name), f"{split.rows:,}", share, f"{split.shards:,}", size(split.num_bytes), per_row)
    console.print(table)
    dropped = f"{result.dropped_rows:,} dropped, " if result.dropped_rows else ""
    dropped += f"{result.removed_rows:,} removed by prepare, " if result.removed_rows else ""
    console.print(
        f"{result.rows_read:,} rows read, {result.bad_rows:,} bad, {dropped}{written:,} written, "
        f"{size(result.num_bytes)}"
    )
    if result.bad_rows_file:
        console.print(f"[yellow]bad rows:[/] {escape(result.bad_rows_file)}")
    for version in result.versions_made_again:
        console.print(f"made again without the dropped rows: {version}")
    if not result.up_to_date:
        for reason in result.reasons:
            console.print(f"because {escape(reason)}")
        console.print(f"partitions: {result.built_partitions:,} built, {result.reused_partitions:,} from the cache")
        console.print(f"shards: {result.built_shards:,} written, {result.reused_shards:,} as in an earlier version")
        steps = ", ".join(f"{name} {duration(s)}" for name, s in result.steps.items() if s >= _SHORT_STEP)
        rate = f"{result.rows_per_second:,.0f} rows/s"
        console.print(f"{duration(result.seconds)}, {rate}{f' ({escape(steps)})' if steps else ''}")
    if result.mirror is not None:
        told = result.mirror
        console.print(
            f"mirror: {told.uploaded:,} files uploaded ({size(told.uploaded_bytes)}), {told.copied:,} copied there "
            f"({size(told.copied_bytes)})"
        )
        console.print(escape(told.url))
    console.print(escape(result.path))


def show_forecast(found: Forecast, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(found) | {"seconds": found.seconds}, indent=1, ensure_ascii=False))
        return
    console = stdout()
    if found.up_to_date:
        console.print("[green]Nothing to do:[/] the latest version is up to date.")
    for reason in found.reasons:
        console.print(f"because {escape(reason)}")
    if found.steps:
        table = table_of("step", right=("to do", "reused", "bytes", "time"))
        for step in found.steps:
            unit = " shards" if step.name == "assemble" else ""
            time = "?" if step.seconds is None else f"{duration(step.seconds)}"
            table.add_row(step.name, f"{step.todo:,}{unit}", f"{step.reused:,}", size(step.num_bytes), time)
        console.print(table)
    console.print(f"source: {found.partitions:,} partitions, {size(found.source_bytes)}")
    console.print(f"output: about {size(found.output_bytes)}")
    if found.steps and found.seconds is not None:
        console.print(f"time: about {duration(found.seconds)} and the start, at the rates of {escape(found.rates)}")
    for assumption in found.assumed:
        console.print(f"assumed: {escape(assumption)}")


def show_init(result: Initialized) -> None:
    console = stdout()
    table = table_of("column", "kind", "values", "in preprocessing.py")
    for column in result.columns:
        values = "lists" if column.is_list else "one in each row" if column.required else "some missing"
        table.add_row(escape(column.name), column.kind, values, column.treatment)
    console.print(table)
    console.print(f"Wrote {escape(result.config_path)} and {escape(result.preprocessing_path)}.  Next:")
    console.print(f"  recordmill build {escape(result.config_path)}")


def show_schema(result: SchemaResult, config: Config) -> None:
    console = stdout()
    for difference in result.differences:
        console.print(f"[yellow]·[/] {escape(difference)}", soft_wrap=True)
    if config.schema_path and not result.differences:
        console.print(f"All {result.rows:,} rows are as {escape(config.schema_path)} says.")
    if result.written:
        features = len(result.schema.features)
        console.print(f"Wrote {escape(result.written)}: {features} features, from all {result.rows:,} rows.")
        if not config.schema_path:
            console.print(
                f"Edit it, and put [bold]schema: {escape(os.path.basename(result.written))}[/] into the config."
            )


def show_advice(found: Advised, *, written: Sequence[str] | None, config_path: str, as_json: bool) -> None:
    """``written``: what was written into the config; None: nothing was to be."""
    if as_json:
        print(json.dumps(_advice_to_plain(found, written), indent=1, ensure_ascii=False))
        return
    console = stdout()
    console.print(f"measured on {found.rows:,} rows; `now` is what the config says")
    table = table_of("compression", right=("size", "of now", "written at", "read by tf.data at"))
    table.add_column("")
    current = next(codec for codec in found.codecs if codec.compression == found.now)
    for codec in found.codecs:
        read = f"{codec.read / 1e6:,.0f} MB/s" if codec.read else ""
        share, rate = f"{codec.num_bytes / current.num_bytes:.0%}", f"{codec.write / 1e6:,.0f} MB/s"
        table.add_row(codec.name, size(codec.num_bytes), share, rate, read, "now" if codec is current else "")
    console.print(table)
    features = table_of("feature", right=("of the stored bytes", "of the graph's time"))
    total, seconds = sum(found.bytes.values()) or 1, sum(found.seconds.values())
    names = sorted(found.bytes, key=lambda name: -found.bytes[name])
    for name in names[:_FEATURES]:
        took = f"{found.seconds[name] / seconds:.1%}" if found.seconds.get(name) and seconds else ""
        features.add_row(escape(name), f"{found.bytes[name] / total:.1%}", took)
    console.print(features)
    if len(names) > _FEATURES:
        console.print(f"and {len(names) - _FEATURES:,} features more")
    analysis = sum(found.analyzer_seconds.values())
    if analysis:
        longest = sorted(found.analyzer_seconds.items(), key=lambda item: -item[1])[:_FEATURES]
        told = ", ".join(f"{name} {took / analysis:.0%}" for name, took in longest)
        console.print(f"analysis: {escape(told)}")
    if found.output_bytes is not None:
        console.print(f"all shards: about {size(found.output_bytes)}")
    for advice in found.advice:
        console.print(f"[yellow]·[/] {escape(advice.text)}")
    if not found.advice:
        console.print("[green]Nothing stands out.[/]")
    for line in written or ():
        console.print(f"[green]written to {escape(config_path)}:[/] {escape(line)}")
    if written is None and any(advice.change for advice in found.advice):
        console.print(f"--apply writes what stands in a config into {escape(config_path)}")


def _advice_to_plain(found: Advised, written: Sequence[str] | None) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "codecs": [
            {"name": codec.name, "bytes": codec.num_bytes, "write": codec.write, "read": codec.read}
            for codec in found.codecs
        ],
        "now": next(codec.name for codec in found.codecs if codec.compression == found.now),
        "bytes": dict(found.bytes),
        "seconds": dict(found.seconds),
        "analyzer_seconds": dict(found.analyzer_seconds),
        "output_bytes": found.output_bytes,
        "advice": [{"text": a.text, "weight": a.weight, "change": dict(a.change)} for a in found.advice],
        "written": list(written or ()),
    }
