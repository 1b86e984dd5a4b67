"""What a user says about where a build runs."""

from __future__ import annotations

from dataclasses import dataclass


class RunnerError(Exception):
    """Something that is known to be wrong before a job is sent: the message says what, and the cure."""


@dataclass(frozen=True)
class Settings:
    """``workers``: how many work at a time.  What the others mean depends on the runner; see docs/runners.md.

    ``master``: the cluster.  ``job_endpoint``: a job server that is there already.  ``job_server``: the jar or binary
    to start one from.  ``environment``: where the workers' Python is: in this process (``loopback``), or with
    ``environment_config`` a worker pool (``external``: its address), a program that the cluster's machines start
    (``process``: by default ``recordmill-worker``), an image (``docker``).  ``options``: further options for Beam.
    """

    name: str = "direct"
    workers: int = 1
    master: str | None = None
    job_endpoint: str | None = None
    job_server: str | None = None
    environment: str | None = None
    environment_config: str | None = None
    options: tuple[str, ...] = ()
