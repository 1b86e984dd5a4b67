"""Any Beam job server: what Flink, Spark and Prism have in common, and the runner for one that is there already."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.job_server import JobServer, StopOnExitJobServer
from apache_beam.runners.portability.portable_runner import PortableRunner

from runners.settings import RunnerError, Settings

CONNECT_SECONDS = 3.0
WORKER = "recordmill-worker"  # see runners/worker.py


def check(settings: Settings) -> None:
    """Raises RunnerError where the job server, or the pool of workers, does not answer."""
    if settings.job_endpoint is None:
        raise RunnerError("runner.job_endpoint is missing: name the job server, such as localhost:8099")
    connect("runner.job_endpoint", settings.job_endpoint, "start a Beam job server there")
    check_environment(settings)


def check_environment(settings: Settings) -> None:
    if settings.environment == "external":
        if settings.environment_config is None:
            raise RunnerError(
                "runner.environment_config is missing: for external workers it is the address of the pool, such as "
                "localhost:50000"
            )
        connect("runner.environment_config", settings.environment_config, POOL)
    if settings.environment == "process" and shutil.which(_worker(settings)) is None:
        raise RunnerError(f"runner.environment_config {_worker(settings)}: there is no such program")


def _worker(settings: Settings) -> str:
    """The program that a runner starts for each worker process."""
    return settings.environment_config or os.path.join(os.path.dirname(sys.executable), WORKER)


POOL = (
    "start a pool beside each machine's workers, in an environment that has recordmill: python -m "
    "apache_beam.runners.worker.worker_pool_main --service_port=50000"
)


def connect(key: str, address: str, cure: str) -> None:
    """Raises RunnerError where nothing listens."""
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise RunnerError(f"{key} {address!r} must be an address such as localhost:8099")
    try:
        with contextlib.closing(socket.create_connection((host, port), CONNECT_SECONDS)):
            pass
    except OSError as error:
        raise RunnerError(f"{key} {address}: nothing answers there ({error.strerror or error}); {cure}") from error


def check_java(settings: Settings) -> None:
    """For runners whose job server is a jar."""
    if shutil.which("java") is None:
        raise RunnerError(f"runner {settings.name} needs Java for its job server: install a JRE, 11 or later")
    check_file(settings)


def check_file(settings: Settings) -> None:
    if settings.job_server is not None and not Path(settings.job_server).is_file():
        raise RunnerError(f"runner.job_server {settings.job_server}: there is no such file")


def options(settings: Settings, *more: str) -> PipelineOptions:
    """The options of a portable job; workers are this very Python (``loopback``) unless the settings say otherwise."""
    flags = [f"--environment_type={(settings.environment or 'loopback').upper()}", *more, *settings.options]
    if settings.environment == "process":
        flags.append(f"--environment_config={json.dumps({'command': _worker(settings)})}")
    elif settings.environment_config is not None:
        flags.append(f"--environment_config={settings.environment_config}")
    return PipelineOptions([*flags, f"--sdk_worker_parallelism={settings.workers}"])


def pipeline(settings: Settings) -> beam.Pipeline:
    return at_endpoint(settings)


def at_endpoint(settings: Settings, *more: str) -> beam.Pipeline:
    """An empty pipeline for the job server that the settings name."""
    return beam.Pipeline(
        runner=PortableRunner(), options=options(settings, f"--job_endpoint={settings.job_endpoint}", *more)
    )


def at_server(settings: Settings, server: JobServer, *more: str) -> beam.Pipeline:
    """An empty pipeline for a job server of ours."""
    return beam.Pipeline(runner=_Runner(server), options=options(settings, *more))


class _Runner(PortableRunner):
    def __init__(self, server: JobServer) -> None:
        PortableRunner.__init__(self)
        self._server = server

    def default_job_server(self, options: PipelineOptions) -> JobServer:
        return self._server


def started(server: JobServer) -> JobServer:
    """The job server, which runs until this process ends."""
    kept = StopOnExitJobServer(server)
    kept.start()
    return kept
