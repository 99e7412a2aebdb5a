"""Label-binned calibration error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric, Unit
from recalib.metrics.binning import BinState, bin_indices
from recalib.metrics.intervals import interval_of_convex_error
from recalib.metrics.noise_floor import noise_floor
from recalib.metrics.predictions import Predictions

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
        where = bin_indices(predictions.confidences, self.bins)
        counts = np.bincount(where, minlength=self.bins)
        accuracy = np.bincount(where, predictions.correct, self.bins) / np.maximum(counts, 1)
        value = float(np.mean(np.abs(accuracy[where] - predictions.confidences)))
        if level is None:
            return Estimate(value)
        state = BinState(self.bins)
        state.add(predictions)
        gaps = state.to_gaps()
        low, high = interval_of_convex_error(value, gaps.weights, gaps.variances, level)
        p = predictions.confidences.astype(np.float64)
        members = [np.sort(p[where == at]) for at in np.flatnonzero(counts)]

        def error(sample: Values) -> Values:
            accuracies = sample + gaps.confidences
            total: Values = sum(map(_distances, accuracies.T, members), np.zeros(len(sample)))
            return total / len(p)

        floors = noise_floor(error, gaps.counts, gaps.confidences, gaps.calibrated_variances)
        return Estimate(value, min(low, value), max(high, value), *floors)


def _distances(points: Values, ascending: Values) -> Values:
    """Return Σ|point − value| over the `ascending` values (n,), for each point (S,)."""
    below = np.searchsorted(ascending, points)
    sums = np.concatenate([[0.0], np.cumsum(ascending)])
    total: Values = points * (2 * below - len(ascending)) + sums[-1] - 2 * sums[below]
    return total
