"""A build on a Beam job server gives the bytes of the local one; what cannot work is said before anything is sent.

The job server here is Beam's own in Python, with a pool of worker processes beside it: the contract that Flink, Spark
and Prism keep too.  ``python tests/clusters.py`` runs these.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc

from pipeline import preflight, stages
from pipeline.build import BuildResult, build
from pipeline.config import load
from runners import flink, portable, prism, spark, worker
from runners.settings import RunnerError, Settings
from transforms.errors import BadRowsError, BuildError, ConfigError

BEAM = "apache_beam.runners"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not start")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A job server and a pool of workers, in environments of their own with this Python first on the PATH."""
    folder = tmp_path_factory.mktemp("servers")
    job, pool = free_port(), free_port()
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parent.parent),
    }
    commands = [
        [f"{BEAM}.portability.local_job_service_main", "--port", str(job), "--staging_dir", str(folder / "staging")],
        [f"{BEAM}.worker.worker_pool_main", f"--service_port={pool}"],
    ]
    with (folder / "log").open("wb") as log:
        processes = [
            subprocess.Popen([sys.executable, "-m", *command], env=environment, cwd=folder, stdout=log, stderr=log)
            for command in commands
        ]
    try:
        for port, process in zip((job, pool), processes, strict=True):
            wait_for(port, process)
        yield {
            "name": "portable",
            "job_endpoint": f"localhost:{job}",
            "environment": "external",
            "environment_config": f"localhost:{pool}",
        }
    finally:
        for process in processes:
            process.terminate()
            process.wait()


MODULE = """
import tensorflow_transform as tft
import helper

def preprocessing_fn(inputs):
    return {"x": tft.scale_to_z_score(inputs["x"] * helper.FACTOR), "id": inputs["id"]}
"""


def make(folder: Path, rows: int = 20_000) -> None:
    (folder / "data").mkdir()
    for part in range(4):
        lines = [f"{i},{(i * 37 % 1000) / 8},text {i % 91}" for i in range(part, rows, 4)]
        (folder / "data" / f"{part}.csv").write_text("id,x,t\n" + "\n".join(lines) + "\n")
    (folder / "preprocessing.py").write_text(MODULE)
    (folder / "helper.py").write_text("FACTOR = 2.0\n")


def run(folder: Path, output: str, runner: dict[str, Any], **more: Any) -> BuildResult:
    config = {"name": "t", "source": {"format": "csv", "files": "data/*.csv"}, "output": {"dir": output}}
    path = folder / f"{output}.yaml"
    path.write_text(json.dumps(config | {"splits": {"train": 0.8, "eval": 0.2}, "runner": runner} | more))
    return build(load(str(path)))


def shards(result: BuildResult) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(result.path).glob("*/*.tfrecord.gz")}


@pytest.mark.slow
def test_external_workers_make_the_same_bytes(servers: dict[str, str], tmp_path: Path) -> None:
    make(tmp_path)
    here = run(tmp_path, "here", {"workers": 2}, preprocess="preprocessing.py")
    remote = servers | {"workers": 2, "shared_filesystem": True}
    there = run(tmp_path, "there", remote, preprocess="preprocessing.py")
    assert shards(there) == shards(here) and there.rows_read == 20_000
    assert run(tmp_path, "there", remote, preprocess="preprocessing.py").up_to_date
    assert not list((tmp_path / "there" / "cache").glob("work*"))


@pytest.mark.slow
def test_bad_rows_come_back_from_external_workers(servers: dict[str, str], tmp_path: Path) -> None:
    make(tmp_path)
    with (tmp_path / "data" / "2.csv").open("a") as stream:
        stream.write("1,2\n")
    with pytest.raises(BadRowsError, match="2.csv, row 5001: has 2 cells, and the header names 3"):
        run(tmp_path, "there", servers | {"workers": 2, "shared_filesystem": True})


# ---- before anything is sent -----------------------------------------------------------------------------------------


def closed() -> str:
    return f"localhost:{free_port()}"


CHECKS: list[tuple[Any, Settings, str]] = [
    (portable, Settings("portable"), "runner.job_endpoint is missing"),
    (portable, Settings("portable", job_endpoint="nonsense"), "'nonsense' must be an address"),
    (portable, Settings("portable", job_endpoint="localhost:http"), "must be an address such as localhost:8099"),
    (flink, Settings("flink"), "runner.master is missing: the address of Flink's REST server"),
    (flink, Settings("flink", master="[local]", job_server="/no/such.jar"), "/no/such.jar: there is no such file"),
    (flink, Settings("flink", master="[local]", environment="external"), "runner.environment_config is missing"),
    (spark, Settings("spark"), "runner.master is missing: the address of Spark's master"),
    (prism, Settings("prism", job_server="/no/prism"), "/no/prism: there is no such file"),
]


