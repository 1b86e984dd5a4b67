"""One image: looked at as a whole, and given the form that is asked for."""

from __future__ import annotations

import base64
import functools
import io
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from transforms.errors import ConfigError, missing_extra

if TYPE_CHECKING:
    from PIL.Image import Image

JPEG_MODES = ("L", "RGB")
THUMBNAIL = 96  # pixels, of the longer side
SMALL_BYTES = 32 << 10
_STARTS = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n": "png", b"GIF8": "gif", b"RIFF": "webp"}
EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


class ReadImage(NamedTuple):
    """``image``: encoded bytes; ``format``: theirs, in small letters, by the content; ``height``, ``width``: pixels."""

    image: bytes
    format: str
    height: int
    width: int


@dataclass(frozen=True)
class ImageForm:
    """What images become; as they are, unless something is given.

    ``encode``: ``jpeg``, ``png`` or ``webp``, with ``quality`` from 1 to 100 for the first and the last.  ``resize``:
    height and width in pixels that all images get, whatever their shape was; they are PNG, if ``encode`` is not given.
    """

    encode: str | None = None
    quality: int | None = None
    resize: tuple[int, ...] | None = None

    def read(self, content: bytes) -> ReadImage:
        """Decodes the image, all of it.  Raises ValueError, whose text tells what is wrong with it."""
        encode = self.encode or ("png" if self.resize else None)
        try:
            image: Image = require_pillow().open(io.BytesIO(content))
            image.load()
            if encode is None:
                return ReadImage(content, str(image.format).lower(), image.height, image.width)
            return self._encoded(image, encode)
        except Exception as error:  # of a library that reads what it is given
            reason = f"is no image that Pillow can read ({str(error) or type(error).__name__})".replace("\n", " ")
            raise ValueError(reason) from error

    def _encoded(self, image: Image, encode: str) -> ReadImage:
        from PIL import ImageOps

        if image.mode not in EIGHT_BITS:
            raise ValueError(f"its pixels have more than 8 bits, mode {image.mode}: leave encode and resize out")
        image = ImageOps.exif_transpose(image)
        if image.mode not in JPEG_MODES:
            alpha = "A" in image.mode or "transparency" in image.info
            image = image.convert("RGBA" if alpha and encode != "jpeg" else "RGB")
        if self.resize is not None:
            height, width = self.resize
            image = image.resize((width, height), resample=require_pillow().Resampling.BICUBIC)
        saved: dict[str, Any] = {} if self.quality is None or encode == "png" else {"quality": self.quality}
        sink = io.BytesIO()
        image.save(sink, format=encode, **saved)
        return ReadImage(sink.getvalue(), encode, image.height, image.width)


@functools.cache
def require_pillow() -> ModuleType:
    """``PIL.Image``.  Raises ConfigError when it is not installed."""
    try:
        from PIL import Image as pillow
    except ImportError as error:
        raise missing_extra("pillow", "images", "images") from error
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")  # an image is read, or it is a bad row
    return pillow


def thumbnail(content: bytes) -> str | None:
    """A small picture of an encoded image as a ``data:`` address; None where it is no image, or is damaged.

    Without Pillow, an image that is small already is taken as it is.
    """
    kind = next((kind for start, kind in _STARTS.items() if content.startswith(start)), None)
    if kind is None:
        return None
    try:
        image: Image = require_pillow().open(io.BytesIO(content))
        image.thumbnail((THUMBNAIL, THUMBNAIL))
        sink = io.BytesIO()
        image.convert("RGBA" if "A" in image.mode or image.mode == "P" else "RGB").save(sink, format="png")
        kind, content = "png", sink.getvalue()
    except ConfigError:
        if len(content) > SMALL_BYTES:
            return None
    except Exception:  # of a library that reads what it is given
        return None
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
