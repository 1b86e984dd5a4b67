"""The subcommands that change what was built."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import Dir, Wait, app, errors_as_messages, log_to_stderr
from transforms.errors import ConfigError


@app.command()
def rollback(
    directory: Dir,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version that readers should take.")],
    check: Annotated[bool, typer.Option("--verify", help="Look at every byte of it before.")] = False,
    wait: Wait = 0.0,
) -> None:
    """Let readers take another version than the latest, if it is whole.

    A later build of the same data leads them back to the version that the config says.

    \b
    recordmill rollback out/flights 20260131T093000123Z-1f9c
    """
    with errors_as_messages():
        from pipeline.versions import rollback as roll

        result = roll(str(directory), version, check=check, wait=wait)
        typer.echo(f"readers take {result.now} (before: {result.before})")


@app.command("gc")
def collect_garbage(
    directory: Dir,
    keep: Annotated[int, typer.Option(metavar="N", min=1, help="Keep the newest N versions.")],
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Remove only what is older, such as 12h or 30d.")
    ] = "0s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    wait: Wait = 0.0,
) -> None:
    """Remove old versions, what of the cache no version needs, and what dead builds left behind.

    The version that readers take always stays.

    \b
    recordmill gc out/flights --keep 5
    recordmill gc out/flights --keep 5 --older-than 30d --dry-run
    """
    with errors_as_messages():
        from pipeline import listing
        from pipeline.gc import gc as collect
        from pipeline.values import parse_duration

        try:
            seconds = parse_duration(older_than)
        except ValueError as error:
            raise ConfigError(f"--older-than {older_than}: {error}") from error
        removed = collect(str(directory), keep=keep, older_than=seconds, dry_run=dry_run, wait=wait)
        listing.show_removed(removed, dry_run=dry_run)


@app.command()
def repair(
    directory: Dir,
    version: Annotated[str | None, typer.Option(metavar="VERSION", help="This version alone, and not all.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG", help="The config of the output, to make from the cache or the source."),
    ] = None,
    wait: Wait = 0.0,
) -> None:
    """Put whole files in the place of damaged and missing ones: the bytes that were published.

    They come from another version that has them, from the mirror, or are made of the cache or the source. The exit
    status is 1 when something is left.

    \b
    recordmill repair out/flights
    recordmill repair out/flights --config flights.yaml
    """
    with errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config)) if config is not None else None
        log_to_stderr(logging.INFO)
        from pipeline import listing
        from pipeline.repair import repair as mend

        found = mend(str(directory), version=version, config=loaded, wait=wait)
        listing.show_repairs(found)
        if any(version.left for version in found):
            raise typer.Exit(1)


@app.command()
def reindex(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="TFRecord files, of any writer.")],
    level: Annotated[int, typer.Option(metavar="N", min=1, max=9, help="1 is fastest, 9 smallest.")] = 1,
) -> None:
    """Write TFRecord files anew, in their place, as gzip in blocks with an index: the same records.

    \b
    recordmill reindex old/*.tfrecord.gz --level 6
    """
    with errors_as_messages():
        from pipeline import listing
        from pipeline.foreign import reindex as index

        for file in files:
            listing.show_reindexed(index(str(file), level=level))
