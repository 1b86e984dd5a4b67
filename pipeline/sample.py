"""Some rows of a config's source, as they are read and as they would be written: what measurements are made on."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.config import Config
from pipeline.layout import SCHEMA, Layout, Manifest
from pipeline.plan import list_partitions, row_spec
from pipeline.schema import given_schema
from pipeline.source import DATABASES
from transforms.cut import cut_points
from transforms.errors import BadRowsError, BuildError, CorruptError
from transforms.example import Encoder
from transforms.infer import profile, to_schema
from transforms.partition import BadRow, Partition, RawBatch
from transforms.prepare import Preparer
from transforms.preprocess import Preprocessing, TransformGraph
from transforms.reading import Reader
from transforms.schema import Schema
from transforms.timing import ANALYZER, measured

if TYPE_CHECKING:
    from transforms.analyze import PhaseSpec

FILES = 3  # that are looked at: the first, one in the middle, the last
RAW_BYTES = 16 << 20  # of Arrow data, of all of them together
ANALYZED_ROWS = 4096  # in a batch
SECONDS = 3.0  # for counting the rows of their partitions


@dataclass(frozen=True)
class Sample:
    """``raw``: as the source holds them; ``features``: prepared; ``written``: what the Examples hold, in one batch.

    ``rows_per_byte``: of the source as stored; None where no partition could be read to its end in time.
    ``transform_dir``: of the graph that made ``written`` of ``features``, which was made of all rows, or of the sample
    where there is no version yet; None without preprocessing.  ``analyzer_seconds``: that each analyzer took for the
    sample, and ``graph`` for their inputs; none where only stock TFT can analyze.
    """

    raw: tuple[RawBatch, ...]
    rows_per_byte: float | None
    features: pa.RecordBatch
    written: pa.RecordBatch
    schema: Schema
    transform_dir: str | None
    analyzer_seconds: Mapping[str, float]

    @property
    def num_rows(self) -> int:
        return int(self.written.num_rows)

    @functools.cached_property
    def num_bytes(self) -> int:
        """Of the Examples, before compression."""
        return sum(block.nbytes for block in self.blocks())

    def blocks(self, batch: pa.RecordBatch | None = None) -> list[np.ndarray]:
        """Framed Examples of the rows (``batch``: instead of ``written``), cut into blocks before their compression."""
        batch = self.written if batch is None else batch
        records = Encoder(batch.schema, sequence=self.schema.sequence).encode(batch)
        cuts = cut_points(np.diff(records.offsets))
        return [records.data[records.offsets[begin] : records.offsets[end]] for begin, end in itertools.pairwise(cuts)]


def take_sample(config: Config, folder: str) -> Sample:
    """Reads the sample.  The latest version's schema and transform graph are applied, where there is one; otherwise the
    sample is analyzed, and its graph stands in the ``folder``, which is the caller's.

    Raises BuildError where the source has no rows that could be written.
    """
    partitions = list_partitions(config, _some(config.files_by_span) if config.source.format not in DATABASES else None)
    rejected: list[BadRow] = []
    raw, rows_per_byte = _read(config, partitions[:: max(1, len(partitions) // FILES)][:FILES], rejected)
    schema, transform_dir = _latest(config)
    schema = schema or given_schema(config) or to_schema(profile(raw))
    preparer = Preparer(schema)
    prepared = [preparer.prepare(batch, on_bad_row=rejected.append)[0] for batch in raw]
    features = _in_one([batch for batch in prepared if batch.num_rows])
    if features is None:
        if rejected:
            raise BadRowsError(rejected)
        raise BuildError(f"{config.source.called}: has no rows to measure on")
    written, seconds = features, dict[str, float]()
    if config.preprocess_path is not None:
        own, seconds = _analyze(config.preprocess_path, schema, features, folder)
        transform_dir = transform_dir or own
    if transform_dir is not None:
        written, _ = TransformGraph(transform_dir, row_spec(config, schema).schema).transform_good(features)
    return Sample(tuple(raw), rows_per_byte, features, written, schema, transform_dir, seconds)


def _analyze(
    preprocess_path: str, schema: Schema, features: pa.RecordBatch, folder: str
) -> tuple[str | None, dict[str, float]]:
    """The transform graph of the sample, and seconds by analyzer; none where only stock TFT can analyze."""
    from transforms.analyze import Unsupported, accumulate, analyze

    seconds: defaultdict[str, float] = defaultdict(float)
    batches = [features.slice(start, ANALYZED_ROWS) for start in range(0, features.num_rows, ANALYZED_ROWS)]

    def run_phase(phase: PhaseSpec) -> list[list[str]]:
        path = os.path.join(folder, f"{phase.number}.sections")
        accumulate(phase, batches[:1], path)  # loads TensorFlow and the graph
        with measured() as stopwatch:
            accumulate(phase, batches, path)
        for name, (wall, _) in stopwatch.seconds.items():
            seconds[_plain(name)] += wall
        return [[path]]

    out_dir = os.path.join(folder, "graph")
    os.makedirs(out_dir)
    try:
        analyze(Preprocessing.load(preprocess_path), schema, run_phase=run_phase, work_dir=folder, out_dir=out_dir)
    except Unsupported:
        return None, {}
    return out_dir, dict(seconds)


def _plain(step: str) -> str:
    """``scale_to_0_1#min_and_max`` of the step of an analyzer."""
    return step.removeprefix(ANALYZER).partition("[")[2].rstrip("]") or step


def _some(files_by_span: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    files = [(span, path) for span, paths in files_by_span.items() for path in paths]
    chosen: dict[str, list[str]] = {}
    for at in sorted({0, len(files) // 2, len(files) - 1}):
        span, path = files[at]
        chosen.setdefault(span, []).append(path)
    return chosen


def _read(
    config: Config, partitions: Sequence[Partition], rejected: list[BadRow]
) -> tuple[list[RawBatch], float | None]:
    """The first rows of each partition, and how many rows there are to a byte of those that were read to their end."""
    kept: list[RawBatch] = []
    rows = num_bytes = 0
    until = time.monotonic() + SECONDS
    for partition in partitions:
        left, seen = RAW_BYTES // len(partitions), 0
        for batch in Reader(partition, config.source_spec, rejected.append).read():
            seen += batch.data.num_rows
            if left > 0:
                kept.append(_first(batch, left))
                left -= kept[-1].data.nbytes
            elif time.monotonic() > until:
                break
        else:
            rows, num_bytes = rows + seen, num_bytes + partition.num_bytes
    return kept, rows / num_bytes if num_bytes else None


def _first(batch: RawBatch, num_bytes: int) -> RawBatch:
    """The rows at the begin that have so many bytes."""
    if batch.data.nbytes <= num_bytes:
        return batch
    rows = max(1, batch.data.num_rows * num_bytes // batch.data.nbytes)
    return RawBatch(batch.data.slice(0, rows), batch.path, batch.rows[:rows], typed=batch.typed)


def _latest(config: Config) -> tuple[Schema | None, str | None]:
    layout = Layout(config.output_dir)
    latest = layout.latest() if os.path.isdir(layout.versions_dir) else None
    if latest is None:
        return None, None
    folder = layout.version_dir(latest)
    try:
        graph = Manifest.load(layout.manifest_path(latest)).transform_digest
        with open(os.path.join(folder, SCHEMA), encoding="utf-8") as stream:
            return Schema.from_text(stream.read(), path=stream.name), folder if graph and config.preprocess else None
    except (OSError, CorruptError):
        return None, None


def _in_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    if not batches:
        return None
    table = pa.Table.from_batches(batches)
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(column.chunks) for column in table.columns], schema=table.schema
    )
