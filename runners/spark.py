"""Apache Spark, through Beam's job server: one is started for the build, or is there already (``job_endpoint``)."""

from __future__ import annotations

import functools

import apache_beam as beam
from apache_beam.runners.portability.job_server import JobServer
from apache_beam.runners.portability.spark_runner import SparkJarJobServer

from runners import portable
from runners.settings import RunnerError, Settings


def check(settings: Settings) -> None:
    """Raises RunnerError where the cluster, the job server or the pool of workers cannot be had."""
    if settings.job_endpoint is not None:
        portable.check(settings)
        return
    if settings.master is None:
        raise RunnerError("runner.master is missing: the address of Spark's master, such as spark://host:7077")
    portable.check_java(settings)
    if settings.master.startswith("spark://"):
        portable.connect("runner.master", settings.master, "start the Spark cluster, or correct the address")
    portable.check_environment(settings)


def pipeline(settings: Settings) -> beam.Pipeline:
    if settings.job_endpoint is not None:
        return portable.at_endpoint(settings)
    return portable.at_server(settings, _job_server(settings))


@functools.lru_cache(maxsize=1)
def _job_server(settings: Settings) -> JobServer:
    """A job server that ends with this process; the jobs of a build share it."""
    flags = [f"--spark_master_url={settings.master}"]
    flags += [f"--spark_job_server_jar={settings.job_server}"] if settings.job_server else []
    return portable.started(SparkJarJobServer(portable.options(settings, *flags)))
