"""The subcommands that take a config."""

from __future__ import annotations

import logging
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.app import AsJson, Overrides, Wait, app, errors_as_messages, log_to_stderr

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.result import BuildResult


class LogFormat(str, Enum):
    text = "text"
    json = "json"


ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file that says what to build.")]


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
    with errors_as_messages():
        log_to_stderr(logging.WARNING)
        from pipeline import report
        from pipeline.init import write_config

        report.show_init(write_config(files, str(output), force=force))


@app.command()
def schema(
    config: ConfigPath,
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
    with errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), overrides or [])
        log_to_stderr(logging.WARNING)
        from pipeline import report
        from pipeline.schema_file import look_at_schema

        result = look_at_schema(loaded, output=str(output) if output else None, update=update, force=force)
        report.show_schema(result, loaded)
        if result.differences and not result.written:
            raise typer.Exit(1)


@app.command()
def plan(
    config: ConfigPath,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Say what a build would read, analyze, build and write, how long it would take, and why; touches nothing.

    \b
    recordmill plan flights.yaml
    recordmill plan flights.yaml --set output.level=6 --json
    """
    with errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), overrides or [])
        log_to_stderr(logging.WARNING)
        from pipeline import report
        from pipeline.forecast import forecast

        report.show_forecast(forecast(loaded), as_json=as_json)


@app.command()
def build(
    config: ConfigPath,
    overrides: Overrides = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write what was done to FILE as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    wait: Wait = 0.0,
    runner: Annotated[
        str | None, typer.Option("--runner", metavar="NAME", help="Where to run: the same as --set runner.name=NAME.")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time went, and write a trace and a flame graph.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="json: an object a line on stderr, and nothing on stdout.")
    ] = LogFormat.text,
    metrics: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write metrics of the build for Prometheus, as a textfile."),
    ] = None,
) -> None:
    """Build what CONFIG says, and publish it as a new version; what is up to date is not built again.

    \b
    recordmill build flights.yaml
    recordmill build flights.yaml --set output.level=6 --set 'splits={train: 0.9, eval: 0.1}'
    recordmill build flights.yaml --quiet --json result.json
    recordmill build flights.yaml --runner flink --set runner.master=localhost:8081
    recordmill build flights.yaml --profile
    recordmill build flights.yaml --log-format json --metrics /var/lib/node_exporter/flights.prom
    """
    with errors_as_messages():
        from pipeline.config import load

        log_to_stderr(logging.WARNING if quiet else logging.INFO, as_json=log_format is LogFormat.json)
        loaded = load(str(config), [*(overrides or []), *([f"runner.name={runner}"] if runner else [])])
        result = _built(loaded, wait=wait, metrics=metrics, shown=log_format is LogFormat.text and not quiet)
        if json_file is not None:
            from pipeline.printing import write_json

            write_json(result.to_plain(), str(json_file))
        if log_format is LogFormat.json:
            logging.getLogger("recordmill").info("version %s", result.version, extra={"result": result.to_plain()})
            return
        from pipeline import report

        if not quiet:
            report.show_build(result)
        if profile:
            from pipeline.bottleneck import bottlenecks
            from pipeline.traces import write_traces

            paths = write_traces(result, loaded.output_dir) if result.stages else []
            report.show_profile(result, bottlenecks(loaded, result), paths)


def _built(config: Config, *, wait: float, metrics: Path | None, shown: bool) -> BuildResult:
    """Builds, with what monitors are told of it, also where it fails."""
    from rich.console import Console

    from pipeline import progress
    from pipeline.build import build as run_build
    from pipeline.metrics import write_metrics
    from pipeline.spans import send_spans

    result = None
    try:
        with progress.shown(Console(stderr=True)) if shown else progress.told():
            result = run_build(config, wait=wait)
    finally:
        if metrics is not None:
            write_metrics(str(metrics), name=config.name, result=result)
    send_spans(config.name, result)
    return result


@app.command()
def advise(
    config: ConfigPath,
    overrides: Overrides = None,
    hosts: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many hosts will read the shards, each a part of them.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Write what CONFIG can hold into it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure on a sample of the source what compression, shards and columns cost, and say what would be better.

    \b
    recordmill advise flights.yaml
    recordmill advise flights.yaml --hosts 8 --apply
    """
    with errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), overrides or [])
        log_to_stderr(logging.WARNING)
        from pipeline import report
        from pipeline.advise import advise as find_advice
        from pipeline.advise import apply as write_advice

        found = find_advice(loaded, hosts=hosts)
        written = write_advice(loaded, found.advice) if apply else None
        report.show_advice(found, written=written, config_path=str(config), as_json=as_json)


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

    \b
    recordmill replay flights.yaml
    """
    with errors_as_messages():
        from pipeline.config import load

        loaded = load(str(config), overrides or [])
        log_to_stderr(logging.INFO)
        from pipeline import report
        from pipeline.replay import write_corrections

        found = write_corrections(loaded, str(output.resolve()) if output else None)
        report.show_replayed(found, config_path=str(config), named=loaded.corrections is not None)


@app.command()
def schedule(
    config: ConfigPath,
    kind: Annotated[
        str,
        typer.Option("--for", metavar="KIND", help="cron, systemd, airflow, kubernetes or cloud-scheduler."),
    ],
    at: Annotated[str, typer.Option(metavar="CRON", help="Minute, hour, day, month and weekday.")] = "0 3 * * *",
    overrides: Overrides = None,
    retries: Annotated[int, typer.Option(min=0, metavar="N", help="How often to try again after a failure.")] = 2,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="Of one try, such as 90m or 6h.")] = "6h",
    on_failure: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="What the shell runs when no try is left: your alert.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="For containers: an image with recordmill.")
    ] = None,
    mount: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT:PATH",
            help="For containers: the volume claim, or NFS server:/share, with config and data, and where it goes.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the files there; printed if not said.")
    ] = None,
) -> None:
    """Print or write what makes a scheduler build CONFIG by the clock.

    \b
    recordmill schedule flights.yaml --for cron --on-failure 'mail -s flights me@example.com </dev/null'
    recordmill schedule flights.yaml --for systemd --at '30 2 * * 1-5' -o ~/.config/systemd/user
    recordmill schedule /data/flights.yaml --for kubernetes --image mill:1 --mount datasets:/data
    """
    with errors_as_messages():
        from pipeline.config import load
        from pipeline.schedule import Schedule, units
        from pipeline.values import parse_duration
        from transforms.errors import ConfigError
        from transforms.files import write_committed

        loaded = load(str(config), overrides or [])
        try:
            seconds = int(parse_duration(timeout))
        except ValueError as error:
            raise ConfigError(f"--timeout {timeout!r}: {error}") from error
        plan = Schedule(loaded, at, overrides or (), retries, seconds, on_failure=on_failure, image=image, mount=mount)
        for name, content in units(kind, plan).items():
            if output is None:
                typer.echo(f"# ---- {name}\n{content}" if kind == "systemd" else content, nl=False)
            else:
                output.mkdir(parents=True, exist_ok=True)
                write_committed(str(output / name), content)
                typer.echo(str(output / name))
