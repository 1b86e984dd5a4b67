"""Scheduled builds: each unit says the right thing to its scheduler, and the shell line does it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline import schedule
from pipeline.config import load
from pipeline.schedule import KINDS, Schedule, units
from transforms.errors import ConfigError

ROOT = Path(__file__).parent.parent
CONFIG = "name: rows\nsource: {format: csv, files: rows.csv}\noutput: {dir: out}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("id\n1\n2\n")
    (tmp_path / "c.yaml").write_text(CONFIG)
    return tmp_path


def plan(folder: Path, at: str = "0 3 * * *", **more: Any) -> Schedule:
    return Schedule(load(str(folder / "c.yaml")), at, **more)


def container(folder: Path, **more: Any) -> Schedule:
    return plan(folder, image="mill:1", mount=f"10.0.0.2:/share:{folder}", **more)


def fake(folder: Path, statuses: list[int], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that ends with the next of the statuses at each call, in the place of recordmill; its log."""
    log = folder / "calls"
    left = folder / "left"
    left.write_text("".join(f"{status}\n" for status in statuses))
    program = folder / "bin" / "recordmill"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\nstatus=$(head -n 1 {left})\nsed -i 1d {left}\nexit "$status"\n')
    program.chmod(0o755)
    monkeypatch.setattr(schedule.sys, "executable", str(program.parent / "python"))
    monkeypatch.setattr(schedule, "RETRY_SECONDS", 0)
    return log


@pytest.mark.parametrize(
    ("statuses", "calls", "status", "alerts"),
    [
        ([0], 1, 0, 0),
        ([1, 0], 2, 0, 0),
        ([1, 124, 0], 3, 0, 0),
        ([1, 1, 1], 3, 1, 1),
        ([2], 1, 2, 1),
        ([1, 2], 2, 2, 1),
    ],
)
def test_the_line_of_cron_tries_again_where_it_helps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, statuses: list[int], calls: int, status: int, alerts: int
) -> None:
    log = fake(folder, statuses, monkeypatch)
    made = units("cron", plan(folder, on_failure=f"date +%Y >> {folder}/alerts", overrides=["output.level=6"]))
    line = made["recordmill-rows.cron"].splitlines()[1]
    assert line.startswith("0 3 * * * ") and not re.search(r"(?<!\\)%", line)
    shell = line.removeprefix("0 3 * * * ").replace(r"\%", "%")  # as cron(8) gives it to sh
    done = subprocess.run(["sh", "-c", shell], check=False)
    assert done.returncode == status
    assert log.read_text().splitlines() == [f"build {folder}/c.yaml --set output.level=6 --quiet --wait 600"] * calls
    alerted = folder / "alerts"
    assert len(alerted.read_text().splitlines() if alerted.exists() else []) == alerts


def test_the_line_stops_a_try_that_takes_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake(folder, [0, 0], monkeypatch)
    program = folder / "bin" / "recordmill"
    program.write_text(f"#!/bin/sh\ntrap 'echo stopped >> {log}; exit 130' INT\nsleep 30 & wait\n")
    made = plan(folder, timeout=1, retries=1)
    assert subprocess.run(["sh", "-c", made.shell], check=False).returncode == 124
    assert log.read_text().splitlines() == ["stopped"] * 2


def test_the_line_builds(folder: Path) -> None:
    assert subprocess.run(["sh", "-c", plan(folder).shell], check=False).returncode == 0
    assert (folder / "out" / "LATEST").exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize(
    ("at", "events"),
    [
        ("0 3 * * *", ["*-*-* 03:00:00"]),
        ("*/20 * * * *", ["*-*-* *:00,20,40:00"]),
        ("30 2 * * 1-5", ["Mon,Tue,Wed,Thu,Fri *-*-* 02:30:00"]),
        ("0 0 1 1,7 7", ["*-01,07-01 00:00:00", "Sun *-01,07-* 00:00:00"]),
    ],
)
def test_systemd_takes_the_units(folder: Path, at: str, events: list[str]) -> None:
    made = units("systemd", plan(folder, at, on_failure='echo "100 % $HOME" \\; false'))
    assert re.findall("OnCalendar=(.*)", made["recordmill-rows.timer"]) == events
    for event in events:
        subprocess.run(["systemd-analyze", "calendar", event], check=True, capture_output=True)
    for name, content in made.items():
        (folder / name).write_text(content)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(folder / name) for name in made)],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "recordmill-rows" in line and "Failed to" not in line]
    assert not ours


