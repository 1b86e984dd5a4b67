"""Units that run a build by the clock: a crontab line, systemd units, an Airflow DAG, Kubernetes and Cloud Run jobs.

All of them keep to what the command's exit status says: 0 is done; 2, a wrong config, is not tried again; anything else
is, and goes on from what was finished.  Where the scheduler has no such rule of its own, a line of shell keeps it.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from cronsim import CronSim, CronSimError
from ruamel.yaml import YAML

from pipeline.config import Config
from transforms.errors import ConfigError

RETRY_SECONDS = 300
KILL_SECONDS = 60  # from the request to stop to the end
LOCK_SECONDS = 600  # that a build waits for another one of the same output
IN_CONTAINERS = ("kubernetes", "cloud-scheduler")

_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


@dataclass(frozen=True)
class Schedule:
    """``at``: five fields of cron.  ``timeout``: seconds, of one try.  ``on_failure``: a command for the shell, run
    when no try is left.  ``image`` and ``mount`` (what is mounted, and where: ``datasets:/data``): for containers."""

    config: Config
    at: str
    overrides: Sequence[str] = ()
    retries: int = 2
    timeout: int = 6 * 3600
    on_failure: str | None = None
    image: str | None = None
    mount: str | None = None

    @property
    def name(self) -> str:
        """``recordmill-flights``, as units, jobs and pods may be called."""
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.config.name.lower())
        return f"recordmill-{plain.strip('-')}"[:52].rstrip("-")  # a CronJob's pods are named after it, in 63 letters

    @property
    def command(self) -> list[str]:
        """The build, in this environment or, for an image, in that one."""
        here = os.path.join(os.path.dirname(sys.executable), "recordmill")
        values = [part for override in self.overrides for part in ("--set", override)]
        program = "recordmill" if self.image else here
        return [program, "build", self.config.path, *values, "--quiet", "--wait", str(LOCK_SECONDS)]

    @property
    def seconds(self) -> int:
        """That all tries may take."""
        return (self.retries + 1) * (self.timeout + KILL_SECONDS) + self.retries * RETRY_SECONDS

    @property
    def shell(self) -> str:
        """A line of POSIX shell: tries the command until it is done, or there is no use in trying; then the alert."""
        build = shlex.join(
            ["timeout", "--signal=INT", f"--kill-after={KILL_SECONDS}", str(self.timeout), *self.command]
        )
        alert = f"{self.on_failure}; " if self.on_failure else ""
        return (
            f"left={self.retries}; until {build}; do status=$?; "
            f'if [ "$status" -eq 2 ] || [ "$left" -le 0 ]; then {alert}exit "$status"; fi; '
            f"left=$((left - 1)); sleep {RETRY_SECONDS}; done"
        )


def units(kind: str, schedule: Schedule) -> dict[str, str]:
    """The files of the unit by their names, ready for what ``kind`` (one of KINDS) names.

    Raises ConfigError where the times make no sense, or an image or a mount is missing or not for this kind.
    """
    if kind not in KINDS:
        raise ConfigError(f"--for {kind!r}: must be one of {', '.join(KINDS)}")
    times = _times(schedule.at)
    if kind in IN_CONTAINERS:
        _check_container(kind, schedule)
    elif schedule.image or schedule.mount:
        raise ConfigError(f"--image and --mount are for {' and '.join(IN_CONTAINERS)}, not for {kind}: leave them out")
    return KINDS[kind](schedule, times)


def _times(at: str) -> CronSim:
    try:
        times = CronSim(at, datetime(2024, 1, 1, tzinfo=timezone.utc))
        next(times)
    except (CronSimError, StopIteration) as error:
        raise ConfigError(
            f"--at {at!r}: must be the five fields of cron, minute, hour, day, month and weekday, such as '0 3 * * *' "
            f"for every day at three ({error or 'no such day comes'})"
        ) from error
    if len(at.split()) != 5 or "L" in at.upper().replace("JUL", "") or "#" in at:
        raise ConfigError(f"--at {at!r}: must be five fields, without L and #, which not all schedulers know")
    return times


def _check_container(kind: str, schedule: Schedule) -> None:
    example = "datasets:/data" if kind == "kubernetes" else "10.0.0.2:/share:/data"
    if not schedule.image:
        raise ConfigError(
            f"--image is missing: {kind} needs an image with recordmill (runners/docker/Dockerfile makes one)"
        )
    source, _, path = (schedule.mount or "").rpartition(":")
    if not source or not path.startswith("/"):
        raise ConfigError(
            f"--mount {schedule.mount!r}: must say which file system comes where, such as {example}: source, output "
            "and config have to be on one that outlives the container"
        )
    config = schedule.config
    for what, place in (("the config", config.path), ("output.dir", config.output_dir)):
        if not place.startswith(path.rstrip("/") + "/"):
            raise ConfigError(f"{what} {place} is not below {path}, where --mount puts the file system that is kept")


def _cron(schedule: Schedule, times: CronSim) -> dict[str, str]:
    line = f"{schedule.at} {schedule.shell}".replace("%", r"\%")  # cron(5): a bare one ends the command
    return {f"{schedule.name}.cron": f"# for `crontab -e`; times are those of this machine\n{line}\n"}


def _systemd(schedule: Schedule, times: CronSim) -> dict[str, str]:
    """The service tries again itself: systemd counts starts by time, and would take those of the timer for retries."""
    name = schedule.name
    service = [
        "[Unit]",
        f"Description=recordmill build of {schedule.config.name}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart=/bin/sh -c {_systemd_quoted(schedule.shell)}",
        f"TimeoutStartSec={schedule.seconds}",
        "KillSignal=SIGINT",
        f"TimeoutStopSec={KILL_SECONDS}",
    ]
    timer = [
        "[Unit]",
        f"Description=When {name}.service runs",
        "",
        "[Timer]",
        *(f"OnCalendar={time}" for time in _calendar(times)),
        "Persistent=true",  # what the machine slept through is made up for
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    return {f"{name}.service": "\n".join(service) + "\n", f"{name}.timer": "\n".join(timer) + "\n"}


def _systemd_quoted(text: str) -> str:
    """systemd.service(5), "Command lines": a quoted word in which $ and % stand for themselves."""
    for plain, quoted in (("\\", "\\\\"), ('"', '\\"'), ("$", "$$"), ("%", "%%")):
        text = text.replace(plain, quoted)
    return f'"{text}"'


def _calendar(times: CronSim) -> list[str]:
    """systemd.time(7), "Calendar events".  Where cron gives days and weekdays, either is enough: two events."""
    clock = f"{_listed(times.hours, range(24))}:{_listed(times.minutes, range(60))}:00"
    month, day = _listed(times.months, range(1, 13)), _listed(times.days, range(1, 32))
    weekdays = sorted({weekday % 7 for weekday in times.weekdays if isinstance(weekday, int)})
    named = ",".join(_WEEKDAYS[weekday] for weekday in weekdays)
    if len(weekdays) == 7:
        return [f"*-{month}-{day} {clock}"]
    by_weekday = f"{named} *-{month}-* {clock}"
    return [by_weekday] if day == "*" else [f"*-{month}-{day} {clock}", by_weekday]


def _listed(values: set[Any], every: range) -> str:
    return "*" if set(every) <= values else ",".join(f"{value:02d}" for value in sorted(values))


_DAG = '''\
"""recordmill: builds {name} (Airflow 3)."""

import signal
import subprocess
from datetime import datetime, timedelta, timezone

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import dag, task

COMMAND = {command}
ON_FAILURE = {on_failure}


def alert(context):
    if ON_FAILURE is not None:
        subprocess.run(["/bin/sh", "-c", ON_FAILURE], check=False)


@dag(
    dag_id={dag_id},
    schedule={at},
    start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
)
def recordmill():
    @task(
        retries={retries},
        retry_delay=timedelta(seconds={retry_seconds}),
        execution_timeout=timedelta(seconds={timeout}),
        on_failure_callback=alert,
    )
    def build():
        process = subprocess.Popen(COMMAND)
        try:
            status = process.wait()
        except BaseException:  # the timeout, or a task that is stopped by hand
            process.send_signal(signal.SIGINT)
            try:
                process.wait({kill_seconds})
            except subprocess.TimeoutExpired:
                process.kill()
            raise
        if status == 2:
            raise AirflowFailException("the config is wrong: see the log; trying again would not help")
        if status != 0:
            raise AirflowException(f"the build failed with exit status {{status}}: see the log")

    build()


recordmill()
'''


def _airflow(schedule: Schedule, times: CronSim) -> dict[str, str]:
    words = "".join(f"\n    {json.dumps(word)}," for word in schedule.command)
    text = _DAG.format(
        name=schedule.config.name,
        command=f"[{words}\n]",
        on_failure=json.dumps(schedule.on_failure) if schedule.on_failure else "None",
        dag_id=json.dumps(schedule.name),
        at=json.dumps(schedule.at),
        retries=schedule.retries,
        retry_seconds=RETRY_SECONDS,
        timeout=schedule.timeout,
        kill_seconds=KILL_SECONDS,
    )
    return {f"{schedule.name.replace('-', '_')}.py": text}


def _kubernetes(schedule: Schedule, times: CronSim) -> dict[str, str]:
    """The container tries again itself, so that the alert comes once; a pod whose node went away is replaced."""
    claim, _, path = str(schedule.mount).rpartition(":")
    container = {
        "name": "build",
        "image": schedule.image,
        "command": ["/bin/sh", "-c", schedule.shell],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": path}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": KILL_SECONDS,
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
    }
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": schedule.seconds,
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": {"metadata": {"labels": {"app": schedule.name}}, "spec": pod},
    }
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": schedule.name},
        "spec": {
            "schedule": schedule.at,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 3600,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"spec": job},
        },
    }
    yaml, stream = YAML(typ="safe"), io.StringIO()
    yaml.default_flow_style, yaml.width = False, 4096
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(manifest, stream)
    return {f"{schedule.name}.yaml": stream.getvalue()}


_CLOUD = """\
#!/usr/bin/env bash
# A Cloud Run job that builds {name}, and a Cloud Scheduler job that starts it.  Run again, it updates both.
set -euo pipefail
: "${{PROJECT:?the project}}" "${{REGION:?the region}}" "${{SERVICE_ACCOUNT:?the account that may run the job}}"

