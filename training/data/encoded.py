"""Encoded images: decoding, and images that are decoded on access."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from training.data.pixels import Pixels, Scale, StoredImages
from training.data.split import keys_of

#: Formats that Pillow decodes by itself. Others start programs, as EPS does, or are rare.
_FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")
_CHUNK = 1000


class ImageRows(ABC):
    """The rows of image files, not decoded.

    `labels` (N,): integers or names, unchecked; `field`, their name for errors; `names`, the
    classes if the files list them.
    """

    labels: Any
    field: str
    names: Sequence[str] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, row: int) -> object:
        """Return an image: its encoded bytes, uint8 (H, W, 3), (3, H, W) or (H, W), or Pillow's.

        Raises
        ------
        OSError: the file cannot be read any more.
        """

    @abstractmethod
    def describe(self, row: int) -> str:
        """Return the name of the row for errors."""


class EncodedImages(StoredImages):
    """Encoded images, decoded on access.

    Parameters
    ----------
    shape: height and width of the images, by default of the first.
    size: height and width to which all images are scaled; None for no scaling.
    """

    def __init__(
        self,
        images: ImageRows,
        size: int | None,
        shape: tuple[int, int] | None = None,
        scale: Scale | None = None,
    ) -> None:
        self._images, self._size = images, size
        height, width = shape or self._decode_row(0).shape[:2]
        super().__init__((height, width, 3), scale)
        self._keys: NDArray[np.bytes_] | None = None

    def __len__(self) -> int:
        return len(self._images)

    def pixels(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        pixels = np.empty((len(rows), self.height, self.width, 3), dtype=np.uint8)
        for place, row in enumerate(rows.tolist()):
            image = self._decode_row(row)
            if image.shape != pixels.shape[1:]:
                raise InputError(
                    self._images.describe(row),
                    found=f"an image of {image.shape[0]}x{image.shape[1]}",
                    accepted=f"{self.height}x{self.width} as the first, or options.size",
                )
            pixels[place] = image
        return pixels

    @property
    def decoded_bytes(self) -> int:
        """The size of all images when they are decoded."""
        return len(self) * self.height * self.width * 3

    def check(self) -> None:
        """Decode every image once; raise `InputError` for the first invalid image."""
        for first in range(0, len(self), _CHUNK):
            self.pixels(np.arange(first, min(first + _CHUNK, len(self))))

    def scaled(self, scale: Scale) -> EncodedImages:
        copy = EncodedImages(self._images, self._size, (self.height, self.width), scale)
        copy._keys = self._keys
        return copy

    def decode_all(self) -> Pixels:
        """Return all images in memory."""
        return Pixels(self.pixels(np.arange(len(self))), self.scale, self.keys())

    def keys(self) -> NDArray[np.bytes_]:
        if self._keys is None:
            images = (self._images.read(row) for row in range(len(self)))
            self._keys = keys_of(_content(image) for image in images)
        return self._keys

    def _decode_row(self, row: int) -> NDArray[np.uint8]:
        field = self._images.describe(row)
        try:
            image = self._images.read(row)
        except OSError as error:
            found = error.strerror or str(error)
            raise InputError(field, found=found, accepted="a readable file") from error
        return decode(image, field, self._size)


def decode(image: object, field: str, size: int | None = None) -> NDArray[np.uint8]:
    """Return an image as RGB bytes (H, W, 3), scaled to `size` x `size` unless that is None.

    Parameters
    ----------
    image: as `ImageRows.read` returns it.

    Raises
    ------
    InputError: for `field`; bytes that are not an image, or a damaged or truncated image.
    """
    from PIL import Image, UnidentifiedImageError

    Image.init()
    formats = [name for name in _FORMATS if name in Image.OPEN]
    try:
        if isinstance(image, np.ndarray):
            plain = Image.fromarray(_height_width_channels(image, field)).convert("RGB")
        elif isinstance(image, Image.Image):
            plain = image.convert("RGB")
        elif isinstance(image, bytes):
            with Image.open(io.BytesIO(image), formats=formats) as stored:
                plain = stored.convert("RGB")
        else:
            found = "nothing" if image is None else type(image).__name__
            raise InputError(field, found=found, accepted="the bytes of an image")
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        kind = f"{len(image)} bytes" if isinstance(image, bytes) else "an image"
        is_unknown = isinstance(error, UnidentifiedImageError)
        reason = "no known format" if is_unknown else error
        raise InputError(field, found=f"{kind}: {reason}", accepted="an image") from error
    if size is not None and plain.size != (size, size):
        plain = plain.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(plain)


def _height_width_channels(values: NDArray[Any], field: str) -> NDArray[np.uint8]:
    shape = values.shape
    ends = (shape[0], shape[-1]) if values.ndim == 3 else ()
    if values.dtype != np.uint8 or 0 in shape or (values.ndim != 2 and ends.count(3) != 1):
        accepted = "uint8 (H, W), (H, W, 3) or (3, H, W); not 3 at both ends"
        raise InputError(field, found=f"{values.dtype} {shape}", accepted=accepted)
    if ends and ends[0] == 3:
        values = np.moveaxis(values, 0, 2)
    return np.ascontiguousarray(values)


def _content(image: object) -> bytes:
    if isinstance(image, bytes):
        return image
    # Arrays and images of Pillow; None is refused when it is decoded.
    return b"" if image is None else np.asarray(image).tobytes()
