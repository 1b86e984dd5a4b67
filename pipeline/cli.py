"""The command ``recordmill``.

Exit status: 0 done, or nothing to do; 1 failed, or faults were found; 2 the config or the command is wrong; 130 stopped
by Ctrl-C.  Each command imports what it needs when it runs, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from transforms.errors import ConfigError, RecordmillError

app = typer.Typer(
    name="recordmill",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Dir = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a build: output.dir of its config.")]
Version = Annotated[str | None, typer.Option(metavar="VERSION", help="Another version than the latest.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Put a value over the config's; may be repeated."),
]
Wait = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="Wait so long for another command that works on the output.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


@contextlib.contextmanager
def _errors_as_messages() -> Iterator[None]:
    """One message on stderr and the exit status for whatever goes wrong; with RECORDMILL_TRACEBACK=1 the traceback."""
    try:
        yield
        sys.stdout.flush()
    except typer.Exit:
        raise
    except RecordmillError as error:
        _fail(str(error), 2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        _fail("stopped; what was finished is kept, and the same command goes on from there", 130)
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MemoryError:
        _fail("out of memory; a build needs less with fewer runner.workers", 1)
    except OSError as error:
        _fail(str(error), 1)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error} (a fault of recordmill; RECORDMILL_TRACEBACK=1 shows where)", 1)


def _fail(message: str, status: int) -> None:
    if os.environ.get("RECORDMILL_TRACEBACK") == "1":
        traceback.print_exc()
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
    raise typer.Exit(status)


def _log_to_stderr(level: int) -> None:
    """Our own log alone; the libraries' chatter stays out."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LogFormatter())
    logger = logging.getLogger("recordmill")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
    logging.getLogger().setLevel(logging.ERROR)


class _LogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return prefix + record.getMessage()


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"recordmill {version('recordmill')}")
        raise typer.Exit


@app.callback()
def recordmill(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Raw data in, compressed and sharded TFRecord datasets out.

    \b
    recordmill init data/*.csv         # writes a config and a preprocessing.py
    recordmill build recordmill.yaml   # builds and publishes a version
    recordmill inspect out --rows 3    # what is in it
    recordmill verify out              # is it whole?
    """


@app.command()
def build(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file that says what to build.")],
    overrides: Overrides = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write what was done to FILE as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    wait: Wait = 0.0,
    runner: Annotated[
        str | None, typer.Option("--runner", metavar="NAME", help="Where to run: the same as --set runner.name=NAME.")
    ] = None,
) -> None:
    """Build what CONFIG says, and publish it as a new version; what is up to date is not built again.

    \b
    recordmill build flights.yaml
    recordmill build flights.yaml --set output.level=6 --set 'splits={train: 0.9, eval: 0.1}'
    recordmill build flights.yaml --quiet --json result.json
    recordmill build flights.yaml --runner flink --set runner.master=localhost:8081
    """
    with _errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), [*(overrides or []), *([f"runner.name={runner}"] if runner else [])])
        _log_to_stderr(logging.WARNING if quiet else logging.INFO)
        from rich.console import Console

        from pipeline import report
        from pipeline.build import build as run_build
        from pipeline.progress import shown

        with contextlib.nullcontext() if quiet else shown(Console(stderr=True)):
            result = run_build(loaded, wait=wait)
        if json_file is not None:
            report.write_json(report.build_to_plain(result), str(json_file))
        if not quiet:
            report.show_build(result)


@app.command()
def init(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Files of one format, or patterns.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="CONFIG", help="The config to write.")] = Path(
        "recordmill.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Look at all rows of the files, and write a config and, beside it, a preprocessing.py to start from.

    \b
    recordmill init data/2024-*.csv.gz
    recordmill init 'logs/**/*.jsonl' -o logs.yaml
    """
    with _errors_as_messages():
        _log_to_stderr(logging.WARNING)
        from pipeline import report
        from pipeline.init import write_config

        report.show_init(write_config(files, str(output), force=force))


@app.command()
def schema(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file that says what to build.")],
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write (schema.pbtxt).")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the schema that fits all rows over the one that CONFIG names.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write what all rows say as a schema.pbtxt: types, presence, numbers of values, ranges, small vocabularies.

    Where CONFIG names a schema, say what in the data differs from it, with counts and examples; the exit status is 1
    when something does.

    \b
    recordmill schema flights.yaml
    recordmill schema flights.yaml --update
    """
    with _errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), overrides or [])
        _log_to_stderr(logging.WARNING)
        from pipeline import report
        from pipeline.schema_file import look_at_schema

        result = look_at_schema(loaded, output=str(output) if output else None, update=update, force=force)
        report.show_schema(result, loaded)
        if result.differences and not result.written:
            raise typer.Exit(1)


@app.command()
def plan(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file that says what to build.")],
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Say what a build would read, analyze, build and write, how long it would take, and why; touches nothing.

    \b
    recordmill plan flights.yaml
    recordmill plan flights.yaml --set output.level=6 --json
    """
    with _errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), overrides or [])
        _log_to_stderr(logging.WARNING)
        from pipeline import report
        from pipeline.forecast import forecast

        report.show_forecast(forecast(loaded), as_json=as_json)


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
    with _errors_as_messages():
        from pipeline import report
        from pipeline.inspect import inspect as look

        found = look(str(directory), version=version, split=split, rows=rows)
        report.show_inspection(found, as_json=as_json)


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
    with _errors_as_messages():
        from pipeline import report

        if absent is not None:
            from pipeline.absent import search
            from pipeline.drop import read_drop_list
            from pipeline.layout import Layout

            layout = Layout(str(directory))
            layout.find(version)
            result = search(layout, read_drop_list(str(absent)), versions=[version] if version else None)
            report.show_absence(result, as_json=as_json)
            raise typer.Exit(1 if result.found or result.not_searched else 0)
        from pipeline.verify import verify as check

        found = check(str(directory), version=version)
        report.show_verification(found, as_json=as_json)
        if found.faults:
            raise typer.Exit(1)


@app.command()
def replay(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The config whose latest version has bad rows.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; corrections.jsonl beside CONFIG if not said."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Write the bad rows of the latest version for you to put right; a build with `corrections: FILE` takes them in.

    
    recordmill replay flights.yaml
    """
    with _errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), overrides or [])
        _log_to_stderr(logging.INFO)
        from pipeline import report
        from pipeline.replay import write_corrections

        found = write_corrections(loaded, str(output.resolve()) if output else None)
        report.show_replayed(found, config_path=str(config), named=loaded.corrections is not None)


@app.command()
def versions(directory: Dir, as_json: AsJson = False) -> None:
    """List the versions of an output folder, and which one readers take.

    \b
    recordmill versions out/flights
    """
    with _errors_as_messages():
        from pipeline import report
        from pipeline.versions import list_versions

        report.show_versions(list_versions(str(directory)), as_json=as_json)


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
    with _errors_as_messages():
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
    with _errors_as_messages():
        from pipeline import report
        from pipeline.gc import gc as collect
        from pipeline.values import parse_duration

        try:
            seconds = parse_duration(older_than)
        except ValueError as error:
            raise ConfigError(f"--older-than {older_than}: {error}") from error
        removed = collect(str(directory), keep=keep, older_than=seconds, dry_run=dry_run, wait=wait)
        report.show_removed(removed, dry_run=dry_run)


def main() -> None:
    """The command.  What imports make stays to the end: the garbage collector need not look at it again and again."""
    gc.set_threshold(100_000, 50, 50)
    try:
        app()
    finally:
        gc.freeze()