# shellcheck disable=SC2016  # the job's own shell expands it
gcloud run jobs deploy {job} --project="$PROJECT" --region="$REGION" \\
  --image={image} --command=/bin/sh --args={arguments} \\
  --max-retries=0 --task-timeout={seconds} --cpu=2 --memory=8Gi --service-account="$SERVICE_ACCOUNT" \\
  --add-volume=name=data,type=nfs,location={source} --add-volume-mount=volume=data,mount-path={path}

if gcloud scheduler jobs describe {job} --project="$PROJECT" --location="$REGION" >/dev/null 2>&1; then
  verb=update
else
  verb=create
fi
gcloud scheduler jobs "$verb" http {job} --project="$PROJECT" --location="$REGION" \\
  --schedule={at} --time-zone=Etc/UTC --http-method=POST \\
  --uri="https://run.googleapis.com/v2/projects/$PROJECT/locations/$REGION/jobs/{job}:run" \\
  --oauth-service-account-email="$SERVICE_ACCOUNT"
"""


def _cloud(schedule: Schedule, times: CronSim) -> dict[str, str]:
    """The arguments have another separator than the comma (``gcloud topic escaping``)."""
    source, _, path = str(schedule.mount).rpartition(":")
    text = _CLOUD.format(
        name=schedule.config.name,
        job=schedule.name,
        image=shlex.quote(str(schedule.image)),
        arguments=shlex.quote(f"^~^-c~{schedule.shell}"),
        seconds=schedule.seconds,
        source=shlex.quote(source),
        path=shlex.quote(path),
        at=shlex.quote(schedule.at),
    )
    return {f"{schedule.name}.sh": text}


KINDS: Mapping[str, Callable[[Schedule, CronSim], dict[str, str]]] = {
    "cron": _cron,
    "systemd": _systemd,
    "airflow": _airflow,
    "kubernetes": _kubernetes,
    "cloud-scheduler": _cloud,
}
