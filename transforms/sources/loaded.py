"""Images that rows name: a column of paths or addresses, and beside it a new one with what is there.

A relative path is relative to the folder of the file whose row names it.  What the images hold is a part of the
slices' fingerprints, after a ``+``: one that changes makes the rows new.  A row whose image is missing or broken is a
bad row; a row that names none has none.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import xxhash

from transforms.errors import SourceError, shorten
from transforms.fingerprint import hash_bytes
from transforms.images import ImageForm, require_pillow
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.slices import ahead, changed, file_size, group, read_whole
from transforms.sources.typed import BATCH_BYTES
from transforms.storage import SCHEME, is_remote

if TYPE_CHECKING:
    from transforms.sources import Source

TEXT_SHARE = 256  # an image has about so many times the bytes of a row that names it


@dataclass(frozen=True)
class Load:
    """``columns``: those that name images, each with the name of the one that gets them."""

    columns: Mapping[str, str]
    form: ImageForm = ImageForm()


class LoadedSource:
    """Another source with images beside its rows; see ``sources.Source``."""

    def __init__(self, source: Source, load: Load) -> None:
        self._source = source
        self._load = load
        self._made = frozenset(load.columns.values())

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        require_pillow()
        found = self._source.partitions(paths, target_bytes=max(1, target_bytes // TEXT_SHARE))
        slices = (self._with_images(piece) for partition in found for piece in partition.slices)
        return group(slices, target_bytes=target_bytes)

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        asked = columns is None or bool(columns & self._made)
        if columns is not None:
            columns = columns - self._made | frozenset(self._load.columns)
        for piece in partition.slices:
            bare, _, content = piece.fingerprint.partition("+")
            piece = replace(piece, fingerprint=bare)
            batches = self._source.read(Partition((piece,)), columns=columns, declared=declared, on_bad_row=on_bad_row)
            if not asked:
                yield from batches
                continue
            images = _Images(ahead(self._read_images, self._named(piece)))
            for raw in batches:
                yield from self._loaded(raw, images, on_bad_row)
            if images.finish() != content:
                raise changed(f"{piece.path}, or an image that it names")

    def _with_images(self, piece: FileSlice) -> FileSlice:
        images = _Images(ahead(_hash_images, self._named(piece)))
        content = images.finish()
        num_bytes = piece.num_bytes + images.num_bytes
        return replace(piece, fingerprint=f"{piece.fingerprint}+{content}", num_bytes=num_bytes)

    def _named(self, piece: FileSlice) -> Iterator[_Named]:
        """What the rows name: the same whenever it is asked for, and whatever the other columns are like."""
        folder = piece.path.rpartition("/")[0]
        names = frozenset(self._load.columns)
        for raw in self._source.read(Partition((piece,)), columns=names, on_bad_row=lambda row: None):
            columns = [_texts(raw, name) for name in self._load.columns]
            for row, *texts in zip(raw.rows.tolist(), *columns, strict=True):
                yield _Named(row, [None if text is None else (text, _place(text, folder)) for text in texts])

    def _read_images(self, named: _Named) -> _Found:
        found = _hash_images(named)
        images: list[Content] = []
        for content in found.images:
            if isinstance(content, bytes):
                try:
                    content = self._load.form.read(content).image
                except ValueError as error:
                    content = str(error)
            images.append(content)
        return found._replace(images=images)

    def _loaded(self, raw: RawBatch, images: _Images, on_bad_row: Callable[[BadRow], None]) -> Iterator[RawBatch]:
        """The rows with their images, in batches of bounded size."""
        for new in self._made & frozenset(raw.data.schema.names):
            raise SourceError(f"{raw.path}: has a column {new!r} already; give the images another name in source.load")
        kept, found, size = list[int](), list[list[Content]](), 0
        for index, (named, contents) in enumerate(images.of(raw)):
            bad = next((i for i, content in enumerate(contents) if isinstance(content, str)), None)
            if bad is not None:
                name, text = list(self._load.columns)[bad], named.references[bad]
                on_bad_row(BadRow(raw.path, named.row, name, text and shorten(text[0]), str(contents[bad])))
                continue
            kept.append(index)
            found.append(contents)
            size += sum(len(content) for content in contents if content is not None)
            if size >= BATCH_BYTES:
                yield self._batch(raw, kept, found)
                kept, found, size = [], [], 0
        yield self._batch(raw, kept, found)

    def _batch(self, raw: RawBatch, kept: Sequence[int], found: Sequence[Sequence[Content]]) -> RawBatch:
        data = raw.data.take(pa.array(kept, pa.int64()))
        for i, new in enumerate(self._load.columns.values()):
            data = data.append_column(new, pa.array([contents[i] for contents in found], pa.binary()))
        return replace(raw, data=data, rows=raw.rows[kept])


Content = bytes | str | None  # an image, why there is none, or that none is named


class _Named(NamedTuple):
    """``row``: its ordinal in the file; ``references``: the text of each column, and the path or address it means."""

    row: int
    references: list[tuple[str, str] | None]


class _Found(NamedTuple):
    digest: str  # of the contents as they are stored
    num_bytes: int
    images: list[Content]


class _Images:
    """The images of rows in order, hashed as they come."""

    def __init__(self, found: Iterator[tuple[_Named, _Found]]) -> None:
        self._found = found
        self._hash = xxhash.xxh3_128()
        self.num_bytes = 0

    def of(self, raw: RawBatch) -> Iterator[tuple[_Named, list[Content]]]:
        """Those of a batch's rows; those of rows before that are in no batch are left out."""
        for row in raw.rows.tolist():
            for named, found in self._seen():
                if named.row == row:
                    yield named, found.images
                    break
            else:
                raise changed(raw.path)

    def finish(self) -> str:
        """The hash of all images, to the last row."""
        for _ in self._seen():
            pass
        return self._hash.hexdigest()

    def _seen(self) -> Iterator[tuple[_Named, _Found]]:
        for named, found in self._found:
            self._hash.update(found.digest.encode())
            self.num_bytes += found.num_bytes
            yield named, found


def _hash_images(named: _Named) -> _Found:
    contents: list[Content] = [None if reference is None else _content(reference[1]) for reference in named.references]
    stored = [content if isinstance(content, bytes) else str(content).encode() for content in contents]
    return _Found(hash_bytes(stored), sum(map(len, stored)), contents)


def _content(path: str) -> Content:
    try:
        return read_whole(path, file_size(path))
    except SourceError as error:
        if isinstance(error.__cause__, FileNotFoundError | IsADirectoryError | NotADirectoryError):
            return "names no file"
        raise


def _texts(raw: RawBatch, name: str) -> list[str | None]:
    index = raw.data.schema.get_field_index(name)
    if index < 0:
        raise SourceError(
            f"{raw.path}: has no column {name!r}, which source.load names; it has {shorten(raw.data.schema.names)}"
        )
    column = raw.data.column(index)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type) or pa.types.is_null(column.type)):
        raise SourceError(
            f"{raw.path}, column {name!r}: holds {column.type}; source.load takes the paths of images from it, which "
            "are text"
        )
    texts: list[str | None] = column.to_pylist()
    return texts


def _place(text: str, folder: str) -> str:
    """The path or address that a row of a file in ``folder`` means."""
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    if is_remote(text):
        return text
    if os.path.isabs(text) or not is_remote(folder):
        return os.path.join(folder, text)
    scheme, _, rest = folder.partition(SCHEME)
    return scheme + SCHEME + posixpath.normpath(posixpath.join(rest, text))
