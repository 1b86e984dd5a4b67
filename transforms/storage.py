"""Files by path, or by address on an object store: what sources read, and where versions are mirrored to.

``s3://``, ``gs://``, ``abfs://`` and ``hdfs://`` go through pyarrow, any other scheme through fsspec if that has it.
Credentials, regions and endpoints come from where the stores' own clients take them (docs/storage.md).
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from transforms.errors import ConfigError, missing_extra

SCHEME = "://"
BUFFER_BYTES = 8 << 20  # asked for at once: a request takes as long as a few megabytes
Input = io.FileIO | io.BufferedReader
_ARROW = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


@dataclass(frozen=True)
class Found:
    """A file on a store: its address, size in bytes, and when it was written (nanoseconds since 1970)."""

    path: str
    num_bytes: int
    modified: int


def is_remote(path: str) -> bool:
    return SCHEME in path


def open_input(path: str) -> Input:
    """The file for reading: unbuffered from a disk, in large pieces from a store.  Raises OSError."""
    if not is_remote(path):
        return io.FileIO(path)
    return io.BufferedReader(cast(Any, arrow_input(path)), BUFFER_BYTES)


def arrow_input(path: str) -> pa.NativeFile:
    """The file for Arrow's readers.  Raises OSError."""
    if not is_remote(path):
        return pa.OSFile(path)
    store, name = _store(path)
    return store.open_input_file(name)


def size_of(path: str) -> int:
    """Bytes of the file.  Raises OSError."""
    return info_of(path).num_bytes if is_remote(path) else os.stat(path).st_size


def exists(path: str) -> bool:
    """Whether there is such a file.  Raises OSError when a store cannot be asked."""
    if not is_remote(path):
        return os.path.exists(path)
    store, name = _store(path)
    return bool(store.get_file_info(name).type == fs.FileType.File)


def info_of(path: str) -> Found:
    """What the store knows of one file.  Raises FileNotFoundError."""
    store, name = _store(path)
    info = store.get_file_info(name)
    if info.type != fs.FileType.File:
        raise FileNotFoundError(2, "there is no such file", path)
    return _found(path, info)


def list_files(folder: str, *, recursive: bool = True) -> list[Found]:
    """The files below a folder of a store, in the order of their addresses; none if there is no such folder."""
    store, name = _store(folder)
    infos = store.get_file_info(fs.FileSelector(name, allow_not_found=True, recursive=recursive))
    start = folder.rstrip("/")[: -len(name.rstrip("/"))] if name else folder
    found = [_found(start + info.path, info) for info in infos if info.type == fs.FileType.File]
    return sorted(found, key=lambda file: file.path)


def read_bytes(path: str) -> bytes:
    """The whole file.  Raises OSError."""
    with open_input(path) as stream:
        return stream.read() or b""


def write_bytes(path: str, content: bytes) -> None:
    """The file of a store appears with all of the content, or not at all.  Raises OSError."""
    with _output(path) as stream:
        stream.write(content)


def upload(source: str, path: str) -> None:
    """Copies a file of the disk to a store.  Raises OSError; then what stood there before may be there, or nothing.

    A store shows an object when the last byte has come, hence never a part of it.
    """
    with open(source, "rb") as content, _output(path) as stream:
        stream.upload(content, BUFFER_BYTES)


def copy(source: str, path: str) -> None:
    """Copies a file inside one store, whose servers do the work.  Raises OSError."""
    (store, old), (_, new) = _store(source), _store(path)
    _in_folder(store, new, lambda: store.copy_file(old, new))


def remove(path: str) -> None:
    """Raises FileNotFoundError when there is no such file, and OSError."""
    store, name = _store(path)
    store.delete_file(name)


def in_pieces(path: str) -> Iterator[bytes]:
    """The content of a file, BUFFER_BYTES at a time.  Raises OSError."""
    with open_input(path) as stream:
        while piece := stream.read(BUFFER_BYTES):
            yield piece


def check_address(path: str) -> None:
    """Raises ValueError when the address cannot be used: an unknown scheme, a secret in it, no client for it."""
    parts = urlsplit(path)
    if parts.password is not None:
        raise ValueError("holds a password: leave it out; credentials come from the environment (docs/storage.md)")
    try:
        _store(path)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ValueError(f"cannot be used: {str(error).splitlines()[0]}") from error


def _output(path: str) -> pa.NativeFile:
    store, name = _store(path)
    return _in_folder(store, name, lambda: store.open_output_stream(name, compression=None))


def _in_folder(store: fs.FileSystem, name: str, write: Callable[[], Any]) -> Any:
    """Writes a file, and makes its folder first where folders are more than a part of a name."""
    try:
        return write()
    except FileNotFoundError:
        store.create_dir(name.rpartition("/")[0], recursive=True)
        return write()


def _store(path: str) -> tuple[fs.FileSystem, str]:
    """The store of an address, and the name of the file in it."""
    scheme, _, rest = path.partition(SCHEME)
    if scheme in _ARROW:
        container = rest.partition("/")[0]
        store, name = _arrow_store(scheme, container, os.getpid())
        below = rest.partition("/")[2]
        return store, f"{name.rstrip('/')}/{below}" if below else name
    return _fsspec_store(path)


@functools.cache
def _arrow_store(scheme: str, container: str, process: int) -> tuple[fs.FileSystem, str]:
    """``process``: a client does not outlive a fork."""
    store, name = fs.FileSystem.from_uri(f"{'gs' if scheme == 'gcs' else scheme}{SCHEME}{container}/")
    return store, name


def _fsspec_store(path: str) -> tuple[fs.FileSystem, str]:
    try:
        import fsspec
    except ImportError as error:
        raise missing_extra("fsspec", "fsspec", f"addresses other than of {', '.join(_ARROW)}") from error
    try:
        store, name = fsspec.core.url_to_fs(path)
    except (ImportError, ValueError) as error:
        raise ConfigError(str(error)) from error
    return fs.PyFileSystem(fs.FSSpecHandler(store)), name


def _found(path: str, info: fs.FileInfo) -> Found:
    return Found(path, info.size or 0, info.mtime_ns or 0)
