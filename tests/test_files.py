from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transforms.errors import OutputError
from transforms.files import committed, remove_leftovers, temporary_folder, write_committed


def test_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with committed(str(path)) as output:
        output.write(b"abc")
        output.write(memoryview(b"def"))
        assert not path.exists()
        assert output.num_bytes == 6
    assert path.read_bytes() == b"abcdef"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_committed(str(path), "old")
    with pytest.raises(RuntimeError), committed(str(path)) as output:
        output.write(b"new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_failing_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int) -> None:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    if step == "write":

        class FullDisk(io.FileIO):
            write = fail

        monkeypatch.setattr(io, "FileIO", FullDisk)
    else:
        monkeypatch.setattr(os, step, fail)
    path = tmp_path / "file"
    with pytest.raises(OutputError, match=f"{path}: cannot be written: {os.strerror(code)}"):
        write_committed(str(path), b"x")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_others_stay_theirs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), committed(str(tmp_path / "file")):
        (tmp_path / "absent").read_bytes()


def test_a_partial_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.FileIO):
        def write(self, content: object) -> int:
            return super().write(memoryview(content)[:3])  # type: ignore[arg-type]

    monkeypatch.setattr(io, "FileIO", Slow)
    write_committed(str(tmp_path / "file"), b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_leftovers_of_the_dead_go_and_of_the_living_stay(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    with temporary_folder(str(tmp_path), "ours") as ours:
        host = ours.rpartition(".tmp-")[2].partition("-")[0]
    names = [
        f"a.tmp-{host}-{dead.stdout.strip()}-aa",
        f"b.tmp-{host}-{os.getpid()}-bb",
        f"c.tmp-{host}-{os.getppid()}-cc",
        f"another.tmp-00000000-{dead.stdout.strip()}-hh",
        "d.tmp-kept",
        "e",
    ]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f"folder.tmp-{host}-{dead.stdout.strip()}-ff").mkdir()
    (tmp_path / f"folder.tmp-{host}-{dead.stdout.strip()}-ff" / "file").touch()
    remove_leftovers(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])
    remove_leftovers(str(tmp_path), everything=True)
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def test_temporary_folder_goes_with_its_files(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), temporary_folder(str(tmp_path / "new"), "work") as folder:
        (Path(folder) / "file").touch()
        raise RuntimeError
    assert list((tmp_path / "new").iterdir()) == []
