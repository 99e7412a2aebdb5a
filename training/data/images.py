"""Encoded images in Parquet files."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.compute
import torch
from numpy.typing import NDArray
from torch import Tensor

from recalib.errors import InputError
from recalib.files.base import translate_errors
from recalib.files.parquet import open_table
from recalib.options import check_option
from training.data.base import Files, Parts, Source, checked_labels
from training.data.split import Inputs, Split, keys_of

__all__ = ["Encoded", "Images", "Pixels", "Scale", "Stored", "decode", "read_table"]

#: Largest height and width for scaling, because a request may name any number.
_MAX_SIZE = 4096


@dataclass
class Images(Source):
    """Encoded RGB images (JPEG, PNG, ...), one in each row of a Parquet file.

    The column holds bytes, or structs with a field ``bytes``, as in Hugging Face datasets.

    Models receive float32 (N, 3, H, W): each channel minus its mean over the training images,
    divided by its standard deviation. If the decoded images of a file fit into `memory` bytes,
    they are decoded once and kept in memory. Otherwise the encoded images stay in memory and each
    batch is decoded when it is used.

    Options: `train`, `test` and optionally `validation`: files; `image` and `label`, the names of
    the columns; `size`, height and width for bilinear scaling, by default none: then all images
    must have the same size; `classes`, by default the largest training label plus 1.
    """

    train: str
    test: str
    validation: str | None = None
    image: str = "image"
    label: str = "label"
    size: int | None = None
    classes: int | None = None
    memory: int = 2**31

    def __post_init__(self) -> None:
        if self.classes is not None:
            check_option("classes", self.classes, self.classes >= 2, "2 or more")
        if self.size is not None:
            check_option("size", self.size, 1 <= self.size <= _MAX_SIZE, f"1 to {_MAX_SIZE}")
        check_option("memory", self.memory, self.memory >= 0, "0 or more")

    def read(self, files: Files) -> Parts:
        train, labels = self._read(files, "train", self.classes, None)
        classes = self.classes or int(labels.max()) + 1
        scale = train.measured()
        parts = {"train": Split.with_all_rows(train.scaled(scale), labels)}
        size = (train.height, train.width)
        for name in ("validation", "test"):
            if getattr(self, name) is not None:
                inputs, labels = self._read(files, name, classes, size)
                parts[name] = Split.with_all_rows(inputs.scaled(scale), labels)
        return Parts(
            parts["train"], parts.get("validation"), parts["test"], classes, {"channels": 3}
        )

    def _read(
        self, files: Files, name: str, classes: int | None, size: tuple[int, int] | None
    ) -> tuple[Stored, NDArray[np.int64]]:
        """Return the images of a file, of `size` (height, width) unless None, and the labels."""
        path = files.path(getattr(self, name), name)
        table = read_table(path, [self.image, self.label], f"data.options.{name}")
        labels = checked_labels(table[self.label], f"{path.name}: {self.label}", classes)
        encoded = _bytes(table[self.image]).to_pylist()
        where = f"{path.name}: {self.image}"
        if size is None:
            size = decode(encoded[0], 0, where, self.size).shape[:2]
        inputs = Encoded(encoded, where, size, self.size)
        if len(encoded) * size[0] * size[1] * 3 <= self.memory:
            return inputs.decoded(), labels
        inputs.check()
        return inputs, labels


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each channel in [0, 1], for standardisation."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    def applied(self, pixels_nhwc: NDArray[np.uint8]) -> Tensor:
        """Return float32 (N, 3, H, W) of bytes (N, H, W, 3)."""
        x = torch.from_numpy(pixels_nhwc).permute(0, 3, 1, 2).float().div_(255)
        mean, deviation = (
            torch.tensor(values)[:, None, None] for values in (self.mean, self.deviation)
        )
        # Channels stay last in memory: CPU convolutions are faster with it.
        return x.sub_(mean).div_(deviation)


_PLAIN = Scale((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


class Stored(Inputs):
    """Images of one size, available as bytes."""

    def __init__(self, height: int, width: int, scale: Scale = _PLAIN) -> None:
        self.height, self.width, self.scale = height, width, scale

    @abstractmethod
    def pixels(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return these images' bytes, (N, H, W, 3)."""

    @abstractmethod
    def scaled(self, scale: Scale) -> Stored:
        """Return the same images with this scale."""

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        return self.scale.applied(self.pixels(rows))

    def measured(self) -> Scale:
        """Return mean and standard deviation of each channel over all images, in [0, 1].

        Computed from counts of the 256 values, so that the order of summation does not matter. A
        constant channel is divided by 1.
        """
        counts = np.zeros((3, 256))
        for first in range(0, len(self), 1000):
            pixels = self.pixels(np.arange(first, min(first + 1000, len(self))))
            counts += [
                np.bincount(pixels[..., channel].ravel(), minlength=256) for channel in range(3)
            ]
        shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
        mean = shares @ values
        deviation = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
        deviation[deviation < 1 / 255] = 1
        return Scale(tuple(mean.tolist()), tuple(deviation.tolist()))


