"""State and intervals of metrics that are means over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, State
from recalib.metrics.predictions import Predictions

Scores = Callable[[Predictions], NDArray[Any]]


class MeanState(State):
    """Count, sum and sum of squares of the scores of rows."""

    sums: ClassVar[tuple[str, ...]] = ("count", "sum", "squares")

    def __init__(self, scores: Scores) -> None:
        self._scores = scores
        self.count = 0
        self.sum = 0.0
        self.squares = 0.0

    def add(self, predictions: Predictions) -> None:
        scores = self._scores(predictions).astype(np.float64, copy=False)
        self.count += len(scores)
        self.sum += float(scores.sum())
        self.squares += float(scores @ scores)

    @property
    def mean(self) -> float:
        """The mean over all rows."""
        return self.sum / self.count


def interval_of_mean(state: MeanState, level: float | None) -> Estimate:
    """Return the mean with Student's t interval, or without an interval for a single row.

    The coverage is nominal for many rows by the central limit theorem. The interval is too narrow
    for few rows with rare large scores, as confident classifiers have.
    """
    if level is None or state.count < 2:
        return Estimate(state.mean)
    variance = max(state.squares - state.count * state.mean**2, 0.0) / (state.count - 1)
    reach = scipy.special.stdtrit(state.count - 1, (1 + level) / 2)
    half = float(reach * np.sqrt(variance / state.count))
    return Estimate(state.mean, max(state.mean - half, 0.0), state.mean + half)


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
