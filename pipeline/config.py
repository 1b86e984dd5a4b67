"""The YAML file that says what to build: read, checked as a whole, and given out as frozen models.

``load`` finds everything that is wrong with the file before any work begins, and says it in one ConfigError with a line
for each problem.  Relative paths, in the file as in overrides, are relative to the folder of the file.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from pipeline.document import Location, read_document
from pipeline.patterns import select
from pipeline.problems import describe
from pipeline.source import DATABASES, Source, contradictions
from pipeline.values import (
    Address,
    BadRows,
    ExistingFile,
    FileName,
    Fractions,
    Function,
    LocalPath,
    Model,
    Names,
    Shards,
    Size,
    Text,
    Texts,
    processors,
)
from runners.settings import Settings
from transforms.errors import ConfigError, shorten
from transforms.partition import BadRowLimit
from transforms.reading import SourceSpec
from transforms.sources.corrected import Correction, read_corrections
from transforms.storage import is_remote
from transforms.usercode import UserFunction

ALL = "all"  # the one split of data without splits
SHARD_BYTES = 128 << 20


class Output(Model):
    """Where the versions go, and what their shards are like."""

    dir: LocalPath
    """The folder of the versions and of the cache."""
    mirror: Address | None = None
    """The address of a store where the versions are put as well."""
    compression: Literal["gzip", "zlib", "none"] = "gzip"
    """Of the shards."""
    level: Annotated[int, Field(ge=1, le=9)] = 1
    """From 1, the fastest, to 9, the smallest."""
    gzip_members: Literal["blocks", "single"] = "blocks"
    """`blocks`: each block is a gzip member, which readers can jump to; `single`: the whole shard is one."""
    shard_size: Size | None = None
    """Stored bytes of a shard; 128MiB if neither this nor `shards` is said."""
    shards: Shards | None = None
    """How many shards each split has, or a number for each split."""
    shuffle: Literal["none", "blocks", "rows"] = "blocks"
    """`blocks`: rows among neighbours and blocks over all; `rows`: an exact permutation of all rows; `none`: the
    order of the source."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the shuffle."""
    read_back: bool = False
    """Each shard is read again and checked before the version is published."""

    @property
    def shard_bytes(self) -> int:
        """Stored bytes of a shard, where no number of shards is given."""
        return self.shard_size if self.shard_size is not None else SHARD_BYTES

    def num_shards(self, split: str) -> int | None:
        """How many shards the split shall have; None: as many as ``shard_bytes`` makes."""
        return self.shards.get(split) if isinstance(self.shards, dict) else self.shards


class Runner(Model):
    """Where the build runs: on this machine with so many workers, by default one for each processor, or on a cluster.

    ``runners.settings.Settings`` and docs/runners.md say what the other keys are.
    """

    name: Literal["direct", "flink", "spark", "prism", "portable"] = "direct"
    """What runs the build: docs/runners.md."""
    workers: Annotated[int, Field(ge=1)] = Field(default_factory=processors)
    """How many work at a time; all processors if not said."""
    master: Text | None = None
    """The address of the cluster."""
    job_endpoint: Text | None = None
    """The address of a Beam job server that is there already."""
    job_server: Text | None = None
    """The jar or binary to start a job server from."""
    environment: Literal["loopback", "external", "docker", "process"] | None = None
    """Where the workers' Python is."""
    environment_config: Text | None = None
    """Of the environment: the address of the pool, the program, the image."""
    shared_filesystem: bool = False
    """Says that all workers see source, output and config at the same paths."""
    options: Texts | None = None
    """Further options for Beam."""

    @property
    def settings(self) -> Settings:
        given = self.model_dump(exclude={"shared_filesystem", "options"})
        return Settings(**given, options=self.options or ())


