"""The transform graph of a build: from the cache, or from an analysis of the data, phase by phase on the runner."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.config import Config
from pipeline.plan import Cache
from pipeline.stages import Task, Workers, run_stage
from transforms.build import Transform
from transforms.files import temporary_folder
from transforms.fingerprint import digest
from transforms.partition import Partition
from transforms.passes import accumulate_partition, read_features
from transforms.preprocess import Preprocessing
from transforms.rows import RowSpec

if TYPE_CHECKING:
    from transforms.analyze import AnalysisReport, PhaseSpec

ANALYSIS_FORMAT = 1  # raised when the same data and code give another graph

log = logging.getLogger("recordmill")


def make_transform(
    config: Config, rows: RowSpec, partitions: Sequence[Partition], *, cache: Cache, workers: Workers, work_dir: str
) -> Transform:
    """The transform graph for the config's ``preprocess`` module, which it must name."""
    preprocessing = Preprocessing.load(str(config.preprocess_path))
    key = _key(config, preprocessing, rows, partitions)
    folder = cache.path("transforms", key, "")
    if not os.path.isdir(folder):
        with temporary_folder(os.path.dirname(folder), key) as unfinished:
            _analyze(config, preprocessing, rows, partitions, workers=workers, work_dir=work_dir, out_dir=unfinished)
            os.rename(unfinished, folder)
    return Transform(folder, key)


def analysis_todo(
    config: Config, rows: RowSpec, partitions: Sequence[Partition], *, cache: Cache
) -> tuple[Transform | None, list[Partition]]:
    """The transform graph, if the cache has it, and the partitions that an analysis would have to read."""
    key = _key(config, Preprocessing.load(str(config.preprocess_path)), rows, partitions)
    folder = cache.path("transforms", key, "")
    return (Transform(folder, key), []) if os.path.isdir(folder) else (None, list(partitions))


def _key(config: Config, preprocessing: Preprocessing, rows: RowSpec, partitions: Sequence[Partition]) -> str:
    return digest(
        {
            "format": ANALYSIS_FORMAT,
            "code": preprocessing.digest,
            "rows": rows.key(),
            "analyzed": config.analyzed_split,
            "engine": config.analysis,
            "partitions": [partition.fingerprint for partition in partitions],
        }
    )


def _analyze(
    config: Config,
    preprocessing: Preprocessing,
    rows: RowSpec,
    partitions: Sequence[Partition],
    *,
    workers: Workers,
    work_dir: str,
    out_dir: str,
) -> None:
    from transforms.analyze import Unsupported, analyze

    # Without any partition the analyzers still have to see that there are no rows.
    partitions = partitions or (Partition(()),)

    def run_phase(phase: PhaseSpec) -> list[str]:
        function = functools.partial(accumulate_partition, phase=phase, rows=rows, split=config.analyzed_split)
        tasks = [
            Task(p, os.path.join(work_dir, f"phase-{phase.number}", f"{i:06d}.arrow"), p.name, p.num_bytes)
            for i, p in enumerate(partitions)
        ]
        run_stage(f"Accumulate{phase.number}", function, tasks, workers=workers, work_dir=work_dir)
        return [task.output for task in tasks]

    stock = functools.partial(_analyze_stock, config, preprocessing, rows, partitions, out_dir=out_dir)
    if config.analysis == "stock":
        report = stock(reason=None)
    else:
        try:
            report = analyze(preprocessing, rows.schema, run_phase=run_phase, work_dir=work_dir, out_dir=out_dir)
        except Unsupported as error:
            report = stock(reason=error.construct)
    log.info("%s", report)


def _analyze_stock(
    config: Config,
    preprocessing: Preprocessing,
    rows: RowSpec,
    partitions: Sequence[Partition],
    *,
    out_dir: str,
    reason: str | None,
) -> AnalysisReport:
    from transforms.analyze import analyze_stock

    read = functools.partial(read_features, rows=rows, split=config.analyzed_split)
    return analyze_stock(preprocessing, rows.schema, partitions=partitions, read=read, out_dir=out_dir, reason=reason)
