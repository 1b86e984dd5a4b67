"""The published versions on an object store too, as they are on the disk: ``output.mirror``.

``URL/LATEST`` and ``URL/versions/<version>/…`` for readers, ``URL/recordmill.json`` to say whose it is; no cache and no
lock.  A version's manifest comes after all its files, and the pointer after the manifest: who takes the version that
LATEST names finds all of it, at any time.  What a sync that was stopped left out, the next one brings.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipeline.layout import LAYOUT_FORMAT, MANIFEST, Layout, Manifest, name_at_first
from transforms import storage
from transforms.errors import ConfigError, CorruptError, OutputError

AT_ONCE = 16  # requests
MARKER, POINTER, VERSIONS = "recordmill.json", "LATEST", "versions"

log = logging.getLogger("recordmill")


@dataclass
class Synced:
    """What went to the mirror ``url``: files and bytes that were ``uploaded``, and that the store ``copied`` itself."""

    url: str
    uploaded: int = 0
    uploaded_bytes: int = 0
    copied: int = 0
    copied_bytes: int = 0


def sync(layout: Layout, url: str) -> Synced:
    """Brings what the mirror lacks of the published versions, and leads its readers to the version that ours take.

    Files are known by their SHA-256 in the manifests: those that another version on the mirror has are copied by the
    store.  Versions that are on the mirror alone stay, but not those that were made again without rows
    (``drop_rows``).  Raises ConfigError when files that are not ours are there, and
    OutputError, which names the address, when something cannot be read or written.
    """
    result = Synced(url)
    with _named(url):
        _Sync(layout, url.rstrip("/"), result).run()
    return result


def prune(layout: Layout, url: str, *, keep: int, removed: Iterable[str], dry_run: bool) -> list[str]:
    """Removes versions from the mirror: ``removed``, which are gone here, and all but its own newest ``keep``.

    Those that are here, and the one that its readers take, stay.  Returns their names.
    """
    url = url.rstrip("/")
    with _named(url):
        there = _versions(_listing(url))
        kept = {*sorted(there)[-keep:], *layout.published(), _read_pointer(url)} - set(removed)
        gone = [version for version in sorted(there) if version not in kept]
        for version in () if dry_run else gone:
            _remove(url, version, there[version])
        return gone


class _Sync:
    def __init__(self, layout: Layout, url: str, result: Synced) -> None:
        self.layout = layout
        self.url = url
        self.result = result
        self.counting = threading.Lock()
        self.sources: dict[str, str] = {}  # SHA-256 of files on the mirror -> address

    def run(self) -> None:
        sizes = _listing(self.url)
        if MARKER not in sizes:
            if sizes:
                raise ConfigError(
                    f"output.mirror {self.url} holds files that recordmill did not write ({min(sizes)!r} is one): name "
                    "an empty place; nothing was changed"
                )
            marker = {"recordmill": "mirror", "format_version": LAYOUT_FORMAT}
            storage.write_bytes(f"{self.url}/{MARKER}", (json.dumps(marker) + "\n").encode())
        there = _versions(sizes)
        published = self.layout.published()
        found = {version: self._manifest_there(version) for version in published if MANIFEST in there.get(version, {})}
        for version, (_, files) in found.items():
            for name, sha256 in files.items():
                if name in there[version]:
                    self.sources.setdefault(sha256, f"{self.url}/{VERSIONS}/{version}/{name}")
        for version in published:
            text, files = found.get(version, (b"", {}))
            self._bring(version, text, {name: sha for name, sha in files.items() if name in there[version]})
        latest = self.layout.latest()
        if latest is not None and latest != _read_pointer(self.url):
            storage.write_bytes(f"{self.url}/{POINTER}", f"{latest}\n".encode())
        made_again = {name_at_first(version) for version in published if version != name_at_first(version)}
        for version in set(there) - set(published):
            if name_at_first(version) in made_again:
                _remove(self.url, version, there[version])

    def _manifest_there(self, version: str) -> tuple[bytes, dict[str, str]]:
        path = f"{self.url}/{VERSIONS}/{version}/{MANIFEST}"
        text = storage.read_bytes(path)
        try:
            return text, Manifest.from_json(text.decode(), path=path).hashes
        except (CorruptError, UnicodeDecodeError) as error:
            log.warning("%s; it is written again", error)
            return b"", {}

    def _bring(self, version: str, text: bytes, there: Mapping[str, str]) -> None:
        """The files that the mirror lacks of a version, or has in another form, and then the manifest."""
        with open(self.layout.manifest_path(version), "rb") as stream:
            ours = stream.read()
        if ours == text:
            return
        folder, target = self.layout.version_dir(version), f"{self.url}/{VERSIONS}/{version}"
        wanted = Manifest.from_json(ours.decode(), path=self.layout.manifest_path(version)).hashes
        missing = {name: sha256 for name, sha256 in wanted.items() if there.get(name) != sha256}
        written = {f"{target}/{name}" for name in missing}
        self.sources = {sha256: path for sha256, path in self.sources.items() if path not in written}
        _at_once(lambda name: self._bring_file(os.path.join(folder, name), f"{target}/{name}", wanted[name]), missing)
        storage.write_bytes(f"{target}/{MANIFEST}", ours)
        for name in set(there) - set(wanted):
            storage.remove(f"{target}/{name}")
        self.sources |= {sha256: f"{target}/{name}" for name, sha256 in wanted.items()}

    def _bring_file(self, path: str, target: str, sha256: str) -> None:
        size, source = os.path.getsize(path), self.sources.get(sha256)
        if source is not None:
            storage.copy(source, target)
        else:
            storage.upload(path, target)
        with self.counting:
            if source is not None:
                self.result.copied += 1
                self.result.copied_bytes += size
            else:
                self.result.uploaded += 1
                self.result.uploaded_bytes += size
        if (there := storage.size_of(target)) != size:
            raise OutputError(f"{target}: has {there} bytes, and {path} has {size}; run the command again")


@contextlib.contextmanager
def _named(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise OutputError(
            f"the mirror {url} cannot be read or written: {reason}; what is published here is whole, and the same "
            "command brings the rest"
        ) from error


def _listing(url: str) -> dict[str, int]:
    """Bytes of each file below the address, by its path in it."""
    return {file.path[len(url) + 1 :]: file.num_bytes for file in storage.list_files(url)}


def _versions(sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Of a listing, the files of each version."""
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for path, size in sizes.items():
        top, _, rest = path.partition("/")
        if top == VERSIONS and "/" in rest:
            version, _, name = rest.partition("/")
            found[version][name] = size
    return found


def _remove(url: str, version: str, names: Iterable[str]) -> None:
    paths = [f"{url}/{VERSIONS}/{version}/{name}" for name in names]
    manifest = f"{url}/{VERSIONS}/{version}/{MANIFEST}"  # without it, it is no version any more
    _at_once(storage.remove, [path for path in paths if path == manifest])
    _at_once(storage.remove, [path for path in paths if path != manifest])


def _read_pointer(url: str) -> str | None:
    try:
        return storage.read_bytes(f"{url}/{POINTER}").decode().strip() or None
    except FileNotFoundError:
        return None


def _at_once(function: Callable[[str], None], names: Iterable[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(function, names):
            pass
