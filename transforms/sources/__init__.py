"""Where rows come from: one module a format, each a class that cuts files into partitions and reads them as batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from transforms.partition import BadRow, Partition, Place, RawBatch
from transforms.sources.arrow import ArrowSource
from transforms.sources.avro import AvroSource
from transforms.sources.bigquery import BigQuerySource
from transforms.sources.csv import CsvSource
from transforms.sources.images import ImagesSource
from transforms.sources.jsonl import JsonlSource
from transforms.sources.libsvm import LibsvmSource
from transforms.sources.orc import OrcSource
from transforms.sources.parquet import ParquetSource
from transforms.sources.sql import SqlSource
from transforms.sources.text import TextSource
from transforms.sources.tfrecord import TFRecordSource
from transforms.sources.webdataset import WebDatasetSource


class Source(Protocol):
    """Reads files of one format.  Paths are files, in the order in which their rows count; of ``sql``, one name."""

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        """The files cut where that is safe, into partitions of about ``target_bytes`` of stored bytes.

        Small neighbours go together.  A function of the files' content, names and order alone.  Reads every byte once,
        for the fingerprints.  Raises SourceError, which names the file.
        """
        ...

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        """The partition's rows in order, in batches of bounded size, with those of ``columns`` (None: all) it has.

        ``declared`` maps dotted column names to the kinds (``int``, ``float``, ``bytes``) of a schema, where there is
        one: a format whose text says less than its types keeps the text of what is declared ``bytes``.  A row that
        makes no sense goes to ``on_bad_row`` and is in no batch.  Raises SourceError when a file cannot be read, or is
        no longer what the partition was made of.
        """
        ...


@runtime_checkable
class Locates(Protocol):
    """A source of text, which can tell where a row stands."""

    def locate(self, path: str, rows: Sequence[int]) -> list[Place]:
        """The places of the rows (ordinals in the file, ascending); reads the file up to the last of them."""
        ...


_SOURCES: dict[str, Callable[..., Source]] = {
    "csv": CsvSource,
    "jsonl": JsonlSource,
    "parquet": ParquetSource,
    "arrow": ArrowSource,
    "orc": OrcSource,
    "avro": AvroSource,
    "tfrecord": TFRecordSource,
    "text": TextSource,
    "libsvm": LibsvmSource,
    "images": ImagesSource,
    "webdataset": WebDatasetSource,
    "sql": SqlSource,
    "bigquery": BigQuerySource,
}
FORMATS = tuple(_SOURCES)


def options_of(format: str) -> tuple[str, ...]:
    """The options of a format: what its class takes.  docs/sources.md says what they mean."""
    return tuple(inspect.signature(_SOURCES[format]).parameters)


def open_source(format: str, options: Mapping[str, Any]) -> Source:
    """The source for files of one of FORMATS, with some of its options."""
    return _SOURCES[format](**options)
