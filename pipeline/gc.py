"""Old versions, and what of the cache no version needs, are removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pipeline.layout import Layout
from pipeline.lock import output_lock
from pipeline.mirror import prune
from transforms.errors import CorruptError
from transforms.files import TEMPORARY, list_leftovers, read_checked, remove_folder, write_checked

ENTRIES = (
    "profiles",
    "blocks",
    "buckets",
    "transforms",
    "accumulators",
    "keys",
    "drop",
    "histograms",
)  # folders of the cache


@dataclass
class Removed:
    """What was removed, or would be: ``versions`` by name, cache ``entries`` and ``leftovers`` of dead builds by path.

    ``on_mirror``: versions that were removed from the mirror.

    ``kept_cache``: why nothing of the cache was looked at, if so.
    """

    versions: list[str] = field(default_factory=list)
    on_mirror: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    num_bytes: int = 0
    kept_cache: str | None = None


def record_uses(layout: Layout, version: str, paths: Iterable[str]) -> None:
    """Notes which entries of the cache a version was made from, as ``cache/uses/<version>``: a path on each line."""
    parts = {tuple(os.path.relpath(path, layout.cache_dir).split(os.sep)[:2]) for path in paths}
    write_checked(_uses_path(layout, version), "\n".join(sorted("/".join(part) for part in parts)))


def gc(dir: str, *, keep: int, older_than: float = 0.0, dry_run: bool = False, wait: float = 0.0) -> Removed:
    """Removes all versions but the newest ``keep`` and the one that readers take, and then what they alone needed.

    ``older_than``: seconds; versions and entries of the cache that are younger stay.  Nothing else builds meanwhile.
    The mirror keeps its newest ``keep``, and what stays here.
    Readers see a version as a whole or not at all; a gc that is stopped is finished by the next one.
    """
    layout = Layout(dir)
    layout.check_published()
    with output_lock(layout, wait=wait) as locked:
        removed = Removed()
        published = layout.published()
        kept = {*published[len(published) - keep :], layout.latest()}
        for version in published:
            folder = layout.version_dir(version)
            if version not in kept and _is_older(layout.manifest_path(version), older_than):
                removed.versions.append(version)
                removed.num_bytes += _unshared_bytes(folder)
                if not dry_run:
                    remove_folder(folder)
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(layout.report_path(version))
        left = [version for version in published if version not in removed.versions]
        for path in _unused(layout, left, removed) if locked else ():
            if _is_older(path, older_than):
                removed.entries.append(path)
                _remove(path, removed, dry_run=dry_run)
        for path in list_leftovers(layout.dir, everything=locked):
            removed.leftovers.append(path)
            _remove(path, removed, dry_run=dry_run)
        if layout.mirror is not None:
            removed.on_mirror = prune(layout, layout.mirror, keep=keep, removed=removed.versions, dry_run=dry_run)
    return removed


def _unused(layout: Layout, versions: list[str], removed: Removed) -> Iterator[str]:
    """The entries of the cache that no version needs."""
    needed: set[str] = set()
    for version in versions:
        path = _uses_path(layout, version)
        try:
            needed.update(read_checked(path).decode().split("\n"))
        except CorruptError:
            removed.kept_cache = f"it is not known what version {version} was made from"
            return
    for kind in ENTRIES:
        folder = os.path.join(layout.cache_dir, kind)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if f"{kind}/{name}" not in needed and TEMPORARY not in name:
                yield os.path.join(folder, name)
    uses = os.path.join(layout.cache_dir, "uses")
    for name in sorted(os.listdir(uses)) if os.path.isdir(uses) else ():
        if name not in versions:
            yield os.path.join(uses, name)


def _uses_path(layout: Layout, version: str) -> str:
    return os.path.join(layout.cache_dir, "uses", version)


def _is_older(path: str, seconds: float) -> bool:
    return time.time() - os.stat(path).st_mtime >= seconds


def _remove(path: str, removed: Removed, *, dry_run: bool) -> None:
    removed.num_bytes += _unshared_bytes(path)
    if not dry_run:
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _unshared_bytes(path: str) -> int:
    """What the disk gets back: files that other versions have too, by a link, give nothing."""
    names = [os.path.join(parent, name) for parent, _, files in os.walk(path) for name in files]
    stats = map(os.stat, names if os.path.isdir(path) else [path])
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1)
