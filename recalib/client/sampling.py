"""The share of a program's traffic whose labels give an interval of the wanted width."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

#: Quantile of the normal distribution for an interval of 95%.
_Z = 1.959963984540054
#: At least this variance is assumed: about that at a mean confidence of 0.99.
_MIN_VARIANCE = 0.01
#: The rate of traffic is measured over about this time.
_RATE_SECONDS = 300.0


class SampleShare:
    """Follows the rate of predictions and the variance of their events. Not thread-safe.

    The 95% interval of accuracy minus mean confidence is 2 z √(v / n) wide with n labels, where v
    is the mean of p (1 − p) over the confidences p, or 0.01 if that is more: an overconfident model
    reports too small a variance, down to 0, and monitoring must detect it.

    Parameters
    ----------
    width: of this interval, over the predictions of `period_seconds`.
    """

    def __init__(self, width: float, period_seconds: float) -> None:
        self._width, self._period_seconds = width, period_seconds
        self._rows = self._variance = 0.0
        self._since = time.monotonic()

    def add(self, confidences: NDArray[np.float64]) -> None:
        """Add predictions at the current time; (N,)."""
        self._rows += len(confidences)
        self._variance += float(np.sum(confidences * (1 - confidences)))

    def value(self) -> float:
        """Return the share, in [0, 1], at the rate of now; 1 before the first prediction."""
        if not self._rows:
            return 1.0
        elapsed = max(time.monotonic() - self._since, 1.0)
        if elapsed > _RATE_SECONDS:  # half of the weight stays with the time before
            elapsed /= 2
            self._since += elapsed
            self._rows, self._variance = self._rows / 2, self._variance / 2
        variance = max(self._variance / self._rows, _MIN_VARIANCE)
        size = 4 * _Z**2 * variance / self._width**2
        return min(1.0, size * elapsed / (self._rows * self._period_seconds))
