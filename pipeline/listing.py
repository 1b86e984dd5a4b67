"""What the commands print that look at versions, or mend them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from pipeline.printing import shortened, size, stdout, table_of, to_plain

if TYPE_CHECKING:
    from pipeline.absent import Absence
    from pipeline.foreign import Counted, Reindexed
    from pipeline.gc import Removed
    from pipeline.inspect import Inspection
    from pipeline.repair import Repair
    from pipeline.verify import Verification
    from pipeline.versions import Version


def show_inspection(found: Inspection, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_inspection_to_plain(found), indent=1, ensure_ascii=False))
        return
    console = stdout()
    versions = table_of("version", "created", right=("rows", "size"))
    for summary in found.versions:
        name = f"[bold]{escape(summary.version)}[/]" if summary.version == found.version else escape(summary.version)
        latest = " (latest)" if summary.is_latest else ""
        versions.add_row(name + latest, escape(summary.created), f"{summary.num_records:,}", size(summary.num_bytes))
    console.print(versions)
    shards = table_of("shard", right=("rows", "blocks", "size"))
    for split in found.splits:
        for shard in found.manifest.splits[split]:
            name = escape(f"{split}/{shard.name}")
            shards.add_row(name, f"{shard.num_records:,}", f"{len(shard.blocks):,}", size(shard.num_bytes))
        if not found.manifest.splits[split]:
            shards.add_row(escape(split), "0", "0", "no shards")
    console.print(shards)
    features = table_of("feature", "kind", "shape", "")
    for feature in found.features:
        features.add_row(
            escape(feature.name), feature.kind, escape(feature.shape), "" if feature.required else "may be missing"
        )
    console.print(features)
    for split, rows in found.rows.items():
        for number, row in enumerate(rows):
            console.print(f"[bold]{escape(split)}, row {number}[/]")
            for name, value in row.items():
                console.print(f"  {escape(name)}: {escape(shortened(value))}")
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
        "rows": {split: [to_plain(row) for row in rows] for split, rows in found.rows.items()},
    }


def show_verification(found: Verification, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=1, ensure_ascii=False))
        return
    console = stdout()
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
    table = table_of("version", "created", right=("rows", "shards", "size"))
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
    console = stdout()
    console.print(table)
    for version in found:
        if version.damage:
            console.print(f"[red]damaged:[/] {escape(version.damage)}")


def show_removed(removed: Removed, *, dry_run: bool) -> None:
    console, done = stdout(), "would remove" if dry_run else "removed"
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
    console = stdout()
    for record in found.found:
        console.print(f"[red]found:[/] version {record.version}, {escape(record.shard)}, record {record.record}")
    for version, reason in found.not_searched.items():
        console.print(f"[red]not searched:[/] version {version}: {escape(reason)}")
    result = f"[red]{len(found.found):,} found[/]" if found.found else "[green]none found[/]"
    console.print(f"{found.keys:,} keys, {found.searched:,} records searched: {result}")


def show_counts(found: Sequence[Counted], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([dataclasses.asdict(file) for file in found], indent=1, ensure_ascii=False))
        return
    table = table_of("file", right=("records", "size"))
    table.add_column("")
    for file in found:
        how = "by the index" if file.indexed else "read"
        table.add_row(escape(file.path), f"{file.num_records:,}", size(file.num_bytes), how)
    console = stdout()
    console.print(table)
    console.print(f"{sum(file.num_records for file in found):,} records")


def show_records(rows: Iterable[dict[str, Any]], *, first: int, as_json: bool) -> None:
    """``first``: the number of the first of them; JSON has a line for each."""
    console = stdout()
    for number, row in enumerate(rows, start=first):
        if as_json:
            print(json.dumps(to_plain(row), ensure_ascii=False))
            continue
        console.print(f"[bold]record {number}[/]")
        for name, values in row.items():
            console.print(f"  {escape(name)}: {escape(shortened(values))}")


def show_repairs(found: Sequence[Repair]) -> None:
    console = stdout()
    if not found:
        console.print("nothing is damaged")
    for repair in found:
        for file, source in repair.mended.items():
            console.print(f"[green]mended[/] {escape(repair.version)}/{escape(file)}, from {escape(source)}")
        for file, reason in repair.left.items():
            console.print(f"[red]left[/] {escape(repair.version)}/{escape(file)}: {escape(reason)}")


def show_reindexed(found: Reindexed) -> None:
    stdout().print(
        f"{escape(found.path)}: {found.num_records:,} records, {size(found.bytes_before)} before, "
        f"{size(found.bytes_now)} now"
    )