def test_systemd_quotes_what_it_would_expand(folder: Path) -> None:
    made = plan(folder, on_failure='echo "$HOME 100%" \\n')
    line = next(line for line in units("systemd", made)["recordmill-rows.service"].splitlines() if "ExecStart" in line)
    quoted = line.removeprefix('ExecStart=/bin/sh -c "').removesuffix('"')
    plain = re.sub(r'\\(["\\])', r"\1", quoted).replace("$$", "$").replace("%%", "%")
    assert plain == made.shell


def test_kubernetes_takes_the_manifest(folder: Path) -> None:
    import kubernetes_validate

    text = units("kubernetes", container(folder, on_failure="echo failed"))["recordmill-rows.yaml"]
    manifest = YAML(typ="safe").load(text)
    kubernetes_validate.validate(manifest, "1.31", strict=True)
    spec = manifest["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("0 3 * * *", "Forbid")
    job = spec["jobTemplate"]["spec"]
    command = job["template"]["spec"]["containers"][0]["command"]
    assert "recordmill build" in command[2] and str(Path(sys.executable).parent) not in command[2]
    assert job["activeDeadlineSeconds"] == 3 * (6 * 3600 + 60) + 2 * 300


def test_the_cloud_script_calls_gcloud(folder: Path) -> None:
    """With a gcloud that writes down what it is called with: the real one is not here."""
    schedule = container(folder, on_failure="echo 'it, failed'")
    made = units("cloud-scheduler", schedule)
    script = folder / "recordmill-rows.sh"
    script.write_text(made[script.name])
    shellcheck = Path(sys.executable).with_name("shellcheck")
    subprocess.run([shellcheck, script], check=True)
    gcloud = folder / "gcloud"
    gcloud.write_text(
        f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]), file=open('{folder}/calls', 'a'))\n"
        "sys.exit('describe' in sys.argv)\n"
    )
    gcloud.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PROJECT": "p", "REGION": "r"}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "SERVICE_ACCOUNT: the account" in done.stderr
    subprocess.run(["bash", script], env=environment | {"SERVICE_ACCOUNT": "a@p"}, check=True)
    deploy, _, create = (json.loads(line) for line in (folder / "calls").read_text().splitlines())
    assert deploy[:4] == ["run", "jobs", "deploy", "recordmill-rows"]
    assert f"--args=^~^-c~{schedule.shell}" in deploy
    assert create[:5] == ["scheduler", "jobs", "create", "http", "recordmill-rows"]
    assert "--schedule=0 3 * * *" in create


def test_the_dag_is_python(folder: Path) -> None:
    """That much is known; no Airflow has run it yet."""
    made = units("airflow", plan(folder, on_failure='echo "no"'))
    compile(made["recordmill_rows.py"], "recordmill_rows.py", "exec")


def test_the_dockerfile_is_as_hadolint_likes() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    subprocess.run([hadolint, ROOT / "runners" / "docker" / "Dockerfile"], check=True)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("anacron", {}, "--for 'anacron': must be one of cron, systemd, airflow"),
        ("cron", {"at": "0 25 * * *"}, "--at '0 25 .*Bad hour"),
        ("cron", {"at": "0 3 31 2 *"}, "--at '0 3 31 2"),
        ("cron", {"at": "0 3 L * *"}, "without L and #"),
        ("cron", {"image": "x"}, "--image and --mount are for kubernetes and cloud-scheduler, not for cron"),
        ("kubernetes", {}, "--image is missing"),
        ("kubernetes", {"image": "x"}, "--mount None: must say which file system comes where, such as datasets:/data"),
        ("kubernetes", {"image": "x", "mount": "claim:/elsewhere"}, "the config .* is not below /elsewhere"),
    ],
)
def test_what_makes_no_sense_is_said(folder: Path, kind: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        units(kind, plan(folder, **more))


def test_a_long_name_still_names_a_pod(folder: Path) -> None:
    (folder / "c.yaml").write_text(CONFIG.replace("rows\n", f"{'a' * 40}.{'b' * 40}\n", 1))
    assert plan(folder).name == f"recordmill-{'a' * 40}"


def test_each_kind_is_written(folder: Path) -> None:
    for kind in KINDS:
        made = units(kind, container(folder) if kind in schedule.IN_CONTAINERS else plan(folder))
        command = [str(Path(sys.executable).with_name("recordmill")), "schedule", str(folder / "c.yaml"), "--for", kind]
        more = ["--image", "mill:1", "--mount", f"10.0.0.2:/share:{folder}"] if kind in schedule.IN_CONTAINERS else []
        done = subprocess.run([*command, *more, "-o", str(folder / kind)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in (folder / kind).iterdir()) == sorted(made)