@pytest.mark.parametrize(("module", "settings", "message"), CHECKS)
def test_what_is_missing_is_named(
    module: Any, settings: Settings, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable.shutil, "which", lambda name: f"/bin/{name}")
    with pytest.raises(RunnerError, match=message.replace("[", r"\[")):
        module.check(settings)


def test_what_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable.shutil, "which", lambda name: f"/bin/{name}")
    for module, key in ((flink, "localhost:"), (spark, "spark://localhost:")):
        settings = Settings(module.__name__, master=closed().replace("localhost:", key))
        with pytest.raises(RunnerError, match="runner.master .*: nothing answers there .*start the"):
            module.check(settings)
    settings = Settings("flink", master="[local]", environment="external", environment_config=closed())
    with pytest.raises(RunnerError, match="worker_pool_main --service_port=50000"):
        flink.check(settings)


def test_java_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable.shutil, "which", lambda name: None)
    for module in (flink, spark):
        with pytest.raises(RunnerError, match="needs Java for its job server"):
            module.check(Settings(module.__name__.rpartition(".")[2], master="[local]"))
    with pytest.raises(RunnerError, match="no prism on the PATH: go install"):
        prism.check(Settings("prism"))


def test_nothing_is_touched_then(tmp_path: Path) -> None:
    make(tmp_path, rows=10)
    with pytest.raises(ConfigError, match="there.yaml: runner.job_endpoint localhost:.*: nothing answers there"):
        run(tmp_path, "there", {"name": "portable", "job_endpoint": closed()})
    assert not (tmp_path / "there").exists()


def test_a_worker_asks_the_runner_for_what_it_was_not_told() -> None:
    """Flink and Spark start a worker with the address of the provision service alone."""
    asked: list[dict[str, str]] = []

    class Provision(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
        def GetProvisionInfo(self, request: Any, context: Any) -> Any:
            asked.append(dict(context.invocation_metadata()))
            info = beam_provision_api_pb2.ProvisionInfo(runner_capabilities=["a", "b"])
            info.control_endpoint.url, info.logging_endpoint.url = "localhost:1", "localhost:2"
            info.pipeline_options["beam:option:streaming:v1"] = False
            return beam_provision_api_pb2.GetProvisionInfoResponse(info=info)

    server = grpc.server(ThreadPoolExecutor(1))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(Provision(), server)
    address = f"localhost:{server.add_insecure_port('localhost:0')}"
    server.start()
    try:
        told = argparse.Namespace(id="1-1", provision_endpoint=address, control_endpoint=None, logging_endpoint=None)
        found = worker.environment(told)
    finally:
        server.stop(None)
    assert asked[0]["worker_id"] == "1-1"
    assert json.loads(found.pop("PIPELINE_OPTIONS")) == {"beam:option:streaming:v1": False}
    assert found == {
        "WORKER_ID": "1-1",
        "CONTROL_API_SERVICE_DESCRIPTOR": 'url: "localhost:1"\n',
        "LOGGING_API_SERVICE_DESCRIPTOR": 'url: "localhost:2"\n',
        "RUNNER_CAPABILITIES": "a b",
    }


def test_a_worker_that_nothing_was_told_says_what_it_needs() -> None:
    done = subprocess.run([sys.executable, "-m", "runners.worker", "--id", "1"], capture_output=True, text=True)
    assert done.returncode == 2 and "--provision_endpoint or --control_endpoint must be given" in done.stderr


def test_modules_that_workers_would_not_have_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found by this process alone, through its path."""
    make(tmp_path, rows=10)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "helper.py").rename(elsewhere / "helper.py")
    monkeypatch.syspath_prepend(str(elsewhere))
    monkeypatch.setattr(preflight.start, "check", lambda settings: None)
    remote = {"name": "portable", "job_endpoint": closed(), "environment": "process", "shared_filesystem": True}
    with pytest.raises(ConfigError, match=r"preprocess: workers of runner portable .*No module named 'helper'.*beside"):
        run(tmp_path, "there", remote, preprocess="preprocessing.py")
    assert not (tmp_path / "there").exists()


@pytest.mark.slow
def test_workers_with_other_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, rows=10)
    make_task = stages.RunTask.__init__

    def of_another_client(self: Any, *arguments: Any) -> None:
        make_task(self, *arguments)
        self._versions = {**self._versions, "pyarrow": "1.0", "Python": "3.9"}

    monkeypatch.setattr(stages.RunTask, "__init__", of_another_client)
    with pytest.raises(BuildError, match=r"a worker on .* has .*pyarrow .* instead of 1.0.*give the workers"):
        run(tmp_path, "here", {"workers": 1})
