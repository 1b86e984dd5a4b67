"""The passes that look at a partition without writing Examples: its profile, and what the analyzers make of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from transforms.domains import DomainCheck, observe, to_plain
from transforms.drop import index_keys
from transforms.errors import BadRowsError
from transforms.files import write_checked
from transforms.histogram import count, to_bytes
from transforms.infer import profile
from transforms.partition import BadRow, BadRowLimit, Partition, redacted
from transforms.reading import Reader, SourceSpec
from transforms.rows import PartitionRows, RowSpec
from transforms.timing import step, timed

if TYPE_CHECKING:
    from transforms.analyze import PhaseSpec


def profile_partition(
    partition: Partition,
    path: str,
    *,
    source: SourceSpec,
    bad_row_limit: BadRowLimit,
    redact: Sequence[str] = (),
) -> None:
    """Commits the profile (``infer.Profile``) of all the partition's rows as the JSON file ``path``.

    Rows that the source cannot make sense of have no types; the build reports them.  Raises BadRowsError when there are
    more than may be whose column is at fault: without them it might not be in the schema, and the build would not look
    at it.
    """
    rejected: list[BadRow] = []
    with step("infer"):
        found = profile(timed("read", Reader(partition, source, rejected.append).read()))
    at_fault = [row for row in rejected if row.column is not None]
    if not bad_row_limit.allows(len(at_fault)):
        rows = redacted(sorted(rejected, key=lambda row: (row.path, row.row)), redact)
        raise BadRowsError(rows, str(bad_row_limit))
    write_checked(path, found.to_json())


def index_partition(partition: Partition, path: str, *, source: SourceSpec, columns: Sequence[str]) -> None:
    """Commits the index of the partition's keys (``drop.index_keys``); rows that the source rejects have none."""
    with step("keys"):
        index_keys(source.open(), partition, path, columns=columns, on_bad_row=lambda row: None)


def count_partition(partition: Partition, path: str, *, rows: RowSpec, split: str | None) -> None:
    """Commits the histograms of the features of the partition's rows of the split (None: all) as ``path``.

    Raises BadRowsError when more rows could not become features than may be bad.
    """
    with step("count"):
        histograms = count(read_features(partition, rows=rows, split=split))
    write_checked(path, to_bytes(histograms))


def observe_partition(partition: Partition, path: str, *, rows: RowSpec) -> None:
    """Commits the ``values`` of the features of the partition's rows, those outside of the domains of the schema
    (``strays``), and how many values features with a domain have (``in_domains``), as the JSON file ``path``.

    Raises BadRowsError when more rows could not become features than may be bad.
    """
    check = DomainCheck(rows.schema)

    def looked_at() -> Iterator[pa.RecordBatch]:
        for batch in read_features(partition, rows=rows, split=None):
            check.look(batch)
            yield batch

    with step("observe"):
        values = observe(looked_at())
    content = {"values": to_plain(values), "strays": to_plain(check.strays), "in_domains": check.values}
    write_checked(path, json.dumps(content))


def accumulate_partition(
    argument: tuple[Partition, Collection[str]], path: str, *, phase: PhaseSpec, rows: RowSpec, split: str | None
) -> None:
    """Commits some sections of the phase, over the partition's rows of the split (None: all), as the file ``path``.

    Raises BadRowsError when more rows could not become features than may be bad.
    """
    from transforms.analyze import accumulate

    partition, sections = argument
    with step("accumulate"):
        accumulate(phase.only(sections), read_features(partition, rows=rows, split=split), path)


def read_features(partition: Partition, *, rows: RowSpec, split: str | None) -> Iterator[pa.RecordBatch]:
    """The feature batches of the partition's rows of the split (None: all), none of them empty.

    Raises BadRowsError at the end when more rows could not become features than may be bad.
    """
    selected = PartitionRows(partition, rows)
    yield from (batch for batch in selected.of_split(split) if batch.num_rows)
    selected.check()
