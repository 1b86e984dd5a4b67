"""The command ``recordmill``: what its subcommands share.

Exit status: 0 done, or nothing to do; 1 failed, or faults were found; 2 the config or the command is wrong; 130 stopped
by Ctrl-C or SIGTERM.  Each command imports what it needs when it runs, so that help comes at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import datetime, timezone
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
def errors_as_messages() -> Iterator[None]:
    """One message on stderr and the exit status for whatever goes wrong; with RECORDMILL_TRACEBACK=1 the traceback.

    SIGTERM, with which schedulers stop a command, stops it as Ctrl-C does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
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
    logger = logging.getLogger("recordmill")
    if any(isinstance(handler.formatter, _JsonFormatter) for handler in logger.handlers):
        logger.error(message, extra={"status": status})
        raise typer.Exit(status)
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(message, err=True)
    raise typer.Exit(status)


def log_to_stderr(level: int, *, as_json: bool = False) -> None:
    """Our own log alone; the libraries' chatter stays out.  ``as_json``: an object a line, errors as well."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter() if as_json else _LogFormatter())
    logger = logging.getLogger("recordmill")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
    logging.getLogger().setLevel(logging.ERROR)


class _LogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return prefix + record.getMessage()


class _JsonFormatter(logging.Formatter):
    """An object a line: ``time`` (UTC), ``level``, ``message``, and ``status``, the exit status, of what ends it, or
    ``result``, what a build did."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": when, "level": record.levelname.lower(), "message": record.getMessage()}
        more = {key: getattr(record, key) for key in ("status", "result") if hasattr(record, key)}
        return json.dumps(line | more, ensure_ascii=False)


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
