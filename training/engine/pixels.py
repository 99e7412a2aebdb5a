"""Samples of the pixels of dense predictions, with the same probability for each pixel.

Legend: N images, K classes, H height, W width, n sampled pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.split import copy_to


class PixelSample:
    """A uniform sample without replacement of the pixels of images that arrive one after another.

    Each pixel that counts gets a random number, and those with the `size` smallest are the sample.
    The numbers depend on the seed and the image alone. So the sample depends neither on batches nor
    on processes, and memory holds at most 2 · size pixels and an image.

    Source: Cohen and Kaplan, Summarizing data using bottom-k sketches, PODC 2007.
    """

    def __init__(self, size: int, ignore_index: int | None, seed: int) -> None:
        self._size, self._ignore_index, self._seed = size, ignore_index, seed
        self._parts: list[_Part] = []
        self._limit = np.inf

    def add(self, image: int, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Add an image by its number, with logits (K, H, W) and labels (H, W)."""
        labels = labels.reshape(-1)
        counts = np.ones(len(labels), bool)
        if self._ignore_index is not None:
            counts = labels != self._ignore_index
        places = np.flatnonzero(counts)
        keys = np.random.default_rng([self._seed, image]).random(len(places))
        is_small = keys <= self._limit
        places, keys = places[is_small], keys[is_small]
        rows = logits.reshape(len(logits), -1)[:, places].T
        self._parts.append(_Part(keys, np.full(len(keys), image), places, rows, labels[places]))
        if sum(map(len, self._parts)) > 2 * self._size:
            self._shrink()

    def merge(self, other: PixelSample) -> None:
        """Add the images of another sample of the same size."""
        self._parts += other._parts
        self._shrink()

    def rows(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return logits (n, K) and labels (n,), in the order of images and pixels; n ≤ size."""
        self._shrink()
        part = self._parts[0]
        part = part.take(np.lexsort((part.places, part.images)))
        return part.logits, part.labels

    def _shrink(self) -> None:
        part = _Part.join(self._parts)
        if len(part) > self._size:
            part = part.take(np.argpartition(part.keys, self._size - 1)[: self._size])
            self._limit = part.keys.max()
        self._parts = [part]


@dataclass(frozen=True)
class _Part:
    """Pixels: random numbers, images and places in them (n,), logits (n, K), labels (n,)."""

    keys: NDArray[np.float64]
    images: NDArray[np.int64]
    places: NDArray[np.int64]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: NDArray[np.intp]) -> _Part:
        return _Part(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: list[_Part]) -> _Part:
        columns = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls))
        return cls(*columns)


def loss_pixels(
    logits: Tensor, labels: Tensor, count: int, images: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return `count` pixels of each image for a loss that is quadratic in pixels.

    Each pixel of an image, void ones too, has the same probability; so means over pixels are
    unbiased, and void pixels need no count on the device. A mean over pairs of pixels, as in
    `mmce`, contains the pairs of a pixel with itself: of n sampled pixels these are 1/n of all
    pairs. The square of such a loss is larger by at most 1/n times the mean of these pairs, and
    its root differs by the noise of the sample too.

    Without `images`, each call draws other pixels, from the random state of torch on the CPU.

    Parameters
    ----------
    logits, labels: (N, K, H, W) and (N, H, W).
    count: at most H·W are taken.
    images: positions of the images in the training set, (N,). The pixels of an image are then the
        same in each call, as the history of `crl` needs.

    Returns
    -------
    logits (N · count, K), labels (N · count,), and for each row its number in the training set,
    image · count + k, or None without `images`.
    """
    places_per_image = labels[0].numel()
    count = min(count, places_per_image)
    if images is None:
        seeds = torch.randint(2**63 - 1, (len(labels),)).tolist()
    else:
        seeds = images.tolist()
    draws = [
        np.random.default_rng(seed).choice(places_per_image, count, replace=False, shuffle=False)
        for seed in seeds
    ]
    places = copy_to(torch.from_numpy(np.stack(draws)), labels.device)
    classes = logits.shape[1]
    columns = places[:, None, :].expand(-1, classes, -1)
    rows = logits.flatten(2).gather(2, columns).movedim(1, 2).reshape(-1, classes)
    numbers = None
    if images is not None:
        offsets = torch.arange(count, device=images.device)
        numbers = (images[:, None] * count + offsets).reshape(-1)
    return rows, labels.flatten(1).gather(1, places).reshape(-1), numbers
