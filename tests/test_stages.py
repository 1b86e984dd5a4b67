from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from pathlib import Path

import pytest

from pipeline.stages import PROCESS_BYTES, Task, Workers, run_stage
from transforms.errors import BadRowsError, BuildError, SchemaError
from transforms.files import write_committed
from transforms.partition import BadRow

THREADS = [Workers(1), Workers(2), Workers(8)]


def tasks(folder: Path, count: int) -> list[Task]:
    return [Task(i, str(folder / "out" / f"{i}.txt"), f"input {i}") for i in range(count)]


def write_number(number: int, path: str) -> None:
    write_committed(path, str(number))


def fail_once(number: int, path: str, *, mark: str) -> None:
    if number == 3 and not os.path.exists(mark):
        Path(mark).touch()
        raise RuntimeError("made-up quota error")
    write_number(number, path)


def refuse_some(number: int, path: str, *, kind: str) -> None:
    if number in (1, 2):
        if kind == "rows":
            raise BadRowsError([BadRow(f"f{number}.csv", row, "age", "'x'", "not an integer") for row in range(4)])
        raise SchemaError(f"column {number} is not there")
    write_number(number, path)


def forget(number: int, path: str) -> None:
    pass


@pytest.mark.parametrize("workers", THREADS, ids=lambda w: f"{w.number} workers")
def test_every_task_makes_its_file(tmp_path: Path, workers: Workers) -> None:
    made = tasks(tmp_path, 7)
    run_stage("Write", write_number, made, workers=workers, work_dir=str(tmp_path / "work"))
    assert [Path(task.output).read_text() for task in made] == [str(i) for i in range(7)]


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    made = tasks(tmp_path, 3)
    write_committed(made[1].output, "kept")
    run_stage("Write", write_number, made, workers=Workers(1), work_dir=str(tmp_path / "work"))
    assert [Path(task.output).read_text() for task in made] == ["0", "kept", "2"]
    run_stage("Write", functools.partial(refuse_some, kind="schema"), made, workers=Workers(1), work_dir="unused")


def test_tasks_that_make_the_same_file_run_once(tmp_path: Path) -> None:
    same = [Task(i, str(tmp_path / "one"), "x") for i in range(5)]
    run_stage("Write", write_number, same, workers=Workers(2), work_dir=str(tmp_path / "work"))
    assert (tmp_path / "one").exists()


@pytest.mark.parametrize("workers", THREADS, ids=lambda w: f"{w.number} workers")
def test_a_failure_is_told_and_the_next_run_goes_on(tmp_path: Path, workers: Workers) -> None:
    made, mark = tasks(tmp_path, 6), str(tmp_path / "mark")
    function = functools.partial(fail_once, mark=mark)
    with pytest.raises(BuildError, match=r"Write failed on input 3: RuntimeError: made-up quota error"):
        run_stage("Write", function, made, workers=workers, work_dir=str(tmp_path / "work"))
    assert not Path(made[3].output).exists()
    run_stage("Write", function, made, workers=workers, work_dir=str(tmp_path / "work"))
    assert [Path(task.output).read_text() for task in made] == [str(i) for i in range(6)]
    assert not [path for path in (tmp_path / "out").iterdir() if ".tmp-" in path.name]


def test_errors_of_ours_keep_their_kind_and_let_the_others_finish(tmp_path: Path) -> None:
    made = tasks(tmp_path, 5)
    with pytest.raises(SchemaError, match=r"^column 1 is not there$"):
        run_stage(
            "Write",
            functools.partial(refuse_some, kind="schema"),
            made,
            workers=Workers(2),
            work_dir=str(tmp_path / "work"),
        )
    assert [Path(task.output).exists() for task in made] == [True, False, False, True, True]


def test_bad_rows_of_all_tasks_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(BadRowsError) as caught:
        run_stage(
            "Write",
            functools.partial(refuse_some, kind="rows"),
            tasks(tmp_path, 5),
            workers=Workers(2),
            work_dir=str(tmp_path / "work"),
        )
    assert len(caught.value.rows) == 8
    message = str(caught.value)
    assert message.startswith("8 bad rows, and none is allowed:\n  f1.csv, row 1, column 'age': not an integer: 'x'")
    assert message.endswith("and 3 more")


def test_a_file_that_did_not_come_into_being_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"Write ended without an error, but did not make .*0\.txt \(input 0\)"):
        run_stage("Write", forget, tasks(tmp_path, 2), workers=Workers(1), work_dir=str(tmp_path / "work"))


@pytest.mark.slow
def test_worker_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    made = [Task(i, str(tmp_path / f"{i}.txt"), f"input {i}", num_bytes=PROCESS_BYTES) for i in range(4)]
    run_stage("Write", write_number, made, workers=Workers(2, processes=True), work_dir=str(tmp_path / "work"))
    assert [Path(task.output).read_text() for task in made] == [str(i) for i in range(4)]


def press_ctrl_c_once(number: int, path: str, *, mark: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(mark)
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.3)
    write_number(number, path)


@pytest.mark.parametrize("workers", THREADS, ids=lambda w: f"{w.number} workers")
def test_ctrl_c_ends_the_stage_at_once_and_begins_no_more_tasks(tmp_path: Path, workers: Workers) -> None:
    made = tasks(tmp_path, 40)
    press = functools.partial(press_ctrl_c_once, mark=str(tmp_path / "pressed"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_stage("Stop", press, made, workers=workers, work_dir=str(tmp_path / "work"))
        time.sleep(0.6)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sum(os.path.exists(task.output) for task in made) <= workers.number
