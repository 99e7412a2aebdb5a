"""Fixed features of images, on which a small network learns in seconds.

The features are those of Coates, Ng and Lee, An analysis of single-layer networks in unsupervised
feature learning, AISTATS 2011, with filters that are random patches: patches of the training images
are normalised and whitened, every patch of an image is compared with `_FILTERS` of them, the
rectified responses of either sign are averaged over the four quadrants, and principal components
reduce them. Filters, whitening and components come from the training images alone.
"""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from recalib.files import write_atomically
from training.data import Split, Splits
from training.data.arrays import Array
from training.data.corruption import corrupted
from training.data.pixels import StoredImages

#: Numbers in a feature vector.
COMPONENTS = 256
_FILTERS = 256
#: Height and width of a patch, and the distance between patches of an image.
_PATCH, _STRIDE = 6, 2
#: Responses below this are 0.
_THRESHOLD = 0.25
#: Patches that whitening is estimated from.
_PATCHES = 50_000
#: Added to the variance of a patch, in units of (1/255)², and to the eigenvalues of whitening.
_VARIANCE, _WHITENING = 10 / 255**2, 0.1
_CHUNK = 500


class Extractor:
    """Computes features of images; `train` determines the filters. Results are kept in `cache`."""

    def __init__(self, train: Split, cache: Path) -> None:
        self._train, self._cache = train, cache

    def split(self, images: Split) -> Split:
        """Return the split with features instead of images."""
        return Split.with_all_rows(Features(images, self), images.labels)

    def features(self, images: Split) -> NDArray[np.float32]:
        """Return the features (N, `COMPONENTS`), fewer for few training images.

        Over the training images they have mean 0 and, on average, variance 1.
        """
        sizes = (_FILTERS, COMPONENTS, _PATCH, _STRIDE, _PATCHES)
        options = (*sizes, _THRESHOLD, _VARIANCE, _WHITENING)
        key = sha256(f"{self._train.digest} {images.digest} {options}".encode()).hexdigest()[:16]
        path = self._cache / f"features-{key}.npy"
        if not path.is_file():
            mean, components = self._components
            buffer = io.BytesIO()
            np.save(buffer, (self._responses(images) - mean) @ components)
            self._cache.mkdir(parents=True, exist_ok=True)
            write_atomically(path, buffer.getvalue())
        return np.asarray(np.load(path), dtype=np.float32)

    @cached_property
    def _filters(self) -> tuple[Tensor, Tensor]:
        """Return kernels (F, 3, P, P) for normalised patches, and the responses to their mean."""
        rng = np.random.default_rng(0)
        count = min(len(self._train), _PATCHES // 10)
        images = _images(self._train.subset(np.sort(rng.permutation(len(self._train))[:count])))
        patches = functional.unfold(images, _PATCH).transpose(1, 2)
        drawn = rng.integers(0, patches.shape[1], (count, max(1, _PATCHES // count)))
        patches = patches[torch.arange(count)[:, None], torch.from_numpy(drawn)].flatten(0, 1)
        patches = patches - patches.mean(dim=1, keepdim=True)
        patches /= (patches.var(dim=1, correction=0, keepdim=True) + _VARIANCE).sqrt()
        mean = patches.mean(dim=0)
        values, vectors = torch.linalg.eigh(torch.cov(patches.T))
        whitening = vectors @ torch.diag((values + _WHITENING).rsqrt()) @ vectors.T
        chosen = torch.from_numpy(rng.permutation(len(patches))[:_FILTERS])
        filters = functional.normalize((patches[chosen] - mean) @ whitening, dim=1) @ whitening
        return filters.unflatten(1, (-1, _PATCH, _PATCH)), filters @ mean

    def _responses(self, images: Split) -> NDArray[np.float32]:
        kernels, offsets = self._filters
        parts = []
        for first in range(0, len(images), _CHUNK):
            chunk = images.subset(range(first, min(first + _CHUNK, len(images))))
            x = _images(chunk)
            mean = functional.avg_pool2d(x.mean(dim=1, keepdim=True), _PATCH, _STRIDE)
            square = functional.avg_pool2d((x**2).mean(dim=1, keepdim=True), _PATCH, _STRIDE)
            deviation = ((square - mean**2).clamp(min=0) + _VARIANCE).sqrt()
            response = functional.conv2d(x, kernels, stride=_STRIDE)
            response = (response - mean * kernels.sum(dim=(1, 2, 3))[:, None, None]) / deviation
            response -= offsets[:, None, None]
            sides = [torch.relu(sign * response - _THRESHOLD) for sign in (1, -1)]
            pooled = functional.adaptive_avg_pool2d(torch.cat(sides, dim=1), 2)
            parts.append(pooled.flatten(1).numpy())
        return np.concatenate(parts)

    @cached_property
    def _components(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the mean of responses, and principal components (D, `COMPONENTS`), scaled."""
        responses = self._responses(self._train)
        values, vectors = np.linalg.eigh(np.cov(responses.T.astype(np.float64)))
        count = min(COMPONENTS, len(self._train) - 1)
        scale = np.sqrt(values[-count:].mean())
        components = (vectors[:, : -count - 1 : -1] / scale).astype(np.float32)
        return responses.mean(axis=0), components


class Features(Array):
    """Feature vectors (N, D) of images."""

    def __init__(self, images: Split, extractor: Extractor) -> None:
        super().__init__(extractor.features(images))
        self._images, self._extractor = images, extractor

    def corrupted(self, rows: NDArray[np.int64], name: str, severity: int) -> Split:
        """Return the features of these images with a corruption."""
        return self._extractor.split(corrupted(self._images.subset(rows), name, severity))


def feature_splits(splits: Splits, cache: Path) -> Splits:
    """Return splits of images as splits of their features; fewer if there are few images."""
    extractor = Extractor(splits.train, cache)
    train, validation, test = (
        extractor.split(split) for split in (splits.train, splits.validation, splits.test)
    )
    assert isinstance(train.inputs, Features)
    facts = {"features": train.inputs.values.shape[1]}
    return replace(splits, train=train, validation=validation, test=test, facts=facts)


def _images(split: Split) -> Tensor:
    """Return images (N, 3, H, W) in [0, 1]."""
    assert isinstance(split.inputs, StoredImages)
    pixels = torch.from_numpy(split.inputs.pixels(split.rows))
    return pixels.permute(0, 3, 1, 2).float() / 255
