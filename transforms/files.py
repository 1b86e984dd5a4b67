"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
import socket
import uuid
from collections.abc import Iterator

from transforms.errors import CorruptError, OutputError
from transforms.fingerprint import hash_bytes, read_chunks
from transforms.native import Int32, Int64, kernel

TEMPORARY = ".tmp-"
START_BYTES = 8 << 20  # after which the disk begins to write, so that little is left to wait for at the end

_start_writing = kernel("file_start_writing", [Int32, Int64, Int64])


class OutputFile:
    """A file that is being written: every byte is taken, or OutputError names the path that people know."""

    def __init__(self, stream: io.FileIO, path: str) -> None:
        self._stream = stream
        self.path = path
        self.num_bytes = 0
        self._begun = 0  # bytes that the system was told to write

    def write(self, content: bytes | bytearray | memoryview) -> None:
        view = memoryview(content).cast("B")
        with _named(self.path):
            while view:
                taken = self._stream.write(view)
                self.num_bytes += taken
                view = view[taken:]
        if self.num_bytes - self._begun >= START_BYTES:
            _start_writing(self._stream.fileno(), self._begun, self.num_bytes - self._begun)
            self._begun = self.num_bytes


@contextlib.contextmanager
def committed(path: str, *, durable: bool = True, sync_name: bool = True) -> Iterator[OutputFile]:
    """A binary file that gets its name by one atomic rename, after its bytes are on the disk.

    A block that raises leaves nothing behind; what stood under the name before stays.  Not ``durable``: the rename does
    not wait for the disk, so that after a crash of the machine the file may be damaged, which its reader must notice.
    Without ``sync_name`` the name may be lost by a crash, until ``sync_folder`` is called for the folder.
    Raises OutputError, which names the path, when the file cannot be written (a full disk, a quota, a missing right).
    """
    temporary = _temporary(path)
    folder = os.path.dirname(path) or "."
    with _named(path):
        os.makedirs(folder, exist_ok=True)
        stream = io.FileIO(temporary, "xb")
    try:
        with stream:
            yield OutputFile(stream, path)
            if durable:
                with _named(path):
                    os.fsync(stream.fileno())
        with _named(path):
            os.replace(temporary, path)
            if durable and sync_name:
                sync_folder(folder)
    finally:
        with contextlib.suppress(OSError):  # it has its name already, or what went wrong is told
            os.unlink(temporary)


def write_committed(path: str, content: bytes | str) -> None:
    """Writes the whole content, UTF-8 when it is text, as ``committed`` does."""
    with committed(path) as output:
        output.write(content.encode() if isinstance(content, str) else content)


def write_checked(path: str, content: bytes | str) -> None:
    """Writes an entry of a cache: its first line is the hash of the rest (XXH3-128)."""
    data = content.encode() if isinstance(content, str) else content
    with committed(path, durable=False) as output:
        output.write(hash_bytes([data]).encode() + b"\n")
        output.write(data)


def read_checked(path: str) -> bytes:
    """What ``write_checked`` wrote.  Raises CorruptError, which names the path, when the file is cut or changed."""
    try:
        with open(path, "rb") as stream:
            found, content = stream.readline(), stream.read()
    except OSError as error:
        raise CorruptError(f"{path}: cannot be read ({error.strerror}); it is made again") from error
    if found != hash_bytes([content]).encode() + b"\n":
        raise CorruptError(f"{path}: its content does not fit its checksum; it is made again")
    return content


def link_or_copy(source: str, path: str) -> None:
    """Gives the file ``source`` the name ``path`` too: by a hard link, or by a copy where there can be none.

    The name may be lost by a crash of the machine, until ``sync_folder`` is called for the folder.
    """
    with _named(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.link(source, path)
        except OSError:
            with open(source, "rb") as stream, committed(path, sync_name=False) as output:
                for chunk in read_chunks(stream):
                    output.write(chunk)


def replace_with(source: str, path: str) -> None:
    """Gives the file ``source`` the name ``path`` too, in place of what has it."""
    beside = _temporary(path)
    link_or_copy(source, beside)
    with _named(path):
        os.replace(beside, path)
        sync_folder(os.path.dirname(path))


def remove_folder(path: str) -> None:
    """Removes a folder of which readers see all or nothing: it loses its name first."""
    gone = _temporary(path)
    with _named(path):
        os.rename(path, gone)
        sync_folder(os.path.dirname(path))
        shutil.rmtree(gone)


def list_leftovers(folder: str, *, everything: bool) -> Iterator[str]:
    """The temporary files and folders below ``folder`` whose process is gone, or is this one.

    Their names tell host and process.  ``everything``: those of other hosts and of living processes too, for who knows
    that no other process is at work in the folder.
    """
    for parent, folders, names in os.walk(folder):
        found = [name for name in [*folders, *names] if TEMPORARY in name]
        folders[:] = [name for name in folders if TEMPORARY not in name]
        for name in sorted(found):
            host, _, rest = name.rpartition(TEMPORARY)[2].partition("-")
            process = rest.partition("-")[0]
            dead = host == _host() and process.isdigit() and not _is_another_alive(int(process))
            if everything or dead:
                yield os.path.join(parent, name)


def remove_leftovers(folder: str, *, everything: bool = False) -> None:
    """Removes what ``list_leftovers`` finds."""
    for path in list_leftovers(folder, everything=everything):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _temporary(path: str) -> str:
    """A new name beside ``path``, which ``list_leftovers`` knows."""
    return f"{path}{TEMPORARY}{_host()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


@functools.cache
def _host() -> str:
    return hash_bytes([socket.gethostname().encode()])[:8]


def _is_another_alive(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def temporary_folder(parent: str, name: str) -> Iterator[str]:
    """A new folder that is gone after the block, and that ``remove_leftovers`` knows if the process is killed."""
    path = _temporary(os.path.join(parent, name))
    with _named(path):
        os.makedirs(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sync_folder(path: str) -> None:
    """Makes a rename in the folder last through a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
