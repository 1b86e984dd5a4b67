"""What commands print: tables for people, JSON for machines.  On a terminal in colours, elsewhere plain."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from transforms.files import write_committed

if TYPE_CHECKING:
    from pipeline.absent import Absence
    from pipeline.build import BuildResult
    from pipeline.config import Config
    from pipeline.forecast import Forecast
    from pipeline.foreign import Counted, Reindexed
    from pipeline.gc import Removed
    from pipeline.init import Initialized
    from pipeline.inspect import Inspection
    from pipeline.repair import Repair
    from pipeline.replay import Replayed
    from pipeline.schema_file import SchemaResult
    from pipeline.verify import Verification
    from pipeline.versions import Version


_SHORT_STEP = 0.05  # seconds: steps below are not worth a word


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


def build_to_plain(result: BuildResult) -> dict[str, Any]:
    return dataclasses.asdict(result) | {"rows_per_second": result.rows_per_second}


def show_replayed(found: Replayed, *, config_path: str, named: bool) -> None:
    """``named``: the config says ``corrections`` already."""
    path = os.path.relpath(found.path)
    console = _console()
    console.print(f"{found.added:,} bad rows added to {escape(path)}, which had {found.kept:,}")
    if found.gone:
        console.print(f"[yellow]{found.gone:,} more are of files that the config does not name any more[/]")
    if found.added + found.kept:
        where = "" if named else f", say `corrections: {path}` in {config_path}"
        console.print(escape(f"Put their values right{where}, and run: recordmill build {config_path}"))


def show_build(result: BuildResult) -> None:
    console = _console()
    if result.up_to_date:
        console.print(f"[green]Nothing to do:[/] version [bold]{result.version}[/] is up to date.")
    else:
        console.print(f"[green]Published[/] version [bold]{result.version}[/].")
    table = _table("split", right=("rows", "share", "shards", "size", "bytes/row"))
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
    console = _console()
    if found.up_to_date:
        console.print("[green]Nothing to do:[/] the latest version is up to date.")
    for reason in found.reasons:
        console.print(f"because {escape(reason)}")
    if found.steps:
        table = _table("step", right=("to do", "reused", "bytes", "time"))
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
    console = _console()
    table = _table("column", "kind", "values", "in preprocessing.py")
    for column in result.columns:
        values = "lists" if column.is_list else "one in each row" if column.required else "some missing"
        table.add_row(escape(column.name), column.kind, values, column.treatment)
    console.print(table)
    console.print(f"Wrote {escape(result.config_path)} and {escape(result.preprocessing_path)}.  Next:")
    console.print(f"  recordmill build {escape(result.config_path)}")


def show_schema(result: SchemaResult, config: Config) -> None:
    console = _console()
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


def show_inspection(found: Inspection, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_inspection_to_plain(found), indent=1, ensure_ascii=False))
        return
    console = _console()
    versions = _table("version", "created", right=("rows", "size"))
    for summary in found.versions:
        name = f"[bold]{escape(summary.version)}[/]" if summary.version == found.version else escape(summary.version)
        latest = " (latest)" if summary.is_latest else ""
        versions.add_row(name + latest, escape(summary.created), f"{summary.num_records:,}", size(summary.num_bytes))
    console.print(versions)
    shards = _table("shard", right=("rows", "blocks", "size"))
    for split in found.splits:
        for shard in found.manifest.splits[split]:
            name = escape(f"{split}/{shard.name}")
            shards.add_row(name, f"{shard.num_records:,}", f"{len(shard.blocks):,}", size(shard.num_bytes))
        if not found.manifest.splits[split]:
            shards.add_row(escape(split), "0", "0", "no shards")
    console.print(shards)
    features = _table("feature", "kind", "shape", "")
    for feature in found.features:
        features.add_row(
            escape(feature.name), feature.kind, escape(feature.shape), "" if feature.required else "may be missing"
        )
    console.print(features)
    for split, rows in found.rows.items():
        for number, row in enumerate(rows):
            console.print(f"[bold]{escape(split)}, row {number}[/]")
            for name, value in row.items():
                console.print(f"  {escape(name)}: {escape(_shown(value))}")
    console.print(escape(found.path))


def _inspection_to_plain(found: Inspection) -> dict[str, Any]:
    return {
        "dir": found.dir,
        "versions": [dataclasses.asdict(summary) for summary in found.versions],
        "version": found.version,
        "path": found.path,
        "splits": {
            split: [
                {"name": s.name, "num_records": s.num_records, "num_bytes": s.num_bytes, "num_blocks": len(s.blocks)}
                for s in found.manifest.splits[split]
            ]
            for split in found.splits
        },
        "features": [dataclasses.asdict(feature) for feature in found.features],
        "rows": {split: [_plain(row) for row in rows] for split, rows in found.rows.items()},
    }


def _plain(value: Any) -> Any:
    """Values as JSON has them: bytes as text, with ``\\xff`` for what is no UTF-8."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _shown(value: Any, limit: int = 200) -> str:
    text = json.dumps(value if not isinstance(value, list) else value[:limit], ensure_ascii=False, default=_plain)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show_verification(found: Verification, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1, ensure_ascii=False))
        return
    console = _console()
    for fault in found.faults:
        console.print(f"[red]fault:[/] {escape(str(fault))}")
    count = f"{found.num_shards:,} shards, {found.num_records:,} records, {size(found.num_bytes)}"
    faults = (
        f"[red]{len(found.faults)} fault{'s' if len(found.faults) != 1 else ''}[/]"
        if found.faults
        else "[green]all whole[/]"
    )
    console.print(f"version {escape(found.version)}: {count}: {faults}")


