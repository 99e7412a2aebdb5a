"""Metrics of dense predictions: a class for each pixel, from batches of images in bounded memory.

Legend: N images, K classes, H height, W width, M bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.ndimage
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Integers
from recalib.core.inputs import as_array, one_of
from recalib.errors import InputError
from recalib.metrics.base import Estimate
from recalib.metrics.evaluate import StreamingEvaluation, as_predictions
from recalib.metrics.evaluation import Evaluation
from recalib.metrics.predictions import Predictions
from recalib.stats.bin_indices import bin_indices
from recalib.stats.groups import group_counts, group_sums

__all__ = [
    "ClassResult",
    "DenseEvaluation",
    "DenseResult",
    "ImageResult",
    "boundary_band",
    "intersection_over_union",
]


@dataclass(frozen=True)
class ClassResult:
    """A class. None where a number has no pixel."""

    #: Pixels with this label.
    pixels: int
    #: Pixels that are predicted as this class.
    predicted: int
    #: Intersection over union; None if the class is neither a label nor predicted.
    iou: float | None
    #: Of the pixels that are predicted as this class: mean confidence, share of right ones, and
    #: expected calibration error.
    confidence: float | None
    precision: float | None
    ece: float | None
    #: Calibration error of the probability of this class over all pixels, as in `classwise_ece`.
    classwise_ece: float


@dataclass(frozen=True)
class ImageResult:
    """An image with at least one pixel that counts."""

    #: Position in the order in which images were added, from 0.
    index: int
    pixels: int
    accuracy: float
    confidence: float
    ece: float


@dataclass(frozen=True)
class DenseResult:
    """Metrics of dense predictions. Void pixels are in none of them."""

    #: Streaming metrics of all pixels, by name.
    pixels: Evaluation[Estimate]
    #: Mean IoU over the classes that are a label or predicted somewhere.
    miou: float
    classes: tuple[ClassResult, ...]
    images: tuple[ImageResult, ...]
    #: Streaming metrics of pixels in the boundary band and of the others; None without a pixel.
    boundary: Evaluation[Estimate] | None
    interior: Evaluation[Estimate] | None
    #: Share of the pixels that are in the boundary band.
    boundary_share: float
    #: Mean NLL of right and of wrong pixels; None without a pixel.
    nll_right: float | None
    nll_wrong: float | None

    def image_quantiles(
        self, name: str = "ece", levels: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0)
    ) -> NDArray[np.float64]:
        """Return quantiles over images of a field of `ImageResult`; an image counts once."""
        values = np.array([getattr(image, name) for image in self.images], np.float64)
        return np.quantile(values, np.array(levels))

    def to_dict(self) -> dict[str, Any]:
        """Return a summary for JSON; quantiles stand for the images."""
        levels = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
        quantiles = self.image_quantiles("ece", levels)
        eces = [image.ece for image in self.images]
        return {
            "miou": self.miou,
            "metrics": _values(self.pixels),
            "classes": [asdict(result) for result in self.classes],
            "images": {
                "count": len(eces),
                "ece_mean": float(np.mean(eces)),
                "ece_quantiles": dict(zip(map(str, levels), quantiles.tolist(), strict=True)),
            },
            "boundary": None if self.boundary is None else _values(self.boundary),
            "interior": None if self.interior is None else _values(self.interior),
            "boundary_share": self.boundary_share,
        }


class DenseEvaluation:
    """Metrics of dense predictions from batches of images.

    The memory does not depend on the number of pixels: sums over bins, and five numbers for each
    image. `merge` returns the evaluation of the images of several evaluations; pickles keep one.

    Parameters
    ----------
    classes: K.
    ignore_index: the label of void pixels, such as 255; none by default.
    boundary: d ≥ 1, the half-width of the boundary band in pixels, see `boundary_band`.
    bins: M, the number of bins of binned metrics.

    Examples
    --------
    >>> evaluation = DenseEvaluation(2, ignore_index=255)
    >>> logits = np.zeros((1, 2, 2, 2))
    >>> logits[0, 1, 1] = 2.0  # the second row of pixels is class 1
    >>> evaluation.add([[[0, 0], [1, 255]]], logits=logits)
    >>> evaluation.finish().miou
    1.0
    """

    def __init__(
        self, classes: int, *, ignore_index: int | None = None, boundary: int = 3, bins: int = 15
    ) -> None:
        if boundary < 1:
            raise InputError("boundary", found=f"{boundary}", accepted="1 or more pixels")
        self.ignore_index, self.boundary = ignore_index, boundary
        self._band, self._interior = (StreamingEvaluation(classes, bins) for _ in range(2))
        self._confusion = np.zeros((classes, classes), np.int64)
        #: Count, Σ confidence and Σ correct by predicted class and bin of confidence.
        self._top_label = np.zeros((3, classes, bins))
        #: Count and Σ NLL of wrong and right pixels.
        self._nll = np.zeros((2, 2))
        self._images: list[ImageResult] = []
        self._count = 0

    @property
    def classes(self) -> int:
        """K."""
        return self._band.classes

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Numbers of pixels by label and predicted class, (K, K)."""
        return self._confusion.copy()

    def add(
        self,
        labels: ArrayLike,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
    ) -> None:
        """Add a batch of images.

        Parameters
        ----------
        labels: (n, H, W), integers in [0, K), or `ignore_index`.
        logits: (n, K, H, W), or
        probabilities: (n, K, H, W); exactly one of the two.

        Raises
        ------
        InputError: other shapes, labels or values. Images before the invalid one are counted.
        """
        kind, values = one_of(logits, probabilities)
        scores, truth = as_array(values, kind), as_array(labels, "labels")
        _check_shapes(scores, truth, kind, self.classes)
        for image, image_labels in zip(scores, truth, strict=True):
            self._add_image(image, image_labels, kind)

    def _add_image(self, scores: NDArray[Any], labels: NDArray[Any], kind: str) -> None:
        """Add an image (K, H, W) with labels (H, W)."""
        counts = np.ones(labels.shape, bool)
        if self.ignore_index is not None:
            counts = labels != self.ignore_index
        band = boundary_band(labels, self.boundary, self.ignore_index)[counts]
        index, self._count = self._count, self._count + 1
        if not counts.any():
            return
        rows: dict[str, Any] = {kind: np.ascontiguousarray(scores[:, counts].T)}
        predictions = as_predictions(labels[counts], **rows)
        for evaluation, members in ((self._band, band), (self._interior, ~band)):
            if members.any():
                evaluation.add_predictions(predictions.take(np.flatnonzero(members)))
        cells = predictions.labels * self.classes + predictions.predicted
        self._confusion += group_counts(cells, self.classes**2).reshape(self._confusion.shape)
        sums = self._sums(predictions)
        self._top_label += sums
        losses = -predictions.label_log_probabilities
        self._nll += [group_sums(predictions.correct, w, 2) for w in (None, losses)]
        total, confidence, correct = sums.sum(axis=(1, 2))
        gaps = np.abs(sums[1].sum(axis=0) - sums[2].sum(axis=0))
        self._images.append(
            ImageResult(
                index,
                int(total),
                accuracy=float(correct / total),
                confidence=float(confidence / total),
                ece=float(gaps.sum() / total),
            )
        )

    def _sums(self, predictions: Predictions) -> NDArray[np.float64]:
        """Return count, Σ confidence and Σ correct by predicted class and bin, (3, K, M)."""
        bins = self._band.bins
        p = predictions.confidences
        cells = predictions.predicted * bins + bin_indices(p, bins)
        values = None, p, predictions.correct
        sums = [group_sums(cells, column, self.classes * bins) for column in values]
        return np.reshape(sums, (3, self.classes, bins))

    def merge(self, *others: DenseEvaluation) -> DenseEvaluation:
        """Return the evaluation of the images of all, in this order; none of them changes.

        Raises
        ------
        ValueError: classes, bins, `ignore_index` or `boundary` differ.
        """
        options = {"ignore_index": self.ignore_index, "boundary": self.boundary}
        merged = DenseEvaluation(self.classes, bins=self._band.bins, **options)  # type: ignore[arg-type]
        for part in (self, *others):
            if (part.ignore_index, part.boundary) != (self.ignore_index, self.boundary):
                raise ValueError("evaluations of different options cannot be merged")
            merged._band = merged._band.merge(part._band)
            merged._interior = merged._interior.merge(part._interior)
            merged._confusion += part._confusion
            merged._top_label += part._top_label
            merged._nll += part._nll
            shift = merged._count
            merged._images += [
                ImageResult(**{**asdict(image), "index": image.index + shift})
                for image in part._images
            ]
            merged._count += part._count
        return merged

    def finish(self, level: float | None = None) -> DenseResult:
        """Return the metrics of all images so far.

        Parameters
        ----------
        level: confidence of the intervals of `pixels`, `boundary` and `interior`; none by default.
            Intervals treat pixels as independent. Pixels of an image are not: the intervals are too
            narrow.

        Raises
        ------
        InputError: no pixel that counts.
        """
        if not self._images:
            raise InputError("labels", found="no pixel that counts", accepted="at least one")
        everything = self._band.merge(self._interior)
        ious = intersection_over_union(self._confusion)
        nll = [float(total / count) if count else None for count, total in self._nll.T]
        return DenseResult(
            everything.finish(level),
            float(np.nanmean(ious)),
            self._class_results(ious, everything),
            tuple(self._images),
            self._band.finish(level) if self._band.rows else None,
            self._interior.finish(level) if self._interior.rows else None,
            self._band.rows / everything.rows,
            nll_wrong=nll[0],
            nll_right=nll[1],
        )

    def _class_results(
        self, ious: NDArray[np.float64], everything: StreamingEvaluation
    ) -> tuple[ClassResult, ...]:
        columns = everything.state("classwise_ece").column_errors()  # type: ignore[attr-defined]
        predicted, confidence, correct = self._top_label.sum(axis=2)
        gaps = np.abs(self._top_label[1] - self._top_label[2]).sum(axis=1)
        with np.errstate(invalid="ignore"):  # of a class that is never predicted
            shares = np.stack([ious, confidence / predicted, correct / predicted, gaps / predicted])
        results = []
        for k, of_class in enumerate(shares.T.tolist()):
            iou, mean, precision, ece = (None if np.isnan(x) else x for x in of_class)
            counts = int(self._confusion[k].sum()), int(predicted[k])
            results.append(ClassResult(*counts, iou, mean, precision, ece, float(columns[k])))
        return tuple(results)