class Pixels(Stored):
    """Images as bytes in memory, (N, H, W, 3)."""

    def __init__(
        self,
        values: NDArray[np.uint8],
        scale: Scale = _PLAIN,
        keys: NDArray[np.bytes_] | None = None,
    ) -> None:
        super().__init__(values.shape[1], values.shape[2], scale)
        self._values, self._keys = values, keys

    def __len__(self) -> int:
        return len(self._values)

    def pixels(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self._values[rows]

    def scaled(self, scale: Scale) -> Pixels:
        return Pixels(self._values, scale, self._keys)

    def keys(self) -> NDArray[np.bytes_]:
        return keys_of(self._values) if self._keys is None else self._keys


class Encoded(Stored):
    """Encoded images, decoded on access."""

    def __init__(
        self,
        encoded: Sequence[bytes | None],
        where: str,
        shape: tuple[int, int],
        size: int | None,
        scale: Scale = _PLAIN,
    ) -> None:
        super().__init__(*shape, scale)
        self._encoded, self._where, self._size = encoded, where, size

    def __len__(self) -> int:
        return len(self._encoded)

    def pixels(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        pixels = np.empty((len(rows), self.height, self.width, 3), dtype=np.uint8)
        for place, row in enumerate(rows.tolist()):
            image = decode(self._encoded[row], row, self._where, self._size)
            if image.shape != pixels.shape[1:]:
                raise InputError(
                    f"{self._where}[{row}]",
                    found=f"an image of {image.shape[0]}x{image.shape[1]}",
                    accepted=f"{self.height}x{self.width} as the first, or options.size",
                )
            pixels[place] = image
        return pixels

    def check(self) -> None:
        """Decode every image once; raise `InputError` for the first invalid image."""
        for first in range(0, len(self), 1000):
            self.pixels(np.arange(first, min(first + 1000, len(self))))

    def scaled(self, scale: Scale) -> Encoded:
        shape = (self.height, self.width)
        return Encoded(self._encoded, self._where, shape, self._size, scale)

    def decoded(self) -> Pixels:
        """Return all images in memory."""
        return Pixels(self.pixels(np.arange(len(self))), self.scale, self.keys())

    def keys(self) -> NDArray[np.bytes_]:
        return keys_of([image or b"" for image in self._encoded])


def _bytes(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Return the field ``bytes`` of a struct column that has it; any other column unchanged."""
    if pyarrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        return pyarrow.compute.struct_field(column, "bytes")
    return column


def read_table(path: Path, columns: Sequence[str], field: str) -> pyarrow.Table:
    """Return some columns of a Parquet file, at least one row.

    Raises
    ------
    InputError: not a Parquet file, a damaged file, a missing column, or no rows.
    TooLargeError: it declares far more data than its size, as in uploads (`recalib.files.parquet`).
    """
    missing = table = None
    try:
        with path.open("rb") as stream, translate_errors("parquet"):
            file = open_table(stream, columns)
            names = file.schema_arrow.names
            missing = next((column for column in columns if column not in names), None)
            if missing is None:
                table = file.read(columns=list(columns))
    except InputError as error:
        found = f"{path.name}: {error.found}"
        raise type(error)(field, found=found, accepted=error.accepted) from error
    except OSError as error:
        found = f"{path.name}: {str(error).splitlines()[0]}"
        raise InputError(field, found=found, accepted="a Parquet file") from error
    if table is None:
        accepted = f"one of its columns: {', '.join(names)}"
        raise InputError(field, found=f"no column {missing!r}", accepted=accepted)
    if not table.num_rows:
        raise InputError(field, found=f"{path.name} without rows", accepted="one or more")
    return table


def decode(encoded: object, row: int, where: str, size: int | None = None) -> NDArray[np.uint8]:
    """Return one image as RGB bytes (H, W, 3), scaled to `size` x `size` unless that is None.

    Raises
    ------
    InputError: bytes that are not an image, or a damaged or truncated image; names the row.
    """
    from PIL import Image

    if not isinstance(encoded, bytes):
        found = "nothing" if encoded is None else type(encoded).__name__
        raise InputError(f"{where}[{row}]", found=found, accepted="the bytes of an image")
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            plain = image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(
            f"{where}[{row}]", found=f"{len(encoded)} bytes: {error}", accepted="an image"
        ) from error
    if size is not None and plain.size != (size, size):
        plain = plain.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(plain)