class Config(Model):
    """A checked config.  Paths in it are as the user wrote them; ``resolve`` makes them absolute."""

    name: FileName
    """What shards are called after."""
    source: Source
    """What is read."""
    schema_file: ExistingFile | None = Field(default=None, alias="schema")
    """A TFMD Schema in text form; what all rows say, if there is none."""
    on_schema_drift: Literal["fail", "warn", "adapt"] | None = None
    """Where data and schema differ: `warn` if a schema is named."""
    splits: Fractions | None = None
    """The splits with their parts of the rows, which add up to 1."""
    split_by: Names | None = None
    """Rows with equal values in these columns go to the same split; the whole row decides, if not said."""
    drop_rows: ExistingFile | None = None
    """A CSV of keys whose rows have to be gone."""
    corrections: ExistingFile | None = None
    """Bad rows that were put right, as `recordmill replay` writes them."""
    prepare: Function | None = None
    """A file and a function in it, from RecordBatch to RecordBatch, which sees the rows first."""
    preprocess: ExistingFile | None = None
    """A file with `preprocessing_fn(inputs)`, as TensorFlow Transform has it."""
    analyze: Literal["train", "all"] | None = None
    """Which rows the analyzers see."""
    analysis: Literal["columnar", "stock"] = "columnar"
    """Who analyzes: column by column, or TensorFlow Transform's own pipeline."""
    preprocess_refresh: Literal["always", "frozen", "on_drift"] = "always"
    """Whether data that changed is analyzed again: each time, never, or when it moved too far."""
    drift_threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """How far a feature may move, from 0 to 1."""
    on_data_drift: Literal["fail", "warn"] | None = None
    """What is done when features moved too far since the version before."""
    skew_threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """How far a feature of a split may be from that of the first split."""
    allow_empty: bool = False
    """A source without rows is published as an empty version."""
    max_bad_rows: BadRows = BadRowLimit()
    """How many rows may be bad: a number, or a part of all such as `0.1%`."""
    redact: Names | None = None
    """Columns whose values no message and no page shows."""
    output: Output
    """Where the versions go, and what their shards are like."""
    runner: Runner = Field(default_factory=Runner)
    """Where the build runs."""

    _path: str = PrivateAttr(default="")

    @classmethod
    def of(cls, plain: Mapping[str, Any], *, path: str) -> Config:
        """The config of plain values, as if the file ``path`` held them.  Raises pydantic's ValidationError."""
        config = cls.model_validate(plain, context={"folder": os.path.dirname(path)})
        config._path = path
        return config

    @property
    def path(self) -> str:
        """The config file (absolute)."""
        return self._path

    def resolve(self, path: str) -> str:
        """The absolute form of a path that the config holds; an address is one already."""
        return path if is_remote(path) else os.path.normpath(os.path.join(os.path.dirname(self._path), path))

    @property
    def files_by_span(self) -> dict[str, tuple[str, ...]]:
        """The source's files: absolute, each once, by span, the oldest first; see ``patterns.select``."""
        source = self.source
        if source.format in DATABASES:
            return {"": (source.called,)}
        return select(source.files, window=source.window, first=source.first, last=source.last)

    @property
    def files(self) -> tuple[str, ...]:
        """The source's files: absolute, in order, each once."""
        return tuple(path for paths in self.files_by_span.values() for path in paths)

    @functools.cached_property
    def _absolute(self) -> frozenset[str]:
        return frozenset(
            path for p in self.source.files if os.path.isabs(p.text) or is_remote(p.text) for path in p.paths
        )

    def written(self, path: str) -> str:
        """How to call a file of the source where machines' folders have no place: relative to the folder of the config,
        unless the user wrote it absolute."""
        return (
            path
            if path in self._absolute or self.source.format in DATABASES
            else os.path.relpath(path, os.path.dirname(self._path))
        )

    @property
    def schema_path(self) -> str | None:
        return self.resolve(self.schema_file) if self.schema_file else None

    @property
    def corrections_path(self) -> str | None:
        return self.resolve(self.corrections) if self.corrections else None

    @functools.cached_property
    def source_spec(self) -> SourceSpec:
        """How the source is read.  Raises ConfigError when the file of ``prepare`` has no such function, or that of
        ``corrections`` makes no sense."""
        prepare = None
        if self.prepare is not None:
            path, _, name = self.prepare.rpartition(":")
            prepare = UserFunction(self.resolve(path), name)
            prepare.check(example=f"`def {name}(batch):` that takes a pyarrow.RecordBatch and returns one")
        options = self.source.options
        kind, _, path = str(options.get("connection", "")).partition(":")
        if kind == "sqlite":
            options["connection"] = f"sqlite:{self.resolve(path)}"
        corrections: tuple[Correction, ...] = ()
        if self.corrections_path:
            in_database = self.source.format in DATABASES
            corrections = read_corrections(self.corrections_path, str if in_database else self.resolve)
        return SourceSpec(self.source.format, options, prepare, self.source.loaded, corrections)

    @property
    def preprocess_path(self) -> str | None:
        return self.resolve(self.preprocess) if self.preprocess else None

    @property
    def drop_path(self) -> str | None:
        return self.resolve(self.drop_rows) if self.drop_rows else None

    @property
    def output_dir(self) -> str:
        return self.resolve(self.output.dir)

    @property
    def split_fractions(self) -> dict[str, float]:
        """Fraction by split, in order; the one split ``all`` when the config names none."""
        return dict(self.splits) if self.splits else {ALL: 1.0}

    @property
    def split_names(self) -> tuple[str, ...]:
        return tuple(self.split_fractions)

    @property
    def analyzed_split(self) -> str | None:
        """The split that the analyzers see; None: all rows."""
        return "train" if self.splits and self.analyze != "all" else None

    def canonical(self) -> dict[str, Any]:
        """The config in plain values, defaults filled in and paths as the user wrote them.

        Without the runner, since the result does not depend on where and with how many workers it is made.
        """
        return self.model_dump(mode="json", by_alias=True, exclude={"runner"}, exclude_none=True)


