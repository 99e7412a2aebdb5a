"""Label-binned calibration error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric, Unit
from recalib.metrics.binning import BinState, bin_indices
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.intervals import interval_of_convex_error
from recalib.metrics.noise_floor import noise_floor
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import gaps_of_confidence

__all__ = ["LabelBinnedError"]

Values = NDArray[np.float64]


class LabelBinnedError(Metric):
    """Label-binned calibration error: 1/N Σ_i |accuracy of i's bin − confidence_i|; range [0, 1].

    Top-label, over M equal-width right-closed bins, of order p = 1. It is at least as large as
    `ece`, where differences within a bin cancel: for a calibrated classifier with infinitely many
    rows it is about a quarter of a bin's width. Ties share a bin. Biased upwards; `floor` is the
    value of a calibrated model. The interval is for the accuracies of these bins with infinitely
    many rows, see `interval_of_convex_error`. It has no state: each row needs the final accuracy
    of its bin.

    Source: paper 000, eq. 7 with p = 1; Roelofs et al., 2020.
    """

    name: ClassVar[str] = "ece_label_binned"
    summary: ClassVar[str] = "mean distance of confidences from the accuracy of their bin"
    unit: ClassVar[Unit] = "fraction"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        state = BinState(self.bins)
        state.add(predictions)
        return self._estimate(predictions, np.ones(len(predictions)), state.to_gaps(), level)

    def measure_weighted(
        self, predictions: Predictions, weights: Values, level: float | None = None
    ) -> Estimate:
        gaps = gaps_of_confidence(predictions, weights, self.bins)
        return self._estimate(predictions, weights, gaps, level)

    def _estimate(
        self, predictions: Predictions, weights: Values, gaps: Gaps, level: float | None
    ) -> Estimate:
        where = bin_indices(predictions.confidences, self.bins)
        totals = np.bincount(where, weights, self.bins)
        hits = np.bincount(where, weights * predictions.correct, self.bins)
        accuracy = np.divide(hits, totals, out=np.zeros(self.bins), where=totals > 0)
        distances = np.abs(accuracy[where] - predictions.confidences)
        value = float(weights @ distances / weights.sum())
        if level is None:
            return Estimate(value)
        low, high = interval_of_convex_error(value, gaps.weights, gaps.variances, level)
        p = predictions.confidences.astype(np.float64)
        order = np.argsort(p, kind="stable")
        members = [order[where[order] == at] for at in np.flatnonzero(totals)]

        def error(sample: Values) -> Values:
            accuracies = sample + gaps.confidences
            total: Values = np.zeros(len(sample))
            for points, rows in zip(accuracies.T, members, strict=True):
                total += _distances(points, p[rows], weights[rows])
            total /= weights.sum()
            return total

        floors = noise_floor(error, gaps.counts, gaps.confidences, gaps.calibrated_variances)
        return Estimate(value, min(low, value), max(high, value), *floors)


def _distances(points: Values, ascending: Values, weights: Values) -> Values:
    """Return Σ w|point − value| over the `ascending` values (n,), for each point (S,)."""
    below = np.searchsorted(ascending, points)
    masses = np.concatenate([[0.0], np.cumsum(weights)])
    sums = np.concatenate([[0.0], np.cumsum(weights * ascending)])
    total: Values = points * (2 * masses[below] - masses[-1]) + sums[-1] - 2 * sums[below]
    return total
