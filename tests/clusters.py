"""The flights example on real clusters: the bytes of the local build, and what happens when a machine dies.

    python tests/clusters.py                # flink, spark, prism
    python tests/clusters.py flink

Needs Java 11 or later, Maven and Go.  Flink and Spark come from PyPI, the job servers from Maven (tests/job_servers),
Prism by ``go install``; all of it is kept in ``~/.cache/recordmill-tests``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = Path.home() / ".cache" / "recordmill-tests"
FLINK, SPARK = "1.20.5", "3.5.9"
OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang", "java.lang.invoke", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util",
        "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch",
    )
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def get(name: str, command: list[str], *, cwd: Path | None = None) -> Path:
    """A folder of the cache, which the command fills; ``{folder}`` in it stands for the folder."""
    folder = CACHE / name
    if not folder.exists():
        making = CACHE / f"{name}.new"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        if cwd is not None:
            shutil.copytree(cwd, making, dirs_exist_ok=True)
        environment = os.environ | {"GOBIN": str(making)}
        subprocess.run([part.format(folder=making) for part in command], check=True, cwd=making, env=environment)
        making.rename(folder)
    return folder


def job_server(name: str) -> Path:
    source = ROOT / "tests" / "job_servers" / name
    return get(f"{name}-job-server", ["mvn", "-q", "-B", "package"], cwd=source) / "target" / "job-server.jar"


def from_pypi(package: str) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", "{folder}", package]
    return get(package.replace("==", "-"), command)


class Servers:
    """Processes that end with the block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], *, port: int | None = None, **environment: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | environment, start_new_session=True
            )
        end = time.monotonic() + 90
        while port is not None and time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.2)
        if port is not None:
            raise SystemExit(f"{name} does not start:\n{(self.folder / f'{name}.log').read_text()[-3000:]}")

    def kill(self, name: str) -> None:
        os.killpg(self.started[name].pid, signal.SIGKILL)
        self.started.pop(name).wait()


# The machines of the cluster start ``recordmill-worker`` of this environment. (One pool for both would not do: the name
# of a worker is unique on its machine only.)
WORKERS = ["runner.environment=process", "runner.shared_filesystem=true"]


@contextlib.contextmanager
def servers() -> Iterator[Servers]:
    with tempfile.TemporaryDirectory() as folder:
        found = Servers(Path(folder))
        try:
            yield found
        finally:
            for name in list(found.started):
                found.kill(name)


def start_flink(found: Servers, task_managers: int = 2) -> list[str]:
    """A session cluster; the settings that the build needs."""
    library = from_pypi(f"apache-flink-libraries=={FLINK}") / "pyflink"
    rpc, rest = free_port(), free_port()
    conf = found.folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "config.yaml").write_text(
        f"""
jobmanager: {{rpc: {{address: localhost, port: {rpc}}}, bind-host: localhost}}
rest: {{address: localhost, port: {rest}, bind-port: {rest}}}
taskmanager:
  bind-host: localhost
  host: localhost
  numberOfTaskSlots: 1
  cpu: {{cores: 1.0}}
  memory:
    task: {{heap: {{size: 512m}}, off-heap: {{size: 64m}}}}
    network: {{min: 64m, max: 64m}}
    managed: {{size: 256m}}
    framework: {{heap: {{size: 128m}}, off-heap: {{size: 128m}}}}
    jvm-metaspace: {{size: 256m}}
    jvm-overhead: {{min: 192m, max: 192m}}
heartbeat: {{timeout: 10000, interval: 2000}}
restart-strategy: {{type: fixed-delay, fixed-delay: {{attempts: 10, delay: 1 s}}}}
"""
    )
    java = ["java", "-Xmx1g", *OPENS, "-cp", f"{library}/lib/*"]
    main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
    command = [*java, main, "--configDir", str(conf), "--executionMode", "cluster"]
    found.start("jobmanager", command, port=rest)
    for i in range(task_managers):
        start_task_manager(found, f"taskmanager-{i}")
    return [f"runner.master='localhost:{rest}'", f"runner.job_server='{job_server('flink')}'", *WORKERS]


def start_task_manager(found: Servers, name: str) -> None:
    library = from_pypi(f"apache-flink-libraries=={FLINK}") / "pyflink"
    java = ["java", "-Xmx1g", *OPENS, "-cp", f"{library}/lib/*"]
    main = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
    found.start(name, [*java, main, "--configDir", str(found.folder / "conf")])