def intersection_over_union(confusion: Integers) -> NDArray[np.float64]:
    """Return the IoU of each class, (K,): TP / (TP + FP + FN); NaN for a class without a pixel.

    Parameters
    ----------
    confusion: numbers of pixels by label and predicted class, (K, K).

    Source: Everingham et al., The PASCAL visual object classes challenge, IJCV 2015, section 4.2.3.
    """
    hits = np.diag(confusion).astype(np.float64)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - hits
    ious = np.full(len(hits), np.nan)
    np.divide(hits, union, out=ious, where=union > 0)
    return ious


def boundary_band(
    labels: ArrayLike, distance: int, ignore_index: int | None = None
) -> NDArray[np.bool_]:
    """Return which pixels are in the boundary band, (H, W).

    A pixel is in the band if a pixel with another label is at most `distance` away, horizontally,
    vertically or diagonally: in the square of side 2·distance + 1 around it. With 1, the band has
    the two pixels on both sides of each boundary. Void pixels are on no side of a boundary: they
    are in no band, and do not make one.

    Parameters
    ----------
    labels: (H, W), integers.
    distance: in pixels, ≥ 1.

    Examples
    --------
    >>> boundary_band([[0, 0, 0, 1, 1, 1]], 1).astype(int).tolist()
    [[0, 0, 1, 1, 0, 0]]
    """
    values = np.asarray(labels).astype(np.int64, copy=False)
    size = 2 * distance + 1
    limits = np.iinfo(np.int64)
    counts = np.ones(values.shape, bool) if ignore_index is None else values != ignore_index
    # Void pixels take the values that never win the maximum or the minimum of a neighbourhood.
    highest = scipy.ndimage.maximum_filter(np.where(counts, values, limits.min), size)
    lowest = scipy.ndimage.minimum_filter(np.where(counts, values, limits.max), size)
    return counts & (highest != lowest)


def _check_shapes(scores: NDArray[Any], labels: NDArray[Any], kind: str, classes: int) -> None:
    if scores.ndim != 4 or scores.shape[1] != classes:
        raise InputError(kind, found=f"shape {scores.shape}", accepted=f"(n, {classes}, H, W)")
    expected = (len(scores), *scores.shape[2:])
    if labels.shape != expected or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {labels.shape} for {kind} {scores.shape}"
        raise InputError("labels", found=found, accepted=f"integers {expected}")


def _values(evaluation: Evaluation[Estimate]) -> dict[str, float]:
    return {name: estimate.value for name, estimate in evaluation.items()}
