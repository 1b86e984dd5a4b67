"""Apache Flink, through Beam's job server: one is started for the build, or is there already (``job_endpoint``)."""

from __future__ import annotations

import functools

import apache_beam as beam
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer, FlinkRunner
from apache_beam.runners.portability.job_server import JobServer

from runners import portable
from runners.settings import RunnerError, Settings

EMBEDDED = ("[local]", "[auto]", "[collection]")  # Flink inside the job server


def check(settings: Settings) -> None:
    """Raises RunnerError where the cluster, the job server or the pool of workers cannot be had."""
    if settings.job_endpoint is not None:
        portable.check(settings)
        return
    if settings.master is None:
        raise RunnerError("runner.master is missing: the address of Flink's REST server, such as localhost:8081")
    portable.check_java(settings)
    if settings.master not in EMBEDDED:
        portable.connect("runner.master", settings.master, "start the Flink cluster, or correct the address")
    portable.check_environment(settings)


def pipeline(settings: Settings) -> beam.Pipeline:
    if settings.job_endpoint is not None:
        return portable.at_endpoint(settings, f"--parallelism={settings.workers}")
    return portable.at_server(settings, _job_server(settings), f"--parallelism={settings.workers}")


@functools.lru_cache(maxsize=1)
def _job_server(settings: Settings) -> JobServer:
    """A job server that ends with this process; the jobs of a build share it."""
    flags = [f"--flink_master={FlinkRunner.add_http_scheme(str(settings.master))}"]
    flags += [f"--flink_job_server_jar={settings.job_server}"] if settings.job_server else []
    return portable.started(FlinkJarJobServer(portable.options(settings, *flags)))
