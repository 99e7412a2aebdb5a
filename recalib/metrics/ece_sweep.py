"""Monotonic-sweep calibration error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric, Unit
from recalib.metrics.calibration_gaps import root_mean_squared_gap
from recalib.metrics.confidence_order import bin_of_row, bin_start, sort_by_confidence
from recalib.metrics.equal_mass import EqualMassBins
from recalib.metrics.predictions import Predictions

__all__ = ["SweepError"]

#: Accuracies this close are equal: prefix sums of a million rows have errors of 1e-10, and
#: accuracies that really differ do so by more.
_EQUAL = 1e-9
#: Pairs of bins that are compared in one NumPy call.
_CHUNK = 32_768


class SweepError(Metric):
    """ℓ2 error of a monotonic sweep: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Top-label, over M* bins of equal counts. M* is the largest number such that for M = 1, ..., M*
    the accuracies of M bins never decrease. Accuracy should rise with confidence, so a decrease
    shows that the bins are too small. The number of bins is therefore not an option.

    The M bins are runs of the sorted rows whose lengths differ by at most one, as in
    `numpy.array_split`. Rows with tied
    confidences all count with their mean accuracy. Biased upwards, less than with a fixed number of
    bins; but if every right row has a higher confidence than every wrong one, each row is a bin.
    Interval and floor are those of `ece_l2_equal_mass` with M* bins, tied rows in one bin; they do
    not account for the choice of M*. The interval is for the error of those bins with infinitely
    many rows.

    Source: Roelofs et al., Mitigating bias in calibration error estimation, AISTATS 2022,
    algorithm 1; order 2 and equal mass as in paper 000, App. E (there mean-sweep CE).
    """

    name: ClassVar[str] = "ece_sweep"
    summary: ClassVar[str] = (
        "root mean squared gap, the most bins of equal counts with rising accuracy"
    )
    unit: ClassVar[Unit] = "fraction"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        p, right = sort_by_confidence(predictions)
        sums = np.concatenate([[0.0], np.cumsum(right)])
        bins = _max_bins(right, sums)
        cuts = bin_start(np.arange(bins + 1), len(p), bins)
        sizes = np.diff(cuts)
        gaps = np.add.reduceat(right - p, cuts[:-1]) / sizes
        value = float(np.sqrt(np.sum(sizes * gaps**2) / len(p)))
        if level is None:
            return Estimate(value)
        chosen = EqualMassBins.from_rows(predictions.confidences, predictions.correct, bins)
        return root_mean_squared_gap(chosen.to_gaps(), level, value)


def _max_bins(right: NDArray[np.float64], sums: NDArray[np.float64]) -> int:
    """Return M* from the sorted rows' accuracies and the prefix sums of these accuracies."""
    rows = len(right)
    if np.all(right[1:] >= right[:-1]):
        return rows
    changes = np.flatnonzero(right[1:] != right[:-1]) + 1
    batch = min(2 * len(changes), rows)
    for bins in range(2, batch + 1):
        if _falls(sums, bins, np.arange(bins - 1)).any():
            return bins - 1
    # Accuracy can only fall between two bins if it changes in one of them or at their common edge.
    # With more bins than changes, few pairs need a test, so many values of M are tested at once.
    step = max(1, _CHUNK // len(changes))
    for start in range(batch + 1, rows + 1, step):
        candidates = np.arange(start, min(start + step, rows + 1))[:, None]
        holds = bin_of_row(changes, rows, candidates)
        first = np.clip(np.concatenate([holds - 1, holds], axis=1), 0, candidates - 2)
        decreases = _falls(sums, candidates, first).any(axis=1)
        if decreases.any():
            return int(candidates[np.argmax(decreases), 0]) - 1
    return rows


def _falls(
    sums: NDArray[np.float64], bins: NDArray[np.intp] | int, first: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return whether, with `bins` bins, accuracy falls from each bin in `first` to the next."""
    start, middle, end = (bin_start(first + step, len(sums) - 1, bins) for step in range(3))
    before = (sums[middle] - sums[start]) / (middle - start)
    after = (sums[end] - sums[middle]) / (end - middle)
    falls: NDArray[np.bool_] = after < before - _EQUAL
    return falls
