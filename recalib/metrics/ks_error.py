"""Calibration error without bins: how far two cumulative curves come apart."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy.optimize

from recalib.arrays import Floats
from recalib.metrics.base import Estimate, Metric
from recalib.metrics.predictions import Predictions

__all__ = ["ClasswiseKsError", "KsError"]

_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


class KsError(Metric):
    """Kolmogorov-Smirnov calibration error: max_t |1/N Σ_{i: p_i ≤ t} (y_i − p_i)|; range [0, 1].

    Top-label: the largest distance between the cumulative sums of confidence and of correctness,
    over rows in the order of confidence. Where the model is overconfident everywhere, it is the
    mean gap; gaps of two signs are not added up as in `ece`. Rows of one confidence are summed
    together, so that their order does not matter. Biased upwards, by 0.63/√N at most.

    The interval holds the value of infinitely many rows at least as often as it says: N^(−1/2)
    times the supremum of a Gaussian process is what the curves are off by, and by Anderson's
    inequality that is at most a Brownian motion's up to the time E(y − p)².

    Source: Gupta et al., Calibration of neural networks using splines, ICLR 2021;
    paper 000, App. E.
    """

    name: ClassVar[str] = "ks_error"
    summary: ClassVar[str] = "largest distance of cumulative confidence and correctness; no bins"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        value = _distance(predictions.confidences, predictions.confidences[predictions.correct])
        if level is None:
            return Estimate(value)
        half = _half_width(predictions, level)
        return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))


class ClasswiseKsError(Metric):
    """Class-wise Kolmogorov-Smirnov error: the mean over classes of each column's; range [0, 1].

    For each class, its column of probabilities against how often it occurred; all K columns count
    alike. Ties and bias as in `ks_error`. It sorts every column, and is measured when asked for by
    name. No interval in this version.

    Source: Gupta et al., ICLR 2021, whose error of one class is each column's.
    """

    name: ClassVar[str] = "ks_error_classwise"
    summary: ClassVar[str] = "mean over classes of each column's ks_error"
    on_request: ClassVar[bool] = True

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        columns = predictions.probabilities.T
        values = [_distance(p, p[predictions.labels == k]) for k, p in enumerate(columns)]
        return Estimate(float(np.mean(values)))


def _distance(p: Floats, hits: Floats) -> float:
    """Return the largest distance, of all values (N,) and of those whose event occurred (n,).

    Between two events the distance only falls, as confidence is added: it is largest or smallest
    just before or at the value of an event, or at the end. So values are sorted without their
    rows, which is several times as fast, and only those of events are looked up.
    """
    values, hits = np.sort(p), np.sort(hits)
    expected = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    largest = abs(len(hits) - expected[-1])
    for side in _SIDES:
        distances = (
            np.searchsorted(hits, hits, side) - expected[np.searchsorted(values, hits, side)]
        )
        largest = max(largest, np.max(np.abs(distances), initial=0))
    return float(largest) / len(p)


def _half_width(predictions: Predictions, level: float) -> float:
    """Return the quantile of the supremum of |Brownian motion| up to time E(y − p)², over √N.

    That time is estimated by the mean, or where few errors make it too small, by q(1 − q) with
    q = (Σy + 2)/(N + 4), as Agresti and Coull (1998) have it.
    """
    p, rows = predictions.confidences.astype(np.float64), len(predictions)
    q = (predictions.correct.sum() + 2) / (rows + 4)
    time = max(float(np.mean((predictions.correct - p) ** 2)), q * (1 - q))
    reach = scipy.optimize.brentq(lambda x: _within(x) - level, 0.01, 10)
    return float(reach * np.sqrt(time / rows))


def _within(x: float) -> float:
    """Return P(max over [0, 1] of |Brownian motion| ≤ x); Erdős and Kac (1946)."""
    odd = 2 * np.arange(200) + 1
    signs = np.where(odd % 4 == 1, 1, -1)
    return float(4 / np.pi * np.sum(signs / odd * np.exp(-((odd * np.pi / x) ** 2) / 8)))
