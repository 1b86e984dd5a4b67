"""The subcommands that look at what was built."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.app import AsJson, Dir, Version, app, errors_as_messages, log_to_stderr


@app.command()
def inspect(
    directory: Dir,
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="Decode so many rows of each split.")] = 0,
    split: Annotated[str | None, typer.Option(metavar="SPLIT", help="Show this split alone.")] = None,
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Show what an output folder holds: versions, splits, shards, schema, and decoded rows.

    \b
    recordmill inspect out/flights
    recordmill inspect out/flights --rows 3 --split train
    """
    with errors_as_messages():
        from pipeline import listing
        from pipeline.inspect import inspect as look

        found = look(str(directory), version=version, split=split, rows=rows)
        listing.show_inspection(found, as_json=as_json)


@app.command()
def verify(
    directory: Dir,
    version: Version = None,
    absent: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead, show that no record of any version has a key of this CSV."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every byte of a version against its manifest: files, checksums, blocks, records, counts.

    Names the shard, the block and the record of each fault; the exit status is 1 when there is one, and with --absent
    when a key was found or a version could not be searched.

    \b
    recordmill verify out/flights
    recordmill verify out/flights --json
    recordmill verify out/flights --absent drop.csv
    """
    with errors_as_messages():
        from pipeline import listing

        if absent is not None:
            from pipeline.absent import search
            from pipeline.drop import read_drop_list
            from pipeline.layout import Layout

            layout = Layout(str(directory))
            layout.find(version)
            result = search(layout, read_drop_list(str(absent)), versions=[version] if version else None)
            listing.show_absence(result, as_json=as_json)
            raise typer.Exit(1 if result.found or result.not_searched else 0)
        from pipeline.verify import verify as check

        found = check(str(directory), version=version)
        listing.show_verification(found, as_json=as_json)
        if found.faults:
            raise typer.Exit(1)


@app.command()
def versions(directory: Dir, as_json: AsJson = False) -> None:
    """List the versions of an output folder, and which one readers take.

    \b
    recordmill versions out/flights
    """
    with errors_as_messages():
        from pipeline import listing
        from pipeline.versions import list_versions

        listing.show_versions(list_versions(str(directory)), as_json=as_json)


Shards = Annotated[list[Path], typer.Argument(metavar="FILE", help="TFRecord files, of any writer.")]


@app.command()
def count(files: Shards, as_json: AsJson = False) -> None:
    """Count the records of TFRecord files: by their index without unpacking them, others by reading them.

    \b
    recordmill count out/flights/versions/*/train/*
    """
    with errors_as_messages():
        from pipeline import listing
        from pipeline.foreign import count as count_records

        listing.show_counts(count_records([str(file) for file in files]), as_json=as_json)


@app.command()
def cat(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TFRecord file, of any writer.")],
    record: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="This record alone, counted from 0; found by the index.")
    ] = None,
    sequence: Annotated[bool, typer.Option("--sequence", help="The records are SequenceExamples.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the records of a TFRecord file.

    \b
    recordmill cat train-00000-of-00016.tfrecord.gz --record 12345
    recordmill cat train-00000-of-00016.tfrecord.gz --json | jq .tailnum
    """
    with errors_as_messages():
        from pipeline import listing
        from pipeline.foreign import decoded

        limit = None if record is None else 1
        rows = decoded(str(file), first=record or 0, limit=limit, sequence=sequence)
        listing.show_records(rows, first=record or 0, as_json=as_json)


@app.command()
def report(
    directory: Dir,
    version: Version = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; report.html in DIR if not said.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write a page on a version: splits, features with plots, what moved since the last version, bad rows.

    \b
    recordmill report out/flights --open
    """
    with errors_as_messages():
        log_to_stderr(logging.WARNING)
        from pipeline.page import write_page

        path = write_page(str(directory), version=version, path=str(output) if output else None)
        typer.echo(path)
        if open_it:
            typer.launch(f"file://{os.path.abspath(path)}")


@app.command()
def reference(
    as_json_schema: Annotated[
        bool, typer.Option("--json-schema", help="Print a JSON Schema, with which editors check a config.")
    ] = False,
) -> None:
    """Print every key of a config with what it may be.

    \b
    recordmill reference
    recordmill reference --json-schema > config.schema.json
    """
    with errors_as_messages():
        from pipeline.reference import json_schema, markdown

        typer.echo(json.dumps(json_schema(), indent=1) if as_json_schema else markdown().rstrip())
