"""Random augmentation of training images, together with the labels of their pixels.

An augmentation is a sequence of transforms. A transform draws random numbers for each image of a
batch from a CPU generator, and returns a function that moves the pixels. Images and label maps are
moved by the same function, so that they stay aligned. The generator determines the result: the same
generator gives the same labels on any device, and the same images up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Generator, Tensor
from torch.nn import functional

from recalib.errors import InputError
from training.data.split import Batch, copy_to

#: Moves the pixels of (N, C, H, W): floats of images, or integers of label maps. The number is the
#: value of places outside the image.
_Move: TypeAlias = Callable[[Tensor, int], Tensor]
#: Draws a move for images (N, C, H, W).
_Transform: TypeAlias = Callable[[torch.Size, Generator], _Move]

_PADDING = 4


def _flip(shape: torch.Size, generator: Generator) -> _Move:
    """Mirror each image left to right with probability ½."""
    mirrored = torch.rand(shape[0], generator=generator) < 0.5

    def move(values: Tensor, _outside: int) -> Tensor:
        where = copy_to(mirrored, values.device)[:, None, None, None]
        return torch.where(where, values.flip(3), values)

    return move


def _crop(shape: torch.Size, generator: Generator) -> _Move:
    """Pad by 4 on each side, and crop each image at a random offset."""
    count, _, height, width = shape
    offsets = torch.randint(0, 2 * _PADDING + 1, (2, count), generator=generator)

    def move(values: Tensor, outside: int) -> Tensor:
        down, right = copy_to(offsets, values.device)
        padded = functional.pad(values, [_PADDING] * 4, value=outside)
        # A view with all crops of each image: (N, C, 9, 9, H, W).
        crops = padded.unfold(2, height, 1).unfold(3, width, 1)
        return crops[torch.arange(count, device=values.device), :, down, right]

    return move


def _scale(shape: torch.Size, generator: Generator) -> _Move:
    """Scale each image by a factor in [½, 2], and crop or pad it at random to its size.

    The logarithm of the factor is uniform, so that enlarging is as likely as reducing. Images are
    interpolated linearly, and labels take the nearest pixel.
    """
    count, _, height, width = shape
    factors = 4 ** (torch.rand(count, generator=generator, dtype=torch.float64) - 0.5)
    offsets = torch.rand(2, count, generator=generator, dtype=torch.float64)
    down = _positions(height, factors, offsets[0])
    right = _positions(width, factors, offsets[1])

    def move(values: Tensor, outside: int) -> Tensor:
        rows = copy_to(down, values.device)[:, None, :, None]
        columns = copy_to(right, values.device)[:, None, None, :]
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        moved = _resample(_resample(values, rows, 2), columns, 3)
        return moved.masked_fill(~inside, outside)

    return move


def _positions(size: int, factors: Tensor, offsets: Tensor) -> Tensor:
    """Return where the centres of the new pixels were, (N, size); pixel k covers [k, k + 1).

    Parameters
    ----------
    offsets: in [0, 1), the place of the scaled image relative to the frame, or of the frame in it.
    """
    centres = torch.arange(size, dtype=torch.float64) + 0.5
    start = offsets * size * (1 - factors)
    return (centres - start[:, None]) / factors[:, None]


def _resample(values: Tensor, positions: Tensor, dim: int) -> Tensor:
    """Return values at positions along an axis: interpolated floats, or the nearest integers."""
    last = values.shape[dim] - 1
    if not values.is_floating_point():
        return values.take_along_dim(positions.floor().long().clamp(0, last), dim)
    centred = positions - 0.5
    low = centred.floor()
    first, second = (
        values.take_along_dim(index.long().clamp(0, last), dim) for index in (low, low + 1)
    )
    return torch.lerp(first, second, (centred - low).to(values.dtype))


#: Transforms in order. On small images `crop_flip` is that of the papers on CIFAR.
AUGMENTATIONS: dict[str, tuple[_Transform, ...]] = {
    "none": (),
    "flip": (_flip,),
    "crop": (_crop,),
    "crop_flip": (_crop, _flip),
    "scale_flip": (_scale, _flip),
}


class Augmentation:
    """Augments batches of images, with the labels of pixels where labels are (N, H, W).

    Places outside an image are 0, the mean of the training images after scaling, and void in labels
    of pixels. Labels (N,) do not change.

    Parameters
    ----------
    transforms: a value of `AUGMENTATIONS`.
    ignore_index: the label of void pixels.
    """

    def __init__(self, transforms: tuple[_Transform, ...], ignore_index: int | None) -> None:
        self._transforms, self._ignore_index = transforms, ignore_index

    def __call__(self, inputs: Batch, labels: Tensor, generator: Generator) -> tuple[Batch, Tensor]:
        """Return augmented inputs and their labels, on the same devices.

        Raises
        ------
        InputError: inputs that are not float images (N, C, H, W); labels of pixels of another size,
            or without a void label for places outside.
        """
        if not self._transforms:
            return inputs, labels
        images, void = _images(inputs), self._ignore_index
        is_dense = labels.ndim > 1
        if is_dense and labels.shape[1:] != images.shape[2:]:
            found = f"images {tuple(images.shape[2:])} and labels {tuple(labels.shape[1:])}"
            raise InputError("augmentation", found=found, accepted="one size, or none")
        if is_dense and void is None and set(self._transforms) - {_flip}:
            found = "labels of pixels, and no void label for places outside the image"
            accepted = "flip or none; or a void label, data.options.ignore_index"
            raise InputError("augmentation", found=found, accepted=accepted)
        for transform in self._transforms:
            move = transform(images.shape, generator)
            images = move(images, 0)
            if is_dense:
                labels = move(labels[:, None], void or 0)[:, 0]
        return images, labels


def _images(batch: Batch) -> Tensor:
    if not isinstance(batch, Tensor) or batch.ndim != 4 or not batch.is_floating_point():
        found = f"{batch.dtype} {tuple(batch.shape)}" if isinstance(batch, Tensor) else "several"
        raise InputError("augmentation", found=found, accepted="images (N, C, H, W), or none")
    return batch


def augmentation(name: str, ignore_index: int | None = None) -> Augmentation:
    """Return the augmentation of this name.

    Parameters
    ----------
    ignore_index: the label of void pixels, which places outside an image get.

    Raises
    ------
    InputError: an unknown name.
    """
    transforms = AUGMENTATIONS.get(name)
    if transforms is None:
        raise InputError("augmentation", found=repr(name), accepted=", ".join(AUGMENTATIONS))
    return Augmentation(transforms, ignore_index)