def start_spark(found: Servers) -> list[str]:
    """A standalone cluster of two workers; the settings that the build needs."""
    home = from_pypi(f"pyspark=={SPARK}") / "pyspark"
    port, ui = free_port(), free_port()
    java = ["java", "-Xmx1g", *OPENS, "-cp", f"{home}/jars/*"]
    master = [
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        str(ui),
    ]
    found.start("master", [*java, *master], port=port)
    for i in range(2):
        worker = ["org.apache.spark.deploy.worker.Worker", f"spark://127.0.0.1:{port}", "-c", "1", "-m", "1g"]
        where = ["--host", "127.0.0.1", "--webui-port", str(free_port()), "-d", str(found.folder / f"worker-{i}")]
        found.start(f"worker-{i}", [*java, *worker, *where], SPARK_HOME=str(home), SPARK_SCALA_VERSION="2.12")
    return [
        f"runner.master='spark://127.0.0.1:{port}'",
        f"runner.job_server='{job_server('spark')}'",
        *WORKERS,
    ]


def start_prism(found: Servers) -> list[str]:
    module = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{version('apache-beam')}"
    return [f"runner.job_server='{get('prism', ['go', 'install', module]) / 'prism'}'"]


STARTS = {"flink": start_flink, "spark": start_spark, "prism": start_prism}


def command(config: Path, runner: str, settings: list[str], *more: str) -> list[str]:
    overrides = [part for setting in (f"runner.name={runner}", *settings, *more) for part in ("--set", setting)]
    return [str(Path(sys.executable).parent / "recordmill"), "build", str(config), "--quiet", *overrides]


def hashes(output: Path) -> dict[str, str]:
    """SHA-256 of the shards of the latest version."""
    folder = output / "versions" / (output / "LATEST").read_text().strip()
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*/*.tfrecord.gz")}


def timed(arguments: list[str]) -> float:
    begin = time.monotonic()
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=600, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    return time.monotonic() - begin


def same_bytes(runner: str, config: Path, expected: dict[str, str]) -> str:
    with servers() as found:
        settings = STARTS[runner](found)
        output = config.parent / runner
        seconds = timed(command(config, runner, settings, f"output.dir={output}"))
        return f"{len(expected)} shards in {seconds:.0f} s, {'same' if hashes(output) == expected else 'OTHER'} bytes"


def killed(config: Path) -> str:
    """A task manager of Flink dies while partitions are built; another one starts."""
    with servers() as found:
        settings = start_flink(found)
        output = config.parent / "killed"
        arguments = command(config, "flink", settings, f"output.dir={output}")
        build = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        blocks = output / "cache" / "blocks"
        while build.poll() is None and not list(blocks.glob("*.blocks")):
            time.sleep(0.05)
        found.kill("taskmanager-0")
        built = len(list(blocks.glob("*.blocks")))
        start_task_manager(found, "taskmanager-2")
        _, errors = build.communicate(timeout=600)
        first = (
            "the build went on"
            if build.returncode == 0
            else f"the build failed ({errors.strip().splitlines()[-1][:80]})"
        )
        if build.returncode:
            timed(arguments)
        local = config.parent / "not-killed"
        timed(command(config, "direct", [], f"output.dir={local}"))
        same = hashes(output) == hashes(local)
        ending = "and " if build.returncode == 0 else "run again, it made "
        return (
            f"a task manager killed with {built} partitions built: {first}, {ending}{'same' if same else 'OTHER'} bytes"
        )


def many_parts(folder: Path) -> Path:
    """A config whose source is some thirty partitions."""
    (folder / "data").mkdir(parents=True)
    for part in range(30):
        lines = "".join(
            f"{i},{(i * 37 % 1000) / 8},text {i % 91} {'x' * 60}\n" for i in range(part, 15_000_000 // 10, 30)
        )
        (folder / "data" / f"{part:02d}.csv").write_text("id,x,t\n" + lines * 10)
    config = folder / "many.yaml"
    config.write_text(
        "name: many\nsource: {format: csv, files: data/*.csv}\nschema: schema.pbtxt\noutput: {dir: out}\n"
        "runner: {workers: 2}\n"
    )
    kinds = {"id": "INT", "x": "FLOAT", "t": "BYTES"}
    (folder / "schema.pbtxt").write_text("".join(f'feature {{ name: "{n}" type: {k} }}\n' for n, k in kinds.items()))
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner", nargs="*", default=list(STARTS), help="flink, spark, prism; or killed")
    runners = parser.parse_args().runner
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples" / "flights", Path(folder) / "flights", ignore=shutil.ignore_patterns("out"))
        config = Path(folder) / "flights" / "flights.yaml"
        timed(command(config, "direct", [], f"output.dir={folder}/direct"))
        expected = hashes(Path(folder) / "direct")
        for runner in runners:
            told = (
                killed(many_parts(Path(folder) / "many"))
                if runner == "killed"
                else same_bytes(runner, config, expected)
            )
            print(f"{runner}: {told}", flush=True)


if __name__ == "__main__":
    main()
