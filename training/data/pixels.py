"""Images of one size as bytes, and how they become the input of a model."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.stats.groups import group_counts
from training.data.split import Inputs, copy_to, keys_of, rows_of, tensor_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: `standardise`: each channel minus its mean over the training images, divided by its standard
#: deviation; `imagenet`: the same with ImageNet's numbers, as pretrained networks expect; `unit`:
#: in [0, 1]; `none`: 0 to 255.
Normalisation: TypeAlias = Literal["standardise", "imagenet", "unit", "none"]

#: Images that are read at a time to measure them.
_CHUNK = 1000


class Scale(NamedTuple):
    """Converts bytes to (bytes / `divisor` − mean) / deviation, for each channel."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    divisor: float = 255.0

    def applied(self, pixels_nhwc: Tensor) -> Tensor:
        """Return float32 (N, C, H, W) of bytes (N, H, W, C), on the same device."""
        x = pixels_nhwc.permute(0, 3, 1, 2).float().div_(self.divisor)
        mean, deviation = (
            copy_to(x.new_tensor(values, device="cpu"), x.device)[:, None, None]
            for values in (self.mean, self.deviation)
        )
        # Channels stay last in memory: CPU convolutions are faster with it.
        return x.sub_(mean).div_(deviation)


_IMAGENET = Scale((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class StoredImages(Inputs):
    """Images of one size, available as bytes."""

    def __init__(self, shape: tuple[int, int, int], scale: Scale | None = None) -> None:
        self.height, self.width, self.channels = shape
        self.scale = scale or Scale((0.0,) * self.channels, (1.0,) * self.channels)

    @abstractmethod
    def pixels(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return these images' bytes, (N, H, W, C)."""

    @abstractmethod
    def scaled(self, scale: Scale) -> StoredImages:
        """Return the same images with this scale."""

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        return self.scale.applied(tensor_of(self.pixels(rows)))

    def measured(self) -> Scale:
        """Return mean and standard deviation of each channel over all images, in [0, 1].

        Computed from counts of the 256 values, so that the order of summation does not matter. A
        constant channel is divided by 1.
        """
        counts = np.zeros((self.channels, 256))
        for first in range(0, len(self), _CHUNK):
            pixels = self.pixels(np.arange(first, min(first + _CHUNK, len(self))))
            counts += [
                group_counts(pixels[..., channel].ravel(), 256) for channel in range(self.channels)
            ]
        shares, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
        mean = shares @ values
        deviation = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
        deviation[deviation < 1 / 255] = 1
        return Scale(tuple(mean.tolist()), tuple(deviation.tolist()))


class Pixels(StoredImages):
    """Images as bytes in memory, (N, H, W, C); on a GPU, batches are made there."""

    def __init__(
        self,
        values: NDArray[np.uint8] | Tensor,
        scale: Scale | None = None,
        keys: NDArray[np.bytes_] | None = None,
    ) -> None:
        height, width, channels = values.shape[1:]
        super().__init__((height, width, channels), scale)
        self._values, self._keys = tensor_of(values), keys

    def __len__(self) -> int:
        return len(self._values)

    @property
    def device(self) -> torch.device:
        return self._values.device

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    def to(self, device: torch.device) -> Pixels:
        return Pixels(self._values.to(device), self.scale, self.keys())

    def pixels(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return rows_of(self._values, rows).cpu().numpy()

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        return self.scale.applied(rows_of(self._values, rows))

    def scaled(self, scale: Scale) -> Pixels:
        return Pixels(self._values, scale, self._keys)

    def keys(self) -> NDArray[np.bytes_]:
        if self._keys is None:
            self._keys = keys_of(self._values.cpu().numpy())
        return self._keys


def scale_of(normalise: Normalisation, train: StoredImages) -> Scale:
    """Return the scale of the option `normalise` for these training images.

    Raises
    ------
    InputError: `imagenet` for images without three channels.
    """
    if normalise == "standardise":
        return train.measured()
    if normalise == "imagenet":
        if train.channels != 3:
            found = f"imagenet for {train.channels} channels"
            raise InputError("data.options.normalise", found=found, accepted="3 channels")
        return _IMAGENET
    zeros, ones = (0.0,) * train.channels, (1.0,) * train.channels
    return Scale(zeros, ones, 255.0 if normalise == "unit" else 1.0)
