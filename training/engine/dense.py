"""Predict and measure a class for each pixel, one batch of images at a time.

All logits of a split may take hundreds of gigabytes. Memory holds the logits of one batch, the sums
of the metrics and a sample of pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from recalib.metrics.dense import DenseEvaluation, DenseResult
from recalib.recipe import Dense
from training.engine.divergence import DivergedError
from training.engine.pixels import PixelSample

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class DensePrediction:
    """The metrics of dense predictions, and a uniform sample of their pixels.

    Parameters
    ----------
    classes: K.
    ignore_index: the label of void pixels.
    part: the boundary band, and the size of the sample.
    seed: of the sample; None for no sample.
    """

    def __init__(
        self, classes: int, ignore_index: int | None, part: Dense, seed: int | None
    ) -> None:
        options = {"ignore_index": ignore_index, "boundary": part.boundary}
        self._evaluation = DenseEvaluation(classes, **options)  # type: ignore[arg-type]
        self._sample = None
        if seed is not None:
            self._sample = PixelSample(part.logit_pixels, ignore_index, seed)

    def add(
        self, images: Iterable[int], logits: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> None:
        """Add images by their numbers, with logits (n, K, H, W) and labels (n, H, W).

        Raises
        ------
        DivergedError: logits that are not finite.
        """
        if not np.isfinite(logits).all():
            raise DivergedError("a network whose logits are not finite")
        self._evaluation.add(labels, logits=logits)
        if self._sample is not None:
            for image, image_logits, image_labels in zip(images, logits, labels, strict=True):
                self._sample.add(image, image_logits, image_labels)

    def gather(self, fabric: Fabric) -> None:
        """Add the images of the other processes; all processes must call this."""
        if fabric.world_size == 1:
            return
        parts: list[Any] = [None] * fabric.world_size
        torch.distributed.all_gather_object(parts, (self._evaluation, self._sample))
        evaluations, samples = zip(*parts, strict=True)
        self._evaluation = evaluations[0].merge(*evaluations[1:])
        self._sample = samples[0]
        for sample in samples[1:]:
            if self._sample is not None:
                self._sample.merge(sample)

    def finish(self) -> DenseResult:
        """Return the metrics of all pixels that count."""
        return self._evaluation.finish()

    def rows(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return logits (n, K) and labels (n,) of the sample."""
        if self._sample is None:
            return np.zeros((0, self._evaluation.classes), np.float32), np.zeros(0, np.int64)
        return self._sample.rows()


def dense_measures(result: DenseResult) -> dict[str, float | None]:
    """Return the measures of an epoch, as `evaluate.measure`, with mIoU and ECE at boundaries.

    Metrics with bins of equal mass are those of a stream.
    """
    pixels = result.pixels
    names = ("accuracy", "nll", "brier", "ece", "ece_equal_mass", "ece_l2_equal_mass")
    return {
        **{name: pixels[name].value for name in names},
        "entropy": pixels["mean_entropy"].value,
        "nll_right": result.nll_right,
        "nll_wrong": result.nll_wrong,
        "miou": result.miou,
        "boundary_ece": None if result.boundary is None else result.boundary["ece"].value,
    }
