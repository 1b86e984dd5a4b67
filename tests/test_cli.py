"""The command: exit statuses, one message for each error, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app

CONFIG = """\
name: t
source: {format: csv, files: rows.csv}
splits: {train: 0.75, eval: 0.25}
output: {dir: out}
runner: {workers: 1}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("id,city\n" + "".join(f"{i},{'Köln' if i % 3 else ''}\n" for i in range(200)))
    (tmp_path / "c.yaml").write_text(CONFIG)
    return tmp_path


def run(*arguments: str, status: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"})
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout, result.stderr


def test_build_publishes_then_has_nothing_to_do(folder: Path) -> None:
    out, _ = run("build", "c.yaml", "--json", "result.json", "--set", "output.shards=2")
    result = json.loads((folder / "result.json").read_text())
    assert f"Published version {result['version']}." in out
    assert result["rows_read"] == 200
    assert result["bad_rows"] == 0
    assert sum(split["rows"] for split in result["splits"].values()) == 200
    assert [split["shards"] for split in result["splits"].values()] == [2, 2]
    assert "200 rows read, 0 bad, 200 written" in out
    assert str(folder / "out" / "versions" / result["version"]) in out
    out, _ = run("build", "c.yaml", "--json", "again.json", "--set", "output.shards=2")
    assert f"Nothing to do: version {result['version']} is up to date." in out
    again = json.loads((folder / "again.json").read_text())
    assert again["up_to_date"]
    assert again["splits"] == result["splits"]


def test_quiet_is_quiet(folder: Path) -> None:
    assert run("build", "c.yaml", "-q") == ("", "")


def test_inspect_and_verify_what_was_built(folder: Path) -> None:
    run("build", "c.yaml", "-q")
    out, _ = run("inspect", "out", "--rows", "1")
    assert "t-train-00000-of-00001.tfrecord.gz" in out
    assert "(latest)" in out
    assert "eval, row 0" in out
    found = json.loads(run("inspect", "out", "--json", "--split", "eval", "-n", "2")[0])
    assert list(found["splits"]) == ["eval"]
    assert len(found["rows"]["eval"]) == 2
    assert "all whole" in run("verify", "out")[0]
    shard = next((folder / "out").glob("versions/*/eval/*.gz"))
    shard.write_bytes(shard.read_bytes()[:-1])
    out, _ = run("verify", "out", status=1)
    assert "fault: eval/t-eval-00000-of-00001.tfrecord.gz" in out
    faults = json.loads(run("verify", "out", "--json", status=1)[0])["faults"]
    assert {fault["file"] for fault in faults} == {"eval/t-eval-00000-of-00001.tfrecord.gz"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "gone.yaml"], "error: gone.yaml: cannot be read"),
        (["build", "c.yaml", "--set", "output.levle=6"], "error: --set output.levle=6: output.levle 6: unknown key"),
        (["build", "c.yaml", "--set", "output.dir=."], "holds files that recordmill did not write"),
        (["build", "c.yaml", "--set", "source.files=gone*"], "matches no file"),
        (["build"], "Missing argument"),
        (["bild"], "No such command"),
        (["build", "c.yaml", "--sett", "x=1"], "No such option"),
        (["inspect", "."], "is not an output folder of recordmill"),
        (["verify", "gone"], "is not an output folder of recordmill"),
        (["init", "gone*.csv"], "error: gone*.csv: matches no file"),
    ],
)
def test_wrong_config_or_command(folder: Path, arguments: list[str], message: str) -> None:
    out, err = run(*arguments, status=2)
    assert message in err
    assert "Traceback" not in err
    assert not (folder / "out").exists()


def test_data_that_fail(folder: Path) -> None:
    (folder / "rows.csv").write_text("id,id\n1,2\n")
    out, err = run("build", "c.yaml", status=1)
    assert err.startswith("error: ")
    assert "rows.csv" in err
    assert "Traceback" not in err
    (folder / "rows.csv").write_text("id\n")
    assert "allow_empty: true" in run("build", "c.yaml", status=1)[1]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "error: stopped"),
        (MemoryError(), 1, "error: out of memory"),
        (OSError(28, "No space left on device", "/x"), 1, "No space left on device: '/x'"),
        (TypeError("oops"), 1, "error: TypeError: oops (a fault of recordmill; RECORDMILL_TRACEBACK=1 shows where)"),
    ],
)
def test_whatever_goes_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, message: str
) -> None:
    def fail(config: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("pipeline.build.build", fail)
    monkeypatch.delenv("RECORDMILL_TRACEBACK", raising=False)
    out, err = run("build", "c.yaml", status=status)
    assert message in err
    assert err.count("\n") == 1
    monkeypatch.setenv("RECORDMILL_TRACEBACK", "1")
    assert "Traceback" in run("build", "c.yaml", status=status)[1]


def test_help_is_there_for_all(folder: Path) -> None:
    assert "recordmill init data/*.csv" in run("--help")[0]
    for command in ("build", "init", "inspect", "verify"):
        assert f"recordmill {command} " in run(command, "--help")[0]
    assert run("--version")[0].startswith("recordmill ")


def imported(code: str) -> set[str]:
    """The heavy libraries that a fresh interpreter has loaded after the code."""
    heavy = ("apache_beam", "tensorflow", "tensorflow_transform", "pyarrow", "numpy", "pydantic")
    code = f"import sys\n{code}\nprint(*(n for n in {heavy!r} if n in sys.modules))"
    root = str(Path(__file__).parent.parent)
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    return set(done.stdout.splitlines()[-1].split()) if done.stdout.strip() else set()


def test_help_loads_nothing_heavy() -> None:
    assert imported("import pipeline.cli") == set()


def test_no_tensorflow_without_preprocessing(folder: Path) -> None:
    run_it = "from typer.testing import CliRunner; from pipeline.cli import app\n"
    commands = [["build", "c.yaml"], ["inspect", "out", "-n", "1"], ["verify", "out"], ["init", "rows.csv"]]
    loaded = imported(run_it + f"assert all(CliRunner().invoke(app, c).exit_code == 0 for c in {commands!r})")
    assert not loaded & {"tensorflow", "tensorflow_transform"}


def test_sigterm_stops_as_ctrl_c_does(folder: Path) -> None:
    """Schedulers stop what they started with it.  The build waits here for one that holds the lock."""
    from pipeline.layout import Layout
    from pipeline.lock import output_lock

    layout = Layout(str(folder / "out"))
    layout.claim()
    command = [str(Path(sys.executable).with_name("recordmill")), "build", "c.yaml", "--wait", "60"]
    with output_lock(layout):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "wait" in line, line
        process.terminate()
        errors = process.stderr.read()
    assert process.wait(30) == 130 and "error: stopped" in errors
