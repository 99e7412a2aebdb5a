"""Metrics that are means over rows, and their intervals.

The N rows are a sample: the variance of a weighted mean m of scores x is

    Σ w² (x − m)² / (Σw)²,

so the result does not depend on the scale of the weights. The number of rows in formulas that need
one is Kish's effective size, (Σw)²/Σw², N for equal weights. For a fraction m it is the size whose
binomial variance m(1 − m)/n is the variance above, at most N.

Source: Kish, Survey Sampling, 1965, section 11.7; Korn and Graubard, Survey Methodology 24, 1998,
for fractions.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate, StreamingMetric
from recalib.metrics.predictions import Predictions
from recalib.stats.sums import Means


class RowMean(StreamingMetric[Means]):
    """The mean of the scores of rows, which are at least 0, with Student's interval."""

    @staticmethod
    @abstractmethod
    def scores(predictions: Predictions) -> NDArray[Any]:
        """Return the score of each row."""

    def state(self, classes: int, *, weighted: bool = False) -> Means:
        return Means()

    def add(self, state: Means, predictions: Predictions, weights: Numbers | None = None) -> None:
        state.add(self.scores(predictions), weights)

    def estimate(self, state: Means, level: float | None = None) -> Estimate:
        return mean_estimate(state.totals, level)


class RowFraction(RowMean):
    """The fraction of rows with an event, whose score is true or 1, with Wilson's interval."""

    def estimate(self, state: Means, level: float | None = None) -> Estimate:
        return fraction_estimate(state.totals, level)


def mean_estimate(totals: Numbers, level: float | None) -> Estimate:
    """Return the mean of scores of at least 0 with Student's t interval, from totals of `Means`.

    There is no interval if the effective size is below 2, as for a single row. The coverage is
    nominal for many rows by the central limit theorem. The interval is too narrow for few rows with
    rare large scores, as confident classifiers have.
    """
    _, w, v, wx, _, _ = totals.tolist()
    rows = w**2 / v
    if level is None or rows < 2:
        return Estimate(wx / w)
    variance = _variance(totals) * rows / (rows - 1)
    half = float(scipy.special.stdtrit(rows - 1, (1 + level) / 2) * np.sqrt(variance))
    return Estimate(wx / w, max(wx / w - half, 0.0), wx / w + half)


def fraction_estimate(totals: Numbers, level: float | None, *, parts: int = 1) -> Estimate:
    """Return the mean of fractions in [0, 1], such as events 0 and 1, with Wilson's interval.

    Parameters
    ----------
    totals: those of `Means`.
    parts: how many events of a row its fraction is of. They may depend on each other.
    """
    n, w, v, wx, _, _ = totals.tolist()
    share = wx / w
    if level is None:
        return Estimate(share)
    rows, variance = w**2 / v, _variance(totals)
    if variance > 0 and 0 < share < 1:
        rows = min(share * (1 - share) / variance, parts * n)
    low, high = wilson(share * rows, rows, level)
    return Estimate(share, min(float(low), share), max(float(high), share))


def _variance(totals: Numbers) -> float:
    """Return Σ w²(x − m)²/(Σw)²."""
    _, w, v, wx, vx, vxx = totals.tolist()
    mean = wx / w
    return float(max(vxx - 2 * mean * vx + mean**2 * v, 0.0) / w**2)


def wilson(
    successes: NDArray[np.float64] | float, count: NDArray[Any] | float, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Wilson's interval for a proportion, within [0, 1], elementwise.

    It holds all proportions that a score test does not reject. Unlike the mean ± its standard
    error, it is accurate for few rows and near 0 and 1.
    """
    z2 = float(scipy.special.ndtri((1 + level) / 2)) ** 2
    k, n = np.asarray(successes, np.float64), np.asarray(count, np.float64)
    centre = (k + z2 / 2) / (n + z2)
    half = np.sqrt(z2 * (k * (n - k) / n + z2 / 4)) / (n + z2)
    # Also clipped at the proportion: rounding puts the upper end for n of n an ulp below 1.
    return np.clip(centre - half, 0.0, k / n), np.clip(centre + half, k / n, 1.0)
