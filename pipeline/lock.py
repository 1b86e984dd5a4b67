"""One build of an output folder at a time.

The lock is the kernel's (``flock``), on ``DIR/lock``: it goes with the process that holds it, however that ends, so a
dead build never stands in the way.  Over NFS it holds between machines on Linux.  ``DIR/lock.json`` says who has it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from datetime import datetime, timezone

from filelock import FileLock, Timeout

from pipeline.layout import Layout
from transforms.errors import OutputError
from transforms.files import write_committed

log = logging.getLogger("recordmill")


@contextlib.contextmanager
def output_lock(layout: Layout, *, wait: float = 0.0) -> Iterator[bool]:
    """Holds the lock of the folder, which is ours already, during the block.

    Waits up to ``wait`` seconds for it.  Raises OutputError that says who has it when that is not enough.  Yields
    False, and locks nothing, on a file system that has no locks: then builds at the same time both finish, each with a
    version of its own, and the pointer moves to whole ones only.
    """
    lock = FileLock(layout.lock)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if wait > 0:
                log.warning("%s; waiting for up to %g s", _holder(layout), wait)
            lock.acquire(timeout=wait)
    except Timeout as error:
        raise OutputError(
            f"{_holder(layout)}; wait for it with --wait SECONDS, stop it, or name another output.dir"
        ) from error
    except (NotImplementedError, OSError) as error:
        log.warning("%s cannot be locked (%s): do not build into it twice at a time", layout.dir, error)
        yield False
        return
    try:
        holder = {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
            "since": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        write_committed(layout.lock_holder, json.dumps(holder) + "\n")
        yield True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(layout.lock_holder)
        lock.release()


def _holder(layout: Layout) -> str:
    """Who has the lock, in words."""
    try:
        with open(layout.lock_holder, encoding="utf-8") as stream:
            holder = json.load(stream)
        return (
            f"{layout.dir} is in use by process {holder['process']} on {holder['host']} since {holder['since']} "
            f"({holder['command']})"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return f"{layout.dir} is in use by another process"
