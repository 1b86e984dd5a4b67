"""The subcommands that change what was built."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.app import Dir, Wait, app, errors_as_messages
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
        from pipeline import report
        from pipeline.gc import gc as collect
        from pipeline.values import parse_duration

        try:
            seconds = parse_duration(older_than)
        except ValueError as error:
            raise ConfigError(f"--older-than {older_than}: {error}") from error
        removed = collect(str(directory), keep=keep, older_than=seconds, dry_run=dry_run, wait=wait)
        report.show_removed(removed, dry_run=dry_run)
