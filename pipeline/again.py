"""A published version, to be made again from what its manifest tells: its config, its schema and transform graph, and
the same content of the same files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pydantic import ValidationError

from pipeline.config import Config
from pipeline.layout import SCHEMA, Layout, Manifest
from pipeline.make import Maker
from pipeline.plan import build_spec, list_partitions, row_spec
from pipeline.publish import source_files
from transforms import storage
from transforms.build import BuildSpec, Transform
from transforms.errors import BuildError
from transforms.partition import Partition
from transforms.schema import Schema


class Again:
    """``config``: that of today, whose file tells where relative paths begin; ``work_dir``: of the new ``maker``."""

    def __init__(self, config: Config, layout: Layout, version: str, work_dir: str) -> None:
        self.version = version
        self.folder = layout.version_dir(version)
        self.manifest = Manifest.load(layout.manifest_path(version))
        self.maker = Maker(_config_of(self.manifest, config), layout, work_dir)
        os.makedirs(work_dir)

    def spec(self, partitions: Sequence[Partition]) -> BuildSpec:
        """Raises SchemaError when the version's schema is damaged."""
        with open(os.path.join(self.folder, SCHEMA), encoding="utf-8") as stream:
            schema = Schema.from_text(stream.read(), path=stream.name)
        digest = self.manifest.transform_digest
        transform = Transform(self.folder, digest, self.manifest.analyzers) if digest is not None else None
        return build_spec(self.maker.config, row_spec(self.maker.config, schema), partitions, transform)

    def partitions(self) -> list[Partition]:
        """Those of the files that the version was made from.  Raises BuildError when these are not what they were."""
        config, spans = self.maker.config, dict[str, str]()
        for pattern in config.source.files:
            spans |= pattern.spans
        paths = {source.path: config.resolve(source.path) for source in self.manifest.sources}
        by_span: dict[str, list[str]] = {}
        for source in self.manifest.sources:
            path = paths[source.path]
            if not storage.exists(path):
                raise BuildError(f"its source {source.path} is gone")
            by_span.setdefault(spans.get(path, ""), []).append(path)
        partitions = list_partitions(config, by_span)
        now = source_files(config, list(paths.values()), partitions)
        changed = [old.path for old, new in zip(self.manifest.sources, now, strict=True) if old != new]
        if changed:
            raise BuildError(f"its source {changed[0]} changed")
        return partitions


def _config_of(manifest: Manifest, config: Config) -> Config:
    """The config of the version, beside the file of today's; a version has its own schema and transform graph."""
    plain = {key: value for key, value in manifest.config.items() if key not in ("schema", "drop_rows", "preprocess")}
    plain |= {"runner": config.runner.model_dump(), "output": {**plain["output"], "dir": config.output_dir}}
    try:
        return Config.of(plain, path=config.path)
    except ValidationError as error:
        raise BuildError(f"its config does not hold any more: {error.errors()[0]['msg']}") from error
