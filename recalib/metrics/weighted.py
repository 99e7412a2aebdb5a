"""Means and gaps of weighted rows, with variances.

A weight is how many rows of the population a row stands for. Values are weighted means. For
intervals the N rows are a sample: the variance of a weighted mean m of scores x is

    Σ w² (x − m)² / (Σw)²,

so the result does not depend on the scale of the weights. The number of rows in formulas that need
one is Kish's effective size, (Σw)²/Σw², N for equal weights. For a fraction m it is the size whose
binomial variance m(1 − m)/n is the variance above, at most N.

Source: Kish, Survey Sampling, 1965, section 11.7; Korn and Graubard, Survey Methodology 24, 1998,
for fractions.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.metrics.base import Estimate
from recalib.metrics.binning import bin_indices
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.mean_metrics import wilson
from recalib.metrics.predictions import Predictions

__all__ = [
    "effective_size",
    "gaps_of_bins",
    "gaps_of_classes",
    "gaps_of_confidence",
    "weighted_fraction",
    "weighted_mean",
]

Vector = NDArray[np.float64]


def effective_size(weights: Vector) -> float:
    """Return (Σw)²/Σw², between 1 and N."""
    return float(weights.sum() ** 2 / (weights @ weights))


def weighted_mean(scores: NDArray[np.generic], weights: Vector, level: float | None) -> Estimate:
    """Return the mean of scores (N,), of at least 0, with Student's t interval.

    There is no interval if the effective size is below 2, as for a single row.
    """
    x = scores.astype(np.float64, copy=False)
    mean = float(weights @ x / weights.sum())
    rows = effective_size(weights)
    if level is None or rows < 2:
        return Estimate(mean)
    variance = _variance(x, mean, weights) * rows / (rows - 1)
    half = float(scipy.special.stdtrit(rows - 1, (1 + level) / 2) * np.sqrt(variance))
    return Estimate(mean, max(mean - half, 0.0), mean + half)


def weighted_fraction(
    events: NDArray[np.generic], weights: Vector, level: float | None, *, parts: int = 1
) -> Estimate:
    """Return the mean of fractions (N,) in [0, 1], such as events 0 and 1, with Wilson's interval.

    Parameters
    ----------
    parts: how many events of a row its fraction is of. They may depend on each other.
    """
    x = events.astype(np.float64)
    share = float((weights * x).sum() / weights.sum())
    if level is None:
        return Estimate(share)
    rows = effective_size(weights)
    variance = _variance(x, share, weights)
    if variance > 0:
        rows = min(share * (1 - share) / variance, float(parts * len(x)))
    low, high = wilson(share * rows, rows, level)
    return Estimate(share, min(float(low), share), max(float(high), share))


def _variance(x: Vector, mean: float, weights: Vector) -> float:
    """Return Σ w²(x − m)²/(Σw)²."""
    residuals = weights * (x - mean)
    return float(residuals @ residuals / weights.sum() ** 2)


def gaps_of_confidence(predictions: Predictions, weights: Vector, bins: int) -> Gaps:
    """Return the gaps of equal-width bins of confidence, M = `bins`."""
    p = predictions.confidences
    return gaps_of_bins(bin_indices(p, bins), p, predictions.correct, weights, bins)


def gaps_of_bins(
    bin_of_row: NDArray[np.intp],
    confidences: NDArray[np.floating],
    correct: NDArray[np.bool_],
    weights: Vector,
    bins: int,
) -> Gaps:
    """Return the gaps of M bins from the bin, the confidence and the correctness of each row."""
    sums = _sums(bin_of_row, confidences, correct, weights, bins)
    return _gaps(sums, effective_size(weights), 1)


def gaps_of_classes(predictions: Predictions, weights: Vector, bins: int) -> Gaps:
    """Return the gaps of equal-width bins of each class's probabilities, of all classes."""
    sums = [
        _sums(bin_indices(p, bins), p, predictions.labels == k, weights, bins)
        for k, p in enumerate(predictions.probabilities.T)
    ]
    return _gaps(np.concatenate(sums, axis=1), effective_size(weights), predictions.classes)


def _sums(
    where: NDArray[np.intp],
    confidences: NDArray[np.floating],
    correct: NDArray[np.bool_],
    weights: Vector,
    bins: int,
) -> NDArray[np.float64]:
    """Return Σw, Σw², Σwp, Σwy, Σw²r, Σw²r² and Σw²p(1 − p) of each bin, (7, M); r = y − p."""
    p = confidences.astype(np.float64, copy=False)
    r, w, v = correct - p, weights, weights**2
    terms = (w, v, w * p, w * correct, v * r, v * r**2, v * np.maximum(p * (1 - p), 0))
    return np.stack([np.bincount(where, values, bins) for values in terms])


def _gaps(sums: NDArray[np.float64], rows: float, classes: int) -> Gaps:
    """Return the gaps of non-empty bins from their sums (7, M), as `Gaps.from_sums` does."""
    w, v, wp, wy, vr, vr2, noise = sums[:, sums[0] > 0]
    n, p, y = w**2 / v, wp / w, wy / w
    squares = np.maximum(vr2 - 2 * (y - p) * vr + (y - p) ** 2 * v, 0) / w**2
    variances = squares * n / np.maximum(n - 1, 1)
    return Gaps.from_means(n, p, y, variances, noise / w**2, rows, classes, w / w.sum())
