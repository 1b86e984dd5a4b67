"""Prism, Beam's runner in Go: a binary that is started for the build, or is there already (``job_endpoint``)."""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import time
import weakref
from dataclasses import replace

import apache_beam as beam

from runners import portable
from runners.settings import RunnerError, Settings

START_SECONDS = 20.0


def check(settings: Settings) -> None:
    """Raises RunnerError where the binary or the job server cannot be had."""
    if settings.job_endpoint is not None:
        portable.check(settings)
        return
    portable.check_file(settings)
    if settings.job_server is None and shutil.which("prism") is None:
        raise RunnerError(
            "runner.job_server is missing, and there is no prism on the PATH: go install "
            f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{beam.__version__}, and name the binary"
        )
    portable.check_environment(settings)


def pipeline(settings: Settings) -> beam.Pipeline:
    endpoint = settings.job_endpoint or _job_server(settings)
    return portable.at_endpoint(replace(settings, job_endpoint=endpoint))


@functools.lru_cache(maxsize=1)
def _job_server(settings: Settings) -> str:
    """The address of a server that ends with this process; the jobs of a build share it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    binary = settings.job_server or str(shutil.which("prism"))
    command = [binary, f"--job_port={port}", "--serve_http=false", "--idle_shutdown_timeout=-1s"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    weakref.finalize(_job_server, _stop, server)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            portable.connect("runner.job_server", f"localhost:{port}", "")
        except RunnerError:
            time.sleep(0.05)
        else:
            return f"localhost:{port}"
    _stop(server)
    raise RunnerError(f"runner.job_server {binary}: does not start (exit status {server.returncode}); run it by hand")


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.wait()
