"""Synthetic segmentation data: shapes in noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.core.options import check_option
from training.data.arrays import Array
from training.data.base import Files, Parts, Source
from training.data.split import Split

#: Classes 1, 2 and 3; class 0 is the background.
SHAPES = ("disc", "square", "cross")
#: Drawing takes about 30 bytes a pixel, and a request may name any number of pixels.
_MAX_PIXELS = 2**27


@dataclass
class Shapes(Source):
    """Synthetic images (N, 1, S, S) with a class for each pixel, (N, S, S).

    An image has one to three shapes with normal noise. Each shape is a disc, a square or an upright
    cross of intensity ½, 1 or 1½; later shapes cover earlier shapes. At low intensity and at edges
    the class is uncertain, so that there is something to calibrate. Most pixels are background.

    Options: `train`, `validation`, `test`, numbers of images; `size` S ≥ 16; `noise`, its standard
    deviation; `seed`. At most 2^27 pixels in all.
    """

    train: int = 600
    validation: int = 200
    test: int = 400
    size: int = 32
    noise: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            check_option(name, getattr(self, name), getattr(self, name) >= 1, "1 or more")
        check_option("size", self.size, self.size >= 16, "16 or more")
        pixels = (self.train + self.validation + self.test) * self.size**2
        check_option("size", self.size, pixels <= _MAX_PIXELS, "at most 2^27 places in all images")
        check_option("noise", self.noise, self.noise >= 0, "0 or more")
        check_option("seed", self.seed, self.seed >= 0, "0 or more")

    def read(self, files: Files) -> Parts:
        train, validation, test = (
            self._sample(count, np.random.default_rng([self.seed, index]))
            for index, count in enumerate((self.train, self.validation, self.test))
        )
        return Parts(train, validation, test, 1 + len(SHAPES), {"channels": 1})

    def _sample(self, count: int, rng: np.random.Generator) -> Split:
        labels = np.zeros((count, self.size, self.size), dtype=np.int64)
        images = np.zeros(labels.shape)
        for image, label in zip(images, labels, strict=True):
            for _ in range(rng.integers(1, 4)):
                kind, strength = rng.integers(len(SHAPES)), rng.integers(1, 4) / 2
                inside = _inside(int(kind), rng, self.size)
                image[inside], label[inside] = strength, 1 + kind
        images += self.noise * rng.standard_normal(images.shape)
        return Split.with_all_rows(Array(images[:, None]), labels)


def _inside(kind: int, rng: np.random.Generator, size: int) -> NDArray[np.bool_]:
    """Return the mask (S, S) of a shape of this kind, with random position and size."""
    radius = rng.uniform(size / 8, size / 4)
    down, right = rng.uniform(radius, size - radius, 2)
    y, x = np.abs(np.arange(size)[:, None] - down), np.abs(np.arange(size)[None, :] - right)
    inside: NDArray[np.bool_]
    if SHAPES[kind] == "disc":
        inside = x**2 + y**2 <= radius**2
    elif SHAPES[kind] == "square":
        inside = (x <= 0.8 * radius) & (y <= 0.8 * radius)
    else:
        inside = ((x <= radius / 3) & (y <= radius)) | ((y <= radius / 3) & (x <= radius))
    return inside
