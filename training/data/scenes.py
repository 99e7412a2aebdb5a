"""Scenes with a class for each pixel, made of labelled images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recalib.core.options import check_option
from recalib.errors import InputError
from recalib.metrics.dense import boundary_band
from training.data.base import Files, Parts, Source, checked_labels
from training.data.encoded import ImageRows, decode
from training.data.pixels import Pixels, scale_of
from training.data.split import Split
from training.data.tables import TableImages

#: The label of void pixels.
_VOID = 255
#: Places of all scenes; a request may name any number.
_MAX_PIXELS = 2**27
#: One of this number of training images is for validation scenes.
_VALIDATION = 10


@dataclass
class Scenes(Source):
    """Scenes of labelled images such as CIFAR-10, with a class for each pixel.

    A scene has `regions` regions: the pixels that are nearest to one of as many random points. Each
    region has a random class, and shows a random image of this class, which is shifted at random
    and mirrored at its edges. Pixels at most `border` from another region are void, with label 255.
    The textures are real; the shapes are not.

    Scenes of different splits share no image: one in ten training images is for validation scenes.
    Models receive float32 (N, 3, S, S), standardised as `images`.

    Options: `train` and `test`: Parquet or Arrow files of encoded images; `image` and `label`, the
    names of the columns; `scenes`, the numbers of training, validation and test scenes; `labels`,
    the labels of the images to use, which become the classes 0, 1, ..., by default all; `size`
    S ≥ 16; `regions` ≥ 1; `border` ≥ 0; `seed`. At most 2^27 pixels in all.
    """

    train: str
    test: str
    image: str = "image"
    label: str = "label"
    scenes: list[int] = field(default_factory=lambda: [600, 200, 200])
    labels: list[int] | None = None
    size: int = 64
    regions: int = 4
    border: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        counts, size = self.scenes, self.size
        if len(counts) != 3 or min(counts) < 1:
            accepted = "three numbers ≥ 1: training, validation and test scenes"
            raise InputError("options.scenes", found=f"{counts}", accepted=accepted)
        check_option("size", size, size >= 16, "16 or more")
        check_option(
            "size", size, sum(counts) * size**2 <= _MAX_PIXELS, "at most 2^27 places in all scenes"
        )
        check_option("regions", self.regions, 1 <= self.regions <= 100, "1 to 100")
        check_option("border", self.border, 0 <= self.border < size, "0 or more, below size")
        check_option("seed", self.seed, self.seed >= 0, "0 or more")
        labels = self.labels
        if labels is not None and not len(set(labels)) == len(labels) >= 2:
            accepted = "2 or more different labels"
            raise InputError("options.labels", found=f"{labels}", accepted=accepted)

    def read(self, files: Files) -> Parts:
        train, test = (self._open(files, name) for name in ("train", "test"))
        labels = self.labels or list(
            range(int(checked_labels(train.labels, train.field).max()) + 1)
        )
        order = np.random.default_rng([self.seed, 3]).permutation(len(train))
        held_out, others = np.split(order, [len(train) // _VALIDATION])
        tables = (train, others), (train, held_out), (test, np.arange(len(test)))
        parts = [self._draw(number, *table, labels) for number, table in enumerate(tables)]
        scale = scale_of("standardise", parts[0][0])
        splits = [Split.with_all_rows(pixels.scaled(scale), truth) for pixels, truth in parts]
        return Parts(
            splits[0], splits[1], splits[2], len(labels), {"channels": 3}, ignore_index=_VOID
        )

    def _open(self, files: Files, name: str) -> TableImages:
        path = files.path(getattr(self, name), name)
        return TableImages([path], self.image, self.label, f"data.options.{name}")

    def _draw(
        self, number: int, table: ImageRows, rows: NDArray[np.intp], labels: Sequence[int]
    ) -> tuple[Pixels, NDArray[np.int64]]:
        """Return the scenes of a split, (N, S, S, 3), and their classes, (N, S, S).

        Parameters
        ----------
        number: of the split.
        rows: rows of the table to use.
        labels: of the images, in the order of the classes.
        """
        truth = checked_labels(table.labels, table.field)
        by_class = [rows[truth[rows] == label] for label in labels]
        for label, members in zip(labels, by_class, strict=True):
            if not len(members):
                found = f"no image of label {label} in {table.field}"
                raise InputError("data.options.labels", found=found, accepted="one or more")
        rng = np.random.default_rng([self.seed, number])
        scenes = [self._scene(table, by_class, rng) for _ in range(self.scenes[number])]
        images, classes = zip(*scenes, strict=True)
        return Pixels(np.stack(images)), np.stack(classes)

    def _scene(
        self, table: ImageRows, by_class: Sequence[NDArray[np.intp]], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        size = self.size
        image, classes = np.empty((size, size, 3), np.uint8), np.empty((size, size), np.int64)
        points = rng.uniform(0, size, (self.regions, 2))
        regions, nearest = np.zeros((size, size), np.int64), np.full((size, size), np.inf)
        for region, (y, x) in enumerate(points):
            distances = np.add.outer((np.arange(size) - y) ** 2, (np.arange(size) - x) ** 2)
            regions[distances < nearest] = region
            np.minimum(nearest, distances, out=nearest)
        for region in range(self.regions):
            label = int(rng.integers(len(by_class)))
            row = int(rng.choice(by_class[label]))
            texture = decode(table.read(row), table.describe(row))
            down, right = (_mirrored_positions(rng, length, size) for length in texture.shape[:2])
            members = regions == region
            image[members] = texture[down[:, None], right[None, :]][members]
            classes[members] = label
        if self.border:
            classes[boundary_band(regions, self.border)] = _VOID
        return image, classes


def _mirrored_positions(rng: np.random.Generator, length: int, size: int) -> NDArray[np.intp]:
    """Return `size` positions in an axis that is mirrored at its ends, from a random start."""
    positions = (rng.integers(2 * length) + np.arange(size)) % (2 * length)
    return np.where(positions < length, positions, 2 * length - 1 - positions)
