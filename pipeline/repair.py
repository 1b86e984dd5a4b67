"""Damaged files of a version, made anew: from another version, from the mirror, or from the cache and the source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.again import Again
from pipeline.config import Config
from pipeline.layout import Layout, Manifest
from pipeline.lock import output_lock
from pipeline.mirror import VERSIONS
from pipeline.verify import verify
from transforms import storage
from transforms.errors import CorruptError, RecordmillError
from transforms.files import committed, replace_with, temporary_folder
from transforms.fingerprint import file_sha256

NOT_MADE = "name the config (--config CONFIG), so that it can be made from the cache or the source"


@dataclass(frozen=True)
class Repair:
    """``mended``: where each damaged file of the version was taken from; ``left``: why the others were not."""

    version: str
    mended: Mapping[str, str]
    left: Mapping[str, str]


def repair(dir: str, *, version: str | None = None, config: Config | None = None, wait: float = 0.0) -> list[Repair]:
    """Puts whole files in the place of those that ``verify`` finds damaged or missing: the bytes that were published.

    ``version``: this one alone; None: all that are published.  ``config``: that of the output, for what only the cache
    or the source has.  Returns the versions that were damaged.  Files that the manifest does not name stay.  Raises
    ConfigError when there is no such version, and CorruptError when a manifest is damaged itself.
    """
    layout = Layout(dir)
    layout.check_published()
    versions = [layout.find(version)] if version is not None else layout.published()
    with output_lock(layout, wait=wait), temporary_folder(layout.cache_dir, "work") as work_dir:
        found = [_Repairer(layout, name, os.path.join(work_dir, name), config).run() for name in versions]
    return [repaired for repaired in found if repaired.mended or repaired.left]


class _Repairer:
    def __init__(self, layout: Layout, version: str, work_dir: str, config: Config | None) -> None:
        self.layout = layout
        self.version = version
        self.folder = layout.version_dir(version)
        self.manifest = Manifest.load(layout.manifest_path(version))
        self.work_dir = work_dir
        self.config = config
        self.mended: dict[str, str] = {}
        self.left: dict[str, str] = {}

    def run(self) -> Repair:
        faults = verify(self.layout.dir, version=self.version).faults
        hashes = self.manifest.hashes
        damaged = {fault.file: hashes[fault.file] for fault in faults if fault.file in hashes}
        self.left = {fault.file: fault.reason for fault in faults if fault.file not in hashes}
        for file, sha256 in damaged.items():
            if not (self._from_version(file, sha256) or self._from_mirror(file, sha256)):
                self.left[file] = NOT_MADE
        self._make({file: damaged[file] for file, reason in self.left.items() if reason == NOT_MADE})
        return Repair(self.version, self.mended, self.left)

    def _from_version(self, file: str, sha256: str) -> bool:
        for version in self.layout.published():
            try:
                manifest = Manifest.load(self.layout.manifest_path(version))
            except CorruptError:
                continue
            for name, hash in manifest.hashes.items():
                if hash == sha256 and self._take(os.path.join(self.layout.version_dir(version), name), file, sha256):
                    self.mended[file] = f"version {version}"
                    return True
        return False

    def _from_mirror(self, file: str, sha256: str) -> bool:
        mirror = self.layout.mirror
        if mirror is None:
            return False
        path = f"{mirror}/{VERSIONS}/{self.version}/{file}"
        fetched = os.path.join(self.layout.cache_dir, "fetched")
        try:
            with committed(fetched, durable=False) as output:
                for piece in storage.in_pieces(path):
                    output.write(piece)
        except OSError:
            return False
        try:
            taken = self._take(fetched, file, sha256)
        finally:
            os.unlink(fetched)
        if taken:
            self.mended[file] = f"the mirror {mirror}"
        return taken

    def _make(self, files: Mapping[str, str]) -> None:
        """Makes shards again; what else a version has is made with its schema and transform graph alone."""
        shards = [file for file in files if file not in self.manifest.files]
        if not shards or self.config is None:
            return
        try:
            again = Again(self.config, self.layout, self.version, self.work_dir)
            partitions = again.partitions()
            made = again.maker.make(partitions, again.spec(partitions))
        except RecordmillError as error:
            self.left |= dict.fromkeys(shards, f"cannot be made again: {error}")
            return
        for file in shards:
            if self._take(os.path.join(made.folder, file), file, files[file]):
                self.mended[file] = "the cache and the source"
                del self.left[file]
            else:
                self.left[file] = "what is made of the source now has other bytes; is recordmill of another version?"

    def _take(self, source: str, file: str, sha256: str) -> bool:
        """Puts the file in its place, if it is what was published."""
        path = os.path.join(self.folder, file)
        if not os.path.exists(source) or (os.path.exists(path) and os.path.samefile(source, path)):
            return False
        if file_sha256(source) != sha256:
            return False
        replace_with(source, path)
        return True
