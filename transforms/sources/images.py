"""Images: a row for each file, whose label is the folder that it is in.

Columns: ``image``, the bytes as they are stored, unless ``encode`` or ``resize`` makes new ones; ``format``, such as
``jpeg``, by the content and never by the name; ``height`` and ``width`` of these bytes, in pixels; ``label``, the name
of the file's folder; ``file``, its own name.  Every image is decoded: what Pillow cannot is a bad row.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transforms.errors import SourceError, missing_extra
from transforms.fingerprint import read_chunks
from transforms.partition import BadRow, FileSlice, Partition, RawBatch
from transforms.sources.slices import LARGEST_VALUE, changed, cut_files, hash_file, open_file, whole_file
from transforms.sources.typed import chosen, no_rows

if TYPE_CHECKING:
    from PIL.Image import Image

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
AT_ONCE = max(2, os.cpu_count() or 1)  # files: Pillow and stores let other threads run
JPEG_MODES = ("L", "RGB")
EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


class ImagesSource:
    """See ``sources.Source``.  Each file is a slice.

    ``encode``: ``jpeg``, ``png`` or ``webp``, with ``quality`` from 1 to 100 for the first and the last.  ``resize``:
    height and width in pixels that all images get, whatever their shape was; they are PNG, if ``encode`` is not given.
    """

    def __init__(
        self, *, encode: str | None = None, quality: int | None = None, resize: Sequence[int] | None = None
    ) -> None:
        self._encode = encode or ("png" if resize else None)
        self._quality = {} if quality is None else {"quality": quality}
        self._resize = None if resize is None else (resize[1], resize[0])

    def partitions(self, paths: Sequence[str], *, target_bytes: int) -> list[Partition]:
        _pillow()
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
        for piece, found in self._rows(partition.slices):
            if isinstance(found, BadRow):
                on_bad_row(found)
                yield no_rows(piece.path, COLUMNS)
            else:
                row = pa.RecordBatch.from_pylist([found], schema=COLUMNS)
                yield RawBatch(row.select(names), piece.path, np.zeros(1, np.int64))

    def _rows(self, pieces: Sequence[FileSlice]) -> Iterator[tuple[FileSlice, dict[str, Any] | BadRow]]:
        """In order, a few of them ahead."""
        ahead = deque[tuple[FileSlice, Future[dict[str, Any] | BadRow]]]()
        pool = ThreadPoolExecutor(AT_ONCE)
        try:
            for piece in pieces:
                ahead.append((piece, pool.submit(self._row, piece)))
                if len(ahead) > 2 * AT_ONCE:
                    first, found = ahead.popleft()
                    yield first, found.result()
            for first, found in ahead:
                yield first, found.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _row(self, piece: FileSlice) -> dict[str, Any] | BadRow:
        if piece.num_bytes > LARGEST_VALUE:
            raise SourceError(f"{piece.path}: has {piece.num_bytes} bytes, and one value holds {LARGEST_VALUE} at most")
        with open_file(piece.path) as file:
            content = b"".join(read_chunks(file, piece.num_bytes + 1))
        label, name = _called(piece.path)
        if hash_file([content], named=(label, name)) != piece.fingerprint:
            raise changed(piece.path)
        try:
            image = self._decoded(content)
            format = str(image.format).lower()
            if self._encode is not None:
                content, image = self._encoded(image)
                format = self._encode
        except Exception as error:  # of a library that reads what it is given
            reason = f"is no image that Pillow can read ({str(error) or type(error).__name__})".replace("\n", " ")
            return BadRow(piece.path, 0, "image", None, reason)
        found = {"image": content, "format": format, "height": image.height, "width": image.width}
        return found | {"label": label, "file": name}

    def _decoded(self, content: bytes) -> Image:
        image: Image = _pillow().open(io.BytesIO(content))
        image.load()
        return image

    def _encoded(self, image: Image) -> tuple[bytes, Image]:
        from PIL import ImageOps

        if image.mode not in EIGHT_BITS:
            raise ValueError(f"its pixels have more than 8 bits, mode {image.mode}: leave encode and resize out")
        image = ImageOps.exif_transpose(image)
        if image.mode not in JPEG_MODES:
            alpha = "A" in image.mode or "transparency" in image.info
            image = image.convert("RGBA" if alpha and self._encode != "jpeg" else "RGB")
        if self._resize is not None:
            image = image.resize(self._resize, resample=_pillow().Resampling.BICUBIC)
        sink = io.BytesIO()
        image.save(sink, format=self._encode, **(self._quality if self._encode != "png" else {}))
        return sink.getvalue(), image


def _called(path: str) -> tuple[str, str]:
    """The names of the folder and of the file: what a row says besides the content."""
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2], name


def _pillow() -> ModuleType:
    try:
        from PIL import Image as pillow
    except ImportError as error:
        raise missing_extra("pillow", "images", "images") from error
    return pillow
