"""Calibration error over as many bins as keep accuracy rising."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, Metric, Unit
from recalib.metrics.calibration_gaps import root_mean_squared_gap
from recalib.metrics.confidence_order import sort_by_confidence
from recalib.metrics.equal_mass import EqualMassBins
from recalib.metrics.predictions import Predictions

__all__ = ["SweepError"]

#: Accuracies of bins that are nearer than this are equal: prefix sums of a million rows leave
#: 1e-10, and accuracies of bins that differ do so by more.
_EQUAL = 1e-9
#: Pairs of bins that are looked at together.
_CHUNK = 32_768


class SweepError(Metric):
    """ℓ2 error of a monotonic sweep: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Top-label, over M* bins of equal counts, where M* is the largest number such that for M = 1,
    ..., M* the accuracies of M bins never fall from a bin to the next: a model that is sure for a
    reason is right more often where it is surer, and where accuracies fall, bins are too small to
    tell. The number of bins is thus not an option.

    The M bins are runs of the sorted rows whose lengths differ by at most one. Where confidences
    tie, each row counts with the accuracy of all rows of that confidence. Biased upwards, less
    than with a fixed number of bins; but where every right row is surer than every wrong one, each
    row is a bin. Interval and floor are those of `ece_l2_equal_mass` over as many bins as this
    sample chose, rows of equal confidence in one bin: neither knows that others might choose
    another number. The interval is for those bins' error with infinitely many rows.

    Source: Roelofs et al., Mitigating bias in calibration error estimation, AISTATS 2022,
    algorithm 1; order 2 and equal mass as in paper 000, App. E (there mean-sweep CE).
    """

    name: ClassVar[str] = "ece_sweep"
    summary: ClassVar[str] = "root mean squared gap, as many equal counts as keep accuracy rising"
    unit: ClassVar[Unit] = "fraction"

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        p, right = sort_by_confidence(predictions)
        sums = np.concatenate([[0.0], np.cumsum(right)])
        bins = _most_bins(right, sums)
        cuts = _cuts(np.arange(bins + 1), len(p))
        sizes = np.diff(cuts)
        gaps = np.add.reduceat(right - p, cuts[:-1]) / sizes
        value = float(np.sqrt(np.sum(sizes * gaps**2) / len(p)))
        if level is None:
            return Estimate(value)
        chosen = EqualMassBins.of_rows(predictions.confidences, predictions.correct, bins)
        return root_mean_squared_gap(chosen.to_gaps(), level, value)


def _cuts(edges: NDArray[np.intp], rows: int) -> NDArray[np.intp]:
    """Return where runs number `edges`, 0 to M, of M = `edges[-1]` begin."""
    cuts: NDArray[np.intp] = edges * rows // edges[-1]
    return cuts


def _most_bins(right: NDArray[np.float64], sums: NDArray[np.float64]) -> int:
    """Return M*, of the rows' accuracies in their order, and of those accuracies' prefix sums."""
    rows = len(right)
    if np.all(right[1:] >= right[:-1]):
        return rows
    changes = np.flatnonzero(right[1:] != right[:-1]) + 1
    few = min(2 * len(changes), rows)
    for bins in range(2, few + 1):
        if _falls(sums, bins, np.arange(bins - 1)).any():
            return bins - 1
    # Accuracy can only fall between two bins if it changes in one of them, or at the edge between:
    # of more bins than changes few need a look, and many numbers of bins are tried at once.
    step = max(1, _CHUNK // len(changes))
    for start in range(few + 1, rows + 1, step):
        tried = np.arange(start, min(start + step, rows + 1))[:, None]
        holds = ((changes + 1) * tried - 1) // rows
        first = np.clip(np.concatenate([holds - 1, holds], axis=1), 0, tried - 2)
        fallen = _falls(sums, tried, first).any(axis=1)
        if fallen.any():
            return int(tried[np.argmax(fallen), 0]) - 1
    return rows


def _falls(
    sums: NDArray[np.float64], bins: NDArray[np.intp] | int, first: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return whether, of so many bins, accuracy falls from each of `first` to the next."""
    start, middle, end = ((first + step) * (len(sums) - 1) // bins for step in range(3))
    before = (sums[middle] - sums[start]) / (middle - start)
    after = (sums[end] - sums[middle]) / (end - middle)
    falls: NDArray[np.bool_] = after < before - _EQUAL
    return falls