def load(path: str, overrides: Sequence[str] = ()) -> Config:
    """Reads the YAML file ``path`` with overrides such as ``output.level=6`` on top, and checks all of it.

    Raises ConfigError with everything that is wrong.
    """
    document = read_document(path, overrides)
    problems: list[tuple[Location, str]]
    try:
        config = Config.of(document.data, path=os.path.abspath(path))
        problems = list(_contradictions(config))
        _ = config.source_spec  # looks at the files of ``prepare`` and ``corrections``
    except ValidationError as error:
        problems = [describe(found, Config) for found in error.errors(include_url=False)]
    if problems:
        raise ConfigError(_message(document.path, [_line(document, *problem) for problem in problems]))
    return config


def _line(document: Any, location: Location, text: str) -> str:
    value = document.value(location)
    if value is None and location and location[-1] == 0:  # one file where a list could be
        location, value = location[:-1], document.value(location[:-1])
    key = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(map(str, location)))
    shown = f" {_without_password(shorten(value))}" if isinstance(value, str | int | float | list) else ""
    return f"{document.place(location)}: {key}{shown}: {text}"


def _without_password(text: str) -> str:
    return re.sub(r"(://[^:/@]*):[^@]*@|password=[^&']*", r"\1:…@", text)


def _message(path: str, lines: Sequence[str]) -> str:
    if len(lines) == 1:
        return lines[0]
    return "\n  ".join([f"{path}: {len(lines)} problems:", *lines])


def _contradictions(config: Config) -> Iterator[tuple[Location, str]]:
    """What is wrong between keys that are right by themselves."""
    output, names = config.output, config.split_names
    for key, text in contradictions(config.source):
        yield ("source", *key), text
    yield from _runner_contradictions(config.runner)
    if config.split_by and not config.splits:
        yield ("split_by",), "has nothing to split: add splits, for example {train: 0.8, eval: 0.2}, or leave it out"
    if config.splits and "train" not in config.splits and (config.analyze == "train" or _must_choose(config)):
        yield (
            ("analyze",),
            f"the analyzers would see the split 'train', and the splits are {', '.join(names)}; set analyze: all, or "
            "name one of them train",
        )
    if config.analyze == "train" and not config.splits:
        yield ("analyze",), "there are no splits; add them, with one named train, or set analyze: all"
    if config.preprocess_refresh != "always" and not config.preprocess:
        yield ("preprocess_refresh",), "is for a config with preprocess; name a module there, or leave it out"
    if config.drift_threshold is not None and config.preprocess_refresh != "on_drift" and not config.on_data_drift:
        yield (
            ("drift_threshold",),
            "is for preprocess_refresh: on_drift or on_data_drift; set one, or leave it out",
        )
    if config.skew_threshold is not None and (not config.on_data_drift or not config.splits):
        yield ("skew_threshold",), "is for on_data_drift and for data with splits; set both, or leave it out"
    if isinstance(output.shards, dict) and set(output.shards) != set(names):
        yield ("output", "shards"), f"must give a number to each split; the splits are {', '.join(names)}"
    if output.shards is not None and output.shard_size is not None:
        yield ("output", "shards"), "says how many shards, and output.shard_size how large: leave one of them out"
    if output.gzip_members == "single" and output.compression != "gzip":
        yield ("output", "gzip_members"), f"is for gzip, and output.compression is {output.compression}; leave it out"


def _runner_contradictions(runner: Runner) -> Iterator[tuple[Location, str]]:
    if runner.name == "direct":
        for key in runner.model_fields_set - {"name", "workers"}:
            yield ("runner", key), "is for a runner on a cluster, and runner.name is direct; leave it out"
    elif runner.environment in ("external", "docker", "process") and not runner.shared_filesystem:
        yield (
            ("runner", "shared_filesystem"),
            f"must be true for {runner.environment} workers: source, output and the folder of the config must be at "
            "the same paths for all of them; put these on a file system that all share, and say so",
        )


def _must_choose(config: Config) -> bool:
    return config.preprocess is not None and config.analyze is None
