"""Monotonic-sweep calibration error."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate
from recalib.metrics.binned import GroupMetric
from recalib.metrics.calibration_gaps import root_mean_squared_gap
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.equal_mass import EqualMassBins, bin_of_row, bin_start

#: Accuracies this close are equal: prefix sums of a million rows have errors of 1e-10, and
#: accuracies that really differ do so by more.
_EQUAL = 1e-9
#: Pairs of bins that are compared in one NumPy call.
_CHUNK = 32_768
#: The largest number of bins that `error_bound` considers.
_MAX_CANDIDATES = 1000


class SweepError(GroupMetric):
    """ℓ2 error of a monotonic sweep: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Top-label, over M* bins of equal counts. M* is the largest number such that for M = 1, ..., M*
    the accuracies of M bins never decrease. Accuracy should rise with confidence, so a decrease
    shows that the bins are too small. The number of bins is therefore not an option.

    The M bins are runs of the sorted rows whose lengths differ by at most one, as in
    `numpy.array_split`. Rows with tied confidences all count with their mean accuracy. Biased
    upwards, less than with a fixed number of bins; but if every right row has a higher confidence
    than every wrong one, each row is a bin.
    Interval and floor are those of `ece_l2_equal_mass` with M* bins, tied rows in one bin; they do
    not account for the choice of M*. The interval is for the error of those bins with infinitely
    many rows.

    Streams: rows of a cell of `Cells` count as tied. M* may then differ; `error_bound` is
    over all M* that are possible, and is loose for many rows.

    Use it where no number of bins is given.

    Source: Roelofs et al., Mitigating bias in calibration error estimation, AISTATS 2022,
    algorithm 1; order 2 and equal mass as in paper 000, App. E (there mean-sweep CE).
    """

    name: ClassVar[str] = "ece_sweep"
    summary: ClassVar[str] = (
        "root mean squared gap, the most bins of equal counts with rising accuracy"
    )
    takes_weights: ClassVar[bool] = False

    def estimate_groups(self, groups: ConfidenceGroups, level: float | None) -> Estimate:
        bins = EqualMassBins(groups, _max_bins(groups))
        value = bins.mean(2)
        if level is None:
            return Estimate(value)
        return root_mean_squared_gap(bins.to_gaps(), level, value)

    def error_of_groups(self, groups: ConfidenceGroups) -> float:
        """Return the largest difference over all M* that the rows in the cells may have.

        For any number of bins, the value is at least the mean gap of all rows, and at most the root
        of the mean (y − p)². This alone bounds the difference if M* may be above 1,000, unless all
        rows of each cell are right or wrong, so that their order does not matter.
        """
        value = EqualMassBins(groups, _max_bins(groups)).mean(2)
        least = EqualMassBins(groups, 1).mean(2)
        most = float(np.sqrt(groups.moments.residual_squares().sum() / groups.ends[-1]))
        bound = max(value - least, most - value, 0.0)
        if np.all((groups.correct == 0) | (groups.correct == groups.counts)):
            # Only confidences change, and means over bins change less than the rows.
            return min(bound, float(np.sqrt(groups.spreads.sum() / groups.ends[-1])))
        candidates = _possible_bins(groups)
        if candidates is None:
            return bound
        errors = []
        for count in range(*candidates):
            bins = EqualMassBins(groups, count)
            errors.append(abs(bins.mean(2) - value) + bins.error(2))
        return min(bound, max(errors))


def _possible_bins(groups: ConfidenceGroups) -> tuple[int, int] | None:
    """Return the range of the M* that the rows may have; None if they may have many.

    The rows of a group may be in any order. A fall between two bins is certain if the smallest
    accuracy before exceeds the largest after, and possible if the largest exceeds the smallest.
    """
    rows, least = int(groups.ends[-1]), None
    for bins in range(2, min(rows, _MAX_CANDIDATES) + 1):
        cuts = bin_start(np.arange(bins + 1), rows, bins)
        low, high = groups.hits_before(cuts)
        before, after = np.diff(cuts)[:-1], np.diff(cuts)[1:]
        falls = (high[1:-1] - low[:-2]) / before - (low[2:] - high[1:-1]) / after
        if least is None and (falls > _EQUAL / 2).any():
            least = bins - 1
        if ((low[1:-1] - high[:-2]) / before - (high[2:] - low[1:-1]) / after > 2 * _EQUAL).any():
            return least or bins - 1, bins
    return (least or rows, rows + 1) if rows <= _MAX_CANDIDATES else None


def _max_bins(groups: ConfidenceGroups) -> int:
    """Return M*."""
    accuracies = groups.correct / groups.counts
    rows = int(groups.ends[-1])
    at = np.flatnonzero(np.diff(accuracies)) + 1
    if np.all(np.diff(accuracies) >= 0):
        return rows
    changes = groups.ends[at].astype(np.int64)
    # Σy of the first rows is linear between changes of the accuracy.
    knots = np.concatenate([[0], changes, [rows]])
    sums = np.concatenate([[0.0], np.add.reduceat(groups.correct, np.insert(at, 0, 0))]).cumsum()
    batch = min(2 * len(changes), rows)
    for bins in range(2, batch + 1):
        if _falls(knots, sums, bins, np.arange(bins - 1)).any():
            return bins - 1
    # Accuracy can only fall between two bins if it changes in one of them or at their common edge.
    # With more bins than changes, few pairs need a test, so many values of M are tested at once.
    step = max(1, _CHUNK // len(changes))
    for start in range(batch + 1, rows + 1, step):
        candidates = np.arange(start, min(start + step, rows + 1))[:, None]
        holds = bin_of_row(changes, rows, candidates)
        first = np.clip(np.concatenate([holds - 1, holds], axis=1), 0, candidates - 2)
        decreases = _falls(knots, sums, candidates, first).any(axis=1)
        if decreases.any():
            return int(candidates[np.argmax(decreases), 0]) - 1
    return rows


def _falls(
    knots: NDArray[np.int64],
    sums: NDArray[np.float64],
    bins: NDArray[np.intp] | int,
    first: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Return whether, with `bins` bins, accuracy falls from each bin in `first` to the next."""
    start, middle, end = (bin_start(first + step, int(knots[-1]), bins) for step in range(3))
    hits = [np.interp(rows, knots, sums) for rows in (start, middle, end)]
    before = (hits[1] - hits[0]) / (middle - start)
    after = (hits[2] - hits[1]) / (end - middle)
    return after < before - _EQUAL
