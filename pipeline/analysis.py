"""The transform graph of a build: from the cache, or from an analysis of the data, phase by phase on the runner.

What a partition accumulated is kept in ``cache/accumulators/<partition>/``, in files of sections, one for each analyzer
under its key: what is missing for a phase is made in one pass over the partition and becomes one more file there.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.config import Config
from pipeline.plan import Cache
from pipeline.stages import Task, Workers, run_stage
from transforms.build import Transform
from transforms.errors import CorruptError
from transforms.files import read_checked, remove_folder, temporary_folder, write_checked
from transforms.fingerprint import digest, folder_sha256, library_version
from transforms.partition import Partition
from transforms.passes import accumulate_partition, read_features
from transforms.preprocess import LIBRARIES, Preprocessing
from transforms.rows import RowSpec

if TYPE_CHECKING:
    from transforms.analyze import AnalysisReport, PhaseSpec

ANALYSIS_FORMAT = 4  # raised when the same data and code give another graph, or other accumulators
RESULT = "analysis.json"  # beside a graph in the cache

log = logging.getLogger("recordmill")


def make_transform(
    config: Config, rows: RowSpec, partitions: Sequence[Partition], *, cache: Cache, workers: Workers, work_dir: str
) -> Transform:
    """The transform graph for the config's ``preprocess`` module, which it must name."""
    preprocessing = Preprocessing.load(str(config.preprocess_path))
    key = _key(config, preprocessing, rows, partitions)
    folder = cache.path("transforms", key, "")
    if os.path.isdir(folder):
        try:
            return read_transform(folder)
        except CorruptError as error:
            log.warning("%s", error)
            remove_folder(folder)
    with temporary_folder(os.path.dirname(folder), key) as unfinished:
        report = _analyze(
            config,
            preprocessing,
            rows,
            partitions,
            cache=cache,
            workers=workers,
            work_dir=work_dir,
            out_dir=unfinished,
        )
        result = {"digest": report.digest or key, "results": dict(report.results), "files": folder_sha256(unfinished)}
        write_checked(os.path.join(unfinished, RESULT), json.dumps(result, indent=1, sort_keys=True))
        os.rename(unfinished, folder)
    return read_transform(folder)


def read_transform(folder: str) -> Transform:
    """A graph of the cache.  Raises CorruptError when a file of it is not what was written."""
    content = json.loads(read_checked(os.path.join(folder, RESULT)))
    found = {name: sha256 for name, sha256 in folder_sha256(folder).items() if name != RESULT}
    if found != content["files"]:
        changed = sorted(set(found.items()) ^ set(content["files"].items()))
        raise CorruptError(
            f"{os.path.join(folder, changed[0][0])}: is not what was written; the analysis is made again"
        )
    return Transform(folder, content["digest"], content["results"])


def analysis_todo(
    config: Config, rows: RowSpec, partitions: Sequence[Partition], *, cache: Cache
) -> tuple[Transform | None, list[Partition]]:
    """The transform graph, if the cache has it, and the partitions that an analysis has to read for sure."""
    key = _key(config, Preprocessing.load(str(config.preprocess_path)), rows, partitions)
    folder = cache.path("transforms", key, "")
    if os.path.isdir(folder):
        try:
            return read_transform(folder), []
        except CorruptError:
            pass
    return None, [p for p in partitions if not os.path.isdir(_accumulators(config, rows, p, cache))]


def accumulator_folders(config: Config, rows: RowSpec, partitions: Sequence[Partition], cache: Cache) -> list[str]:
    """Where the accumulators of the partitions are kept, where there are any."""
    folders = (_accumulators(config, rows, partition, cache) for partition in partitions)
    return [folder for folder in folders if os.path.isdir(folder)]


def _accumulators(config: Config, rows: RowSpec, partition: Partition, cache: Cache) -> str:
    libraries = {name: library_version(name) for name in (*LIBRARIES, "pyarrow", "numpy")}
    depends = [ANALYSIS_FORMAT, partition.fingerprint, rows.key(), config.analyzed_split, libraries]
    return cache.path("accumulators", digest(depends), "")


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
    cache: Cache,
    workers: Workers,
    work_dir: str,
    out_dir: str,
) -> AnalysisReport:
    from transforms.analyze import Unsupported, analyze

    # Without any partition the analyzers still have to see that there are no rows.
    partitions = partitions or (Partition(()),)

    def run_phase(phase: PhaseSpec) -> list[list[str]]:
        folders = [
            _accumulators(config, rows, p, cache)
            if phase.is_kept
            else os.path.join(work_dir, f"phase-{phase.number}", f"{i:06d}")
            for i, p in enumerate(partitions)
        ]
        found = [_missing(folder, phase) for folder in folders]
        tasks = [
            Task((p, missing), os.path.join(folder, f"{digest(missing)}.sections"), p.name, p.num_bytes)
            for p, folder, (_, missing) in zip(partitions, folders, found, strict=True)
            if missing
        ]
        log.info("analysis, phase %d: %d of %d partitions are read", phase.number, len(tasks), len(partitions))
        function = functools.partial(accumulate_partition, phase=phase, rows=rows, split=config.analyzed_split)
        run_stage(f"Accumulate{phase.number}", function, tasks, workers=workers, work_dir=work_dir)
        return [_files(folder) for folder in folders]

    stock = functools.partial(_analyze_stock, config, preprocessing, rows, partitions, out_dir=out_dir)
    if config.analysis == "stock":
        report = stock(reason=None)
    else:
        try:
            report = analyze(preprocessing, rows.schema, run_phase=run_phase, work_dir=work_dir, out_dir=out_dir)
        except Unsupported as error:
            report = stock(reason=error.construct)
    log.info("%s", report)
    return report


def _files(folder: str) -> list[str]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.endswith(".sections")]


def _missing(folder: str, phase: PhaseSpec) -> tuple[list[str], list[str]]:
    """The files of a partition, and the sections of the phase that none of them has; a damaged file is removed."""
    from transforms.analyze import SectionFile

    there: set[str] = set()
    kept = []
    for path in _files(folder):
        try:
            file = SectionFile(path)
            file.check()
        except CorruptError as error:
            log.warning("%s", error)
            os.unlink(path)
            continue
        there |= file.names
        kept.append(path)
    return kept, sorted(set(phase.sections) - there)


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
