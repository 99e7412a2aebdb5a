"""Random augmentation of batches of training images.

An augmentation is a function of a batch (N, C, H, W) and a CPU generator. The generator determines
the result: the same generator gives the same batch on any device. Labels do not change, so
augmentation does not suit dense labels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from recalib.errors import InputError
from training.data.split import Batch, copy_to

__all__ = ["AUGMENTATIONS", "Augmentation", "augmentation"]

Augmentation = Callable[[Batch, torch.Generator], Batch]
_PADDING = 4


def _identity(batch: Batch, generator: torch.Generator) -> Batch:
    """Return the batch unchanged."""
    return batch


def _flip(batch: Batch, generator: torch.Generator) -> Batch:
    """Mirror each image left to right with probability ½."""
    images = _images(batch)
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    mirrored = copy_to(mirrored, images.device)[:, None, None, None]
    return torch.where(mirrored, images.flip(3), images)


def _crop(batch: Batch, generator: torch.Generator) -> Batch:
    """Pad with 4 zeros on each side, and crop each image at a random offset.

    Zero is the mean of the training images after scaling.
    """
    images = _images(batch)
    count, _, height, width = images.shape
    offsets = torch.randint(0, 2 * _PADDING + 1, (2, count), generator=generator)
    down, right = copy_to(offsets, images.device)
    padded = functional.pad(images, [_PADDING] * 4)
    # A view with all crops of each image: (N, C, 9, 9, H, W).
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)
    return crops[torch.arange(count, device=images.device), :, down, right]


def _crop_flip(batch: Batch, generator: torch.Generator) -> Batch:
    """Crop, then flip, as in the papers on CIFAR."""
    return _flip(_crop(batch, generator), generator)


def _images(batch: Batch) -> Tensor:
    if not isinstance(batch, Tensor) or batch.ndim != 4 or not batch.is_floating_point():
        found = f"{batch.dtype} {tuple(batch.shape)}" if isinstance(batch, Tensor) else "several"
        raise InputError("augmentation", found=found, accepted="images (N, C, H, W), or none")
    return batch


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": _identity,
    "flip": _flip,
    "crop": _crop,
    "crop_flip": _crop_flip,
}


def augmentation(name: str) -> Augmentation:
    """Return the augmentation of this name.

    Raises
    ------
    InputError: an unknown name.
    """
    function = AUGMENTATIONS.get(name)
    if function is None:
        raise InputError("augmentation", found=repr(name), accepted=", ".join(AUGMENTATIONS))
    return function
