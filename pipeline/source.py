"""The section ``source`` of a config: which rows to read, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline.document import Location
from pipeline.patterns import select, span_order
from pipeline.values import (
    Connection,
    Delimiter,
    Encoding,
    ImageSize,
    Loads,
    Mark,
    Model,
    Names,
    Patterns,
    SpanLabel,
    Text,
    Texts,
)
from transforms.images import ImageForm
from transforms.sources import FORMATS, options_of
from transforms.sources.loaded import Load

FORMAT_OPTIONS = tuple(dict.fromkeys(name for format in FORMATS for name in options_of(format)))
IMAGE_OPTIONS = options_of("images")
DATABASES = ("sql", "bigquery")  # whose rows are in no files
MARKS = ("delimiter", "quote", "escape", "comment")


class Source(Model):
    """What is read.

    ``window``, ``from`` and ``to`` choose among the spans that placeholders in ``files`` tell, both included.  The
    options from ``delimiter`` on are those of single formats; docs/sources.md says which.
    """

    format: Literal[
        "csv",
        "jsonl",
        "parquet",
        "arrow",
        "orc",
        "avro",
        "tfrecord",
        "text",
        "libsvm",
        "images",
        "webdataset",
        "sql",
        "bigquery",
    ]
    """What the source is: docs/sources.md has a section on each."""
    files: Patterns = ()
    """A path or a pattern such as `data/*.csv`, or a list of them: relative to the folder of the config, or
    addresses such as `s3://bucket/day={DATE}/*.parquet`."""
    window: Annotated[int, Field(ge=1)] | None = None
    """The newest so many spans."""
    first: SpanLabel | None = Field(default=None, alias="from")
    """The first span that is read."""
    last: SpanLabel | None = Field(default=None, alias="to")
    """The last span that is read."""
    load: Loads | None = None
    """Columns of paths or addresses of images, each with the column that gets the image."""
    delimiter: Delimiter | None = None
    """What stands between the cells of a line; a comma if not said."""
    quote: Mark | None = None
    """What a cell that holds a delimiter is put into; empty for none."""
    escape: Mark | None = None
    """What makes the next character a plain one."""
    comment: Mark | None = None
    """What a line begins with that is no row."""
    encoding: Encoding | None = None
    """Of the text: utf-8 if not said."""
    null_values: Texts | None = None
    """Texts that mean that a value is missing."""
    columns: Names | None = None
    """The names of the columns, where the file has no header; of the fields, of JSON lines."""
    sequence: bool | None = None
    """Records are SequenceExamples."""
    whole_files: bool | None = None
    """Each file is one value, instead of each line."""
    encode: Literal["jpeg", "png", "webp"] | None = None
    """What images become."""
    quality: Annotated[int, Field(ge=1, le=100)] | None = None
    """Of JPEG and WebP."""
    resize: ImageSize | None = None
    """Height and width in pixels that all images get."""
    connection: Connection | None = None
    """Where the database is, without its password."""
    query: Text | None = None
    """What is read, in the words of the database."""
    table: Text | None = None
    """What is read; of BigQuery `project.dataset.table`."""
    where: Text | None = None
    """Which rows of the table."""
    partition_by: Text | None = None
    """A column of integers by which the rows are read in parts."""
    partition_rows: Annotated[int, Field(ge=1)] | None = None
    """About how many rows a part has."""
    version_query: Text | None = None
    """A query whose result changes when the rows do, so that they need not be read to see that."""

    @property
    def called(self) -> str:
        """What people call it: the patterns of its files, or the connection or table."""
        if self.format == "sql":
            return f"{self.connection} {self.table or 'query'}"
        if self.format == "bigquery":
            return f"bigquery:{self.table}"
        return ", ".join(pattern.text for pattern in self.files)

    @property
    def options(self) -> dict[str, Any]:
        """What the user said about the format, in plain values."""
        return self._given(name for name in FORMAT_OPTIONS if self.load is None or name not in IMAGE_OPTIONS)

    @property
    def loaded(self) -> Load | None:
        """The images that rows name, and the form that they get."""
        if self.load is None:
            return None
        form = self._given(IMAGE_OPTIONS)
        return Load(dict(self.load), ImageForm(**form | ({"resize": self.resize} if self.resize else {})))

    def _given(self, names: Iterable[str]) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in names}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if v is not None}


def contradictions(source: Source) -> Iterator[tuple[Location, str]]:
    """What is wrong between keys that are right by themselves; locations are those below ``source``."""
    for option in sorted(set(source.options) - set(options_of(source.format))):
        formats = [format for format in FORMATS if option in options_of(format)]
        formats += ["columns of images (source.load)"] if option in IMAGE_OPTIONS else []
        yield (option,), f"is for {' and '.join(formats)}, and source.format is {source.format}; leave it out"
    if source.load is not None and source.format in ("images", "webdataset"):
        yield ("load",), f"is for rows that name images, and {source.format} holds them; leave it out"
    if source.format in DATABASES:
        yield from _database_contradictions(source)
    elif not source.files:
        yield ("files",), "is missing; name files, for example files: data/*.csv"
    marks = {name: getattr(source, name) for name in MARKS if getattr(source, name)}
    for name in (name for i, name in enumerate(marks) if marks[name] in list(marks.values())[:i]):
        yield (name,), "is the same character as another option's; each must be one of its own"
    yield from _span_contradictions(source)


def _database_contradictions(source: Source) -> Iterator[tuple[Location, str]]:
    """What is missing, or there twice, of what says where the rows are."""
    if source.files:
        what = "a connection, and a table or a query" if source.format == "sql" else "a table"
        yield ("files",), f"is for formats of files; for {source.format} name {what}"
    if source.format == "bigquery":
        if source.table is None or source.table.count(".") != 2:
            yield ("table",), "must be project.dataset.table"
    else:
        if source.connection is None:
            yield (
                ("connection",),
                "is missing; name one, such as postgresql://user@host/database or sqlite:data.db",
            )
        if (source.query is None) == (source.table is None):
            yield ("query",), "and table: one of them must say which rows to read"
    if source.partition_rows is not None and source.partition_by is None:
        yield ("partition_rows",), "needs partition_by, a column of integers"


def _span_contradictions(source: Source) -> Iterator[tuple[Location, str]]:
    spans = {span for pattern in source.files for span in pattern.spans.values()}
    without = [i for i, pattern in enumerate(source.files) if not pattern.spans]
    if spans and without:
        yield ("files", without[0]), "tells no span, and other patterns do: put {DATE} or {SPAN} into each"
    for key, value in (("window", source.window), ("from", source.first), ("to", source.last)):
        if value is not None and not spans:
            yield (key,), "chooses spans, and source.files tells none: put {DATE} or {SPAN} into the pattern"
    if len({"-" in span for span in (*spans, *filter(None, (source.first, source.last)))}) > 1:
        yield ("files",), "has days and numbers for spans (from and to count as well); use one kind"
    elif spans and not select(source.files, first=source.first, last=source.last):
        kept = sorted(spans, key=span_order)
        yield ("from",), f"leaves no span: the files have {kept[0]} to {kept[-1]}"
