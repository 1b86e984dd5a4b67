"""The output folder: its names, its versions, and the manifest of a version.

``DIR/recordmill.json``                says that the folder is ours, and in which format
``DIR/LATEST``                         the name of the version that readers should take
``DIR/lock``, ``DIR/lock.json``        held by the one build at a time; who it is
``DIR/versions/<version>/``            ``<split>/<shards>``, ``schema.pbtxt``, ``transform_fn/`` and
                                       ``transformed_metadata/`` (with preprocessing), ``manifest.json``
``DIR/cache/``                         what later builds use again; may be removed
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from transforms.assemble import ShardInfo
from transforms.compression import Compression
from transforms.errors import ConfigError, CorruptError, OutputError
from transforms.files import TEMPORARY, write_committed
from transforms.fingerprint import digest
from transforms.partition import Block

LAYOUT_FORMAT = 1
MANIFEST_FORMAT = 1
MANIFEST = "manifest.json"
SCHEMA = "schema.pbtxt"
_BLOCK_FIELDS = ("offset", "num_bytes", "raw_bytes", "num_records", "crc32c", "checksum")


def new_version(now: datetime) -> str:
    """``20260131T093000123Z-1f9c``: sorts by time, in UTC with milliseconds; two builds at once differ in the end."""
    utc = now.astimezone(timezone.utc)
    return f"{utc:%Y%m%dT%H%M%S}{utc.microsecond // 1000:03d}Z-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Layout:
    """The paths below one output folder."""

    dir: str

    @property
    def marker(self) -> str:
        return os.path.join(self.dir, "recordmill.json")

    @property
    def pointer(self) -> str:
        return os.path.join(self.dir, "LATEST")

    @property
    def lock(self) -> str:
        return os.path.join(self.dir, "lock")

    @property
    def lock_holder(self) -> str:
        return os.path.join(self.dir, "lock.json")

    @property
    def versions_dir(self) -> str:
        return os.path.join(self.dir, "versions")

    @property
    def cache_dir(self) -> str:
        return os.path.join(self.dir, "cache")

    def report_path(self, version: str) -> str:
        """What the build of the version did (``result.BuildResult.to_plain``)."""
        return os.path.join(self.dir, "reports", f"{version}.json")

    def version_dir(self, version: str) -> str:
        return os.path.join(self.versions_dir, version)

    def split_dir(self, version: str, split: str) -> str:
        return os.path.join(self.version_dir(version), split)

    def manifest_path(self, version: str) -> str:
        return os.path.join(self.version_dir(version), MANIFEST)

    def check(self) -> None:
        """Raises ConfigError unless the folder is ours, or empty or absent and so can become ours; changes nothing."""
        if os.path.exists(self.marker):
            self._check_format()
        elif os.path.lexists(self.dir) and not os.path.isdir(self.dir):
            raise ConfigError(f"output.dir {self.dir} is not a folder; name another one")
        elif os.path.isdir(self.dir) and (others := sorted(n for n in os.listdir(self.dir) if TEMPORARY not in n)):
            raise ConfigError(
                f"output.dir {self.dir} holds files that recordmill did not write ({others[0]!r} is one): name a new "
                "or empty folder; nothing was changed"
            )

    def claim(self, *, mirror: str | None = None) -> None:
        """Makes the folder ours, and notes the address of its mirror, for commands that see no config.

        Raises ConfigError as ``check`` does, and OutputError when it cannot be written.
        """
        self.check()
        if not os.path.exists(self.marker) or self.mirror != mirror:
            content = {"recordmill": "output", "format_version": LAYOUT_FORMAT} | ({"mirror": mirror} if mirror else {})
            write_committed(self.marker, json.dumps(content) + "\n")
        try:
            os.makedirs(self.versions_dir, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.versions_dir}: cannot be made: {error.strerror}") from error

    @property
    def mirror(self) -> str | None:
        """The address of the mirror, if there is one; the folder is ours."""
        with open(self.marker, encoding="utf-8") as stream:
            mirror = json.load(stream).get("mirror")
        return str(mirror) if mirror else None

    def _check_format(self) -> None:
        try:
            with open(self.marker, encoding="utf-8") as stream:
                found = int(json.load(stream)["format_version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.marker} is damaged or not ours; name another folder as output.dir, or write "
                f'{{"format_version": {LAYOUT_FORMAT}}} into the file if the folder is surely an output of recordmill'
            ) from error
        if found > LAYOUT_FORMAT:
            raise ConfigError(
                f"{self.dir} was written by a newer recordmill (format {found}, this one knows {LAYOUT_FORMAT}): "
                "upgrade recordmill, or name another folder as output.dir"
            )

    def published(self) -> list[str]:
        """The versions whose manifest is there, the oldest first."""
        names = os.listdir(self.versions_dir) if os.path.isdir(self.versions_dir) else []
        return sorted(name for name in names if os.path.exists(self.manifest_path(name)))

    def latest(self) -> str | None:
        """The version that the pointer names; None before the first was published."""
        try:
            with open(self.pointer, encoding="utf-8") as stream:
                return stream.read().strip() or None
        except FileNotFoundError:
            return None

    def point_to(self, version: str) -> None:
        """From now on readers take this version."""
        write_committed(self.pointer, version + "\n")

    def check_published(self) -> None:
        """Raises ConfigError unless the folder is an output folder."""
        if not os.path.exists(self.marker):
            raise ConfigError(f"{self.dir} is not an output folder of recordmill: it has no recordmill.json")
        self._check_format()

    def find(self, version: str | None = None) -> str:
        """The version asked for, by default the latest.  Raises ConfigError that says what there is instead."""
        self.check_published()
        published, wanted = self.published(), version or self.latest()
        if wanted is None:
            raise ConfigError(f"{self.dir} has no published version yet; `recordmill build` makes one")
        if wanted not in published:
            named = "" if version else f" (named by {self.pointer})"
            raise ConfigError(
                f"{self.dir} has no version {wanted!r}{named}; it has {', '.join(published) or 'none'}: "
                + ("choose one of these" if version else "build again, or choose one by --version")
            )
        return wanted


@dataclass(frozen=True)
class SourceFile:
    """A file that was read; ``path`` as ``Config.written`` calls it."""

    path: str
    num_bytes: int
    fingerprint: str


@dataclass(frozen=True)
class Totals:
    """Rows; ``read`` = ``written`` + ``bad`` + ``dropped`` + ``removed`` (by ``prepare``; negative if it made more)."""

    read: int
    bad: int
    written: int
    dropped: int = 0
    removed: int = 0


@dataclass(frozen=True)
class Manifest:
    """What a version holds and what it was made from.

    ``splits``: the shards of each split, in order; ``files``: SHA-256 of each other file, by its path in the version's
    folder; ``code``: see ``refresh.code_outline``; ``analyzers``: a hash of each one's result.
    """

    version: str
    name: str
    created: str  # ISO 8601, UTC
    key: str  # hash of all that the bytes of the version depend on
    config: Mapping[str, Any]
    splits: Mapping[str, tuple[ShardInfo, ...]]
    sources: tuple[SourceFile, ...]
    schema_digest: str
    transform_digest: str | None
    software: Mapping[str, str]
    totals: Totals
    files: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    analyzers: Mapping[str, str] = field(default_factory=dict)
    graph_inputs: str | None = None  # see ``refresh.graph_inputs``
    drop_digest: str | None = None  # of the keys whose rows were left out

    @property
    def shards(self) -> tuple[ShardInfo, ...]:
        """Those of all splits."""
        return tuple(shard for shards in self.splits.values() for shard in shards)

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of all files of the version but its manifest, by their path in it."""
        return {f"{shard.split}/{shard.name}": shard.sha256 for shard in self.shards} | dict(self.files)

    @property
    def compression(self) -> Compression:
        """How the shards are stored."""
        output = self.config["output"]
        return Compression(output["compression"], level=output["level"], gzip_members=output["gzip_members"])

    def to_json(self) -> str:
        """Blocks become lists, whose fields ``block_fields`` names; ``digest`` covers all the rest."""
        content: dict[str, Any] = {"format_version": MANIFEST_FORMAT, "block_fields": list(_BLOCK_FIELDS)}
        content |= {name.name: getattr(self, name.name) for name in dataclasses.fields(self)}
        content["splits"] = {split: [shard_to_plain(s) for s in shards] for split, shards in self.splits.items()}
        content["sources"] = [dataclasses.asdict(source) for source in self.sources]
        content["totals"] = dataclasses.asdict(self.totals)
        return _pretty(content | {"digest": digest(content)})

    @classmethod
    def from_json(cls, text: str, *, path: str) -> Manifest:
        """Raises CorruptError, which names ``path``, when the text is damaged or of a newer format."""
        try:
            content = json.loads(text)
            expected, found = content.pop("digest"), int(content["format_version"])
            if found <= MANIFEST_FORMAT:
                if digest(content) != expected:
                    raise ValueError("its digest does not fit its content")
                return cls._from_plain(content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptError(
                f"{path} is damaged ({error or type(error).__name__}): take another version, or build this one again"
            ) from error
        raise CorruptError(
            f"{path} was written by a newer recordmill (format {found}, this one knows {MANIFEST_FORMAT}): upgrade "
            "recordmill to read it"
        )

    @classmethod
    def _from_plain(cls, content: dict[str, Any]) -> Manifest:
        fields = {field.name: content[field.name] for field in dataclasses.fields(cls) if field.name in content}
        fields["splits"] = {
            split: tuple(shard_from_plain(shard, split) for shard in shards)
            for split, shards in content["splits"].items()
        }
        fields["sources"] = tuple(SourceFile(**source) for source in content["sources"])
        fields["totals"] = Totals(**content["totals"])
        return cls(**fields)

    def save(self, path: str) -> None:
        write_committed(path, self.to_json())

    @classmethod
    def load(cls, path: str) -> Manifest:
        """Raises CorruptError when the file is damaged, cannot be read, or is of a newer format."""
        try:
            with open(path, encoding="utf-8") as stream:
                text = stream.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise CorruptError(f"{path} cannot be read ({reason}): take another version, or build again") from error
        return cls.from_json(text, path=path)


def shard_to_plain(shard: ShardInfo) -> dict[str, Any]:
    plain = {field.name: getattr(shard, field.name) for field in dataclasses.fields(shard)}
    del plain["split"]
    return plain | {"blocks": [[getattr(block, name) for name in _BLOCK_FIELDS] for block in shard.blocks]}


def shard_from_plain(plain: dict[str, Any], split: str) -> ShardInfo:
    blocks = tuple(
        Block(split=split, **dict(zip(_BLOCK_FIELDS, values, strict=True))) for values in plain.pop("blocks")
    )
    return ShardInfo(split=split, blocks=blocks, **plain)


def _pretty(content: dict[str, Any]) -> str:
    """Indented for people, with the lists of numbers that make up most of it on one line each."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return re.sub(r"\[\n *(\d+(?:,\n *\d+)*)\n *\]", lambda list_: _one_line(list_[0]), text) + "\n"


def _one_line(text: str) -> str:
    return re.sub(r"\n *", " ", text).replace("[ ", "[").replace(" ]", "]")


def name_again(version: str) -> str:
    """What a version is called that was made again without rows (``drop_rows``): V-r1, then V-r2."""
    found = re.fullmatch(r"(.*)-r(\d+)", version)
    return f"{found[1]}-r{int(found[2]) + 1}" if found else f"{version}-r1"


def name_at_first(version: str) -> str:
    """What it was called before it was made again, if it was."""
    return re.sub(r"-r\d+$", "", version)