def show_versions(found: Sequence[Version], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([dataclasses.asdict(version) for version in found], indent=1, ensure_ascii=False))
        return
    table = _table("version", "created", right=("rows", "shards", "size"))
    table.add_column("schema")
    table.add_column("transform")
    table.add_column("")
    for version in found:
        state = "[red]damaged[/]" if version.damage else "[green]latest[/]" if version.is_latest else ""
        table.add_row(
            escape(version.name),
            version.created,
            f"{version.rows:,}",
            f"{version.shards:,}",
            size(version.num_bytes),
            version.schema_digest[:8],
            (version.transform_digest or "")[:8],
            state,
        )
    console = _console()
    console.print(table)
    for version in found:
        if version.damage:
            console.print(f"[red]damaged:[/] {escape(version.damage)}")


def show_removed(removed: Removed, *, dry_run: bool) -> None:
    console, done = _console(), "would remove" if dry_run else "removed"
    for version in removed.versions:
        console.print(f"{done} version {version}")
    for version in removed.on_mirror:
        console.print(f"{done} version {version} on the mirror")
    if removed.kept_cache:
        console.print(f"[yellow]the cache stays as it is:[/] {escape(removed.kept_cache)}")
    console.print(
        f"{done} {len(removed.versions):,} versions, {len(removed.entries):,} entries of the cache, "
        f"{len(removed.leftovers):,} leftovers: {size(removed.num_bytes)}"
    )


def show_absence(found: Absence, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1, ensure_ascii=False))
        return
    console = _console()
    for record in found.found:
        console.print(f"[red]found:[/] version {record.version}, {escape(record.shard)}, record {record.record}")
    for version, reason in found.not_searched.items():
        console.print(f"[red]not searched:[/] version {version}: {escape(reason)}")
    result = f"[red]{len(found.found):,} found[/]" if found.found else "[green]none found[/]"
    console.print(f"{found.keys:,} keys, {found.searched:,} records searched: {result}")


def _console() -> Console:
    """Lines are never broken for a pipe, whatever width the terminal had."""
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=1000)


def _table(*left: str, right: Iterable[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def show_counts(found: Sequence[Counted], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([dataclasses.asdict(file) for file in found], indent=1, ensure_ascii=False))
        return
    table = _table("file", right=("records", "size"))
    table.add_column("")
    for file in found:
        how = "by the index" if file.indexed else "read"
        table.add_row(escape(file.path), f"{file.num_records:,}", size(file.num_bytes), how)
    console = _console()
    console.print(table)
    console.print(f"{sum(file.num_records for file in found):,} records")


def show_records(rows: Iterable[dict[str, Any]], *, first: int, as_json: bool) -> None:
    """``first``: the number of the first of them; JSON has a line for each."""
    console = _console()
    for number, row in enumerate(rows, start=first):
        if as_json:
            print(json.dumps(_plain(row), ensure_ascii=False))
            continue
        console.print(f"[bold]record {number}[/]")
        for name, values in row.items():
            console.print(f"  {escape(name)}: {escape(_shown(values))}")


def show_repairs(found: Sequence[Repair]) -> None:
    console = _console()
    if not found:
        console.print("nothing is damaged")
    for repair in found:
        for file, source in repair.mended.items():
            console.print(f"[green]mended[/] {escape(repair.version)}/{escape(file)}, from {escape(source)}")
        for file, reason in repair.left.items():
            console.print(f"[red]left[/] {escape(repair.version)}/{escape(file)}: {escape(reason)}")


def show_reindexed(found: Reindexed) -> None:
    _console().print(
        f"{escape(found.path)}: {found.num_records:,} records, {size(found.bytes_before)} before, "
        f"{size(found.bytes_now)} now"
    )
