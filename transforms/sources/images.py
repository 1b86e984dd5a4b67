"""Images: a row for each file, whose label is the folder that it is in.

Columns: ``image``, the bytes as they are stored, unless ``encode`` or ``resize`` makes new ones; ``format``, such as
``jpeg``, by the content and never by the name; ``height`` and ``width`` of these bytes, in pixels; ``label``, the name
of the file's folder; ``file``, its own name.  Every image is decoded: what Pillow cannot is a bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.images import ImageForm, require_pillow
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.slices import ahead, changed, cut_files, hash_file, read_whole, whole_file
from transforms.sources.typed import chosen, no_rows

COLUMNS = pa.schema(
    [
        ("image", pa.binary()),
        ("format", pa.string()),
        ("height", pa.int64()),
        ("width", pa.int64()),
        ("label", pa.string()),
        ("file", pa.string()),
    ]
)


class ImagesSource:
    """See ``sources.Source``.  Each file is a slice.  The options are those of ``images.ImageForm``."""

    def __init__(
        self, *, encode: str | None = None, quality: int | None = None, resize: Sequence[int] | None = None
    ) -> None:
        self._form = ImageForm(encode, quality, None if resize is None else tuple(resize))

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        require_pillow()
        return cut_files(paths, lambda path, _: [whole_file(path, named=_called(path))], target_bytes=target_bytes)

    def read(
        self,
        partition: Partition,
        *,
        columns: frozenset[str] | None = None,
        declared: Mapping[str, str] | None = None,
        on_bad_row: Callable[[BadRow], None],
    ) -> Iterator[RawBatch]:
        names = chosen("", COLUMNS.names, columns)
        for piece, found in ahead(self._row, partition.slices):
            if isinstance(found, BadRow):
                on_bad_row(found)
                yield no_rows(piece.path, COLUMNS)
            else:
                row = pa.RecordBatch.from_pylist([found], schema=COLUMNS)
                yield RawBatch(row.select(names), piece.path, np.zeros(1, np.int64))

    def _row(self, piece: FileSlice) -> dict[str, Any] | BadRow:
        content = read_whole(piece.path, piece.num_bytes)
        label, name = _called(piece.path)
        if hash_file([content], named=(label, name)) != piece.fingerprint:
            raise changed(piece.path)
        try:
            image = self._form.read(content)
        except ValueError as error:
            return BadRow(piece.path, 0, "image", None, str(error))
        return image._asdict() | {"label": label, "file": name}


def _called(path: str) -> tuple[str, str]:
    """The names of the folder and of the file: what a row says besides the content."""
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2], name
