"""When the transform graph of the version before is kept, although the data changed (``preprocess_refresh``)."""

from __future__ import annotations

import logging
import os

from pipeline.config import Config
from pipeline.layout import Layout, Manifest
from transforms.build import Transform
from transforms.fingerprint import digest, file_sha256
from transforms.preprocess import Preprocessing
from transforms.rows import RowSpec

TRANSFORM_FOLDERS = ("transform_fn", "transformed_metadata")  # of a version, and of a transform graph in the cache

log = logging.getLogger("recordmill")


def code_outline(config: Config) -> dict[str, dict[str, list[str]]]:
    """``fingerprint.outline`` of the user's code: by what it is for and, after a slash, the module's name."""
    found: dict[str, dict[str, list[str]]] = {}
    if config.preprocess_path is not None:
        found |= {f"preprocessing/{k}": v for k, v in Preprocessing.load(config.preprocess_path).outline().items()}
    if config.source_spec.prepare is not None:
        found |= {f"prepare/{k}": v for k, v in config.source_spec.prepare.outline().items()}
    return found


def graph_inputs(config: Config, rows: RowSpec) -> str | None:
    """Hash of what a transform graph depends on besides the data: the code, the features and the analyzed split."""
    if config.preprocess_path is None:
        return None
    code = Preprocessing.load(config.preprocess_path).digest
    return digest([code, rows.schema.digest, config.analyzed_split, config.analysis])


def kept_transform(config: Config, layout: Layout, latest: Manifest | None, *, inputs: str | None) -> Transform | None:
    """The graph of the latest version, when the config lets it stay and code and schema are what they were."""
    if config.preprocess_refresh == "always" or latest is None or latest.transform_digest is None:
        return None
    if latest.graph_inputs != inputs:
        log.info("preprocessing or schema are not those of the published transform graph: the data is analyzed again")
        return None
    folder = layout.version_dir(latest.version)
    for path, sha256 in latest.files.items():
        if path.split("/")[0] in TRANSFORM_FOLDERS:
            file = os.path.join(folder, path)
            if not os.path.exists(file) or file_sha256(file) != sha256:
                log.warning("%s is not as it was published: the data is analyzed again", file)
                return None
    return Transform(folder, latest.transform_digest, latest.analyzers)
