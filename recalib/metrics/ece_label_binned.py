"""Label-binned calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate
from recalib.metrics.binned import BinMetric
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.intervals import interval_of_convex_error
from recalib.metrics.predictions import Predictions
from recalib.stats.bin_indices import bin_indices
from recalib.stats.groups import group_sums
from recalib.stats.sums import Bins

#: The smallest number of fine bins in a stream's state.
_FINE_BINS = 4096


class LabelBinnedError(BinMetric):
    """Label-binned calibration error: 1/N Σ_i |accuracy of i's bin − confidence_i|; range [0, 1].

    Top-label, over M equal-width right-closed bins, of order p = 1. It is at least as large as
    `ece`, where differences within a bin cancel: for a calibrated classifier with infinitely many
    rows it is about a quarter of a bin's width. Ties share a bin. Biased upwards; `floor` is the
    value of a calibrated model. The interval is for the accuracies of these bins with infinitely
    many rows, see `interval_of_convex_error`.

    Streams: each row needs the final accuracy of its bin. So the bins are divided into at least
    4,096 fine bins, whose rows count at their mean confidence. The accuracies are exact, and the
    value differs by at most `error_bound`.

    Use it where a paper that trains with soft bins reports it.

    Source: paper 000, eq. 7 with p = 1; Roelofs et al., 2020.
    """

    name: ClassVar[str] = "ece_label_binned"
    summary: ClassVar[str] = "mean distance of confidences from the accuracy of their bin"
    state_kind: ClassVar[str] = "fine_bins"

    def state(self, classes: int, *, weighted: bool = False) -> Bins:
        return Bins(self.bins * self._parts, weighted=weighted)

    @property
    def _parts(self) -> int:
        """The number of fine bins in each bin."""
        return -(-_FINE_BINS // self.bins)

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        state = Bins(self.bins, weighted=weights is not None)
        self.add(state, predictions, weights)
        p = predictions.confidences
        w = np.ones(len(predictions)) if weights is None else weights
        rows = _Rows(bin_indices(p, self.bins), p.astype(np.float64), w, state.correct)
        return _estimate(rows, Gaps.of(state), level)

    def estimate(self, state: Bins, level: float | None = None) -> Estimate:
        bins = state.join(self._parts)
        return _estimate(self._rows(state, bins), Gaps.of(bins), level)

    def error_bound(self, state: Bins) -> float:
        """Only fine bins that hold the accuracy a of their bin matter.

        For the n rows of a fine bin with the mean p̄, Σ|a − p_i| exceeds n|a − p̄| by at most
        Σ|p_i − p̄| ≤ √(n Σ(p_i − p̄)²). The neighbours count too, since edges are rounded to the
        dtype of the confidences.
        """
        accuracies = np.repeat(self._rows(state, state.join(self._parts)).accuracies, self._parts)
        w = state.moments.weight
        n = np.where(state.filled, w, 1)
        spread = np.maximum(state.confidence_squared - state.confidence**2 / n, 0)
        distance = np.abs(bin_indices(accuracies, state.bins) - np.arange(state.bins))
        return float(np.sqrt(n * spread)[distance <= 1].sum() / w.sum())

    def _rows(self, state: Bins, bins: Bins) -> _Rows:
        """Return the fine bins that hold rows, at their mean confidences."""
        at = np.flatnonzero(state.count)
        w = state.moments.weight[at].astype(np.float64)
        return _Rows(at // self._parts, state.confidence[at] / w, w, bins.correct)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows, (G,), and the sums of correctness of the M bins."""

    #: The bin of each row.
    bins: NDArray[np.intp]
    confidences: Numbers
    weights: Numbers
    #: Σwy of each bin, (M,).
    hits: Numbers

    @property
    def accuracies(self) -> Numbers:
        """The accuracy of each bin, (M,); 0 for an empty one."""
        totals = group_sums(self.bins, self.weights, len(self.hits))
        return np.divide(self.hits, totals, out=np.zeros(len(self.hits)), where=totals > 0)


def _estimate(rows: _Rows, gaps: Gaps, level: float | None) -> Estimate:
    distances = np.abs(rows.accuracies[rows.bins] - rows.confidences)
    value = float(rows.weights @ distances / rows.weights.sum())
    if level is None:
        return Estimate(value)
    low, high = interval_of_convex_error(value, gaps.weights, gaps.variances, level)
    order = np.argsort(rows.confidences)  # bins ascend with the confidence
    members = np.split(order, np.flatnonzero(np.diff(rows.bins[order])) + 1)

    def error(sample: Numbers) -> Numbers:
        accuracies = sample + gaps.confidences
        total: Numbers = np.zeros(len(sample))
        for points, at in zip(accuracies.T, members, strict=True):
            total += _distances(points, rows.confidences[at], rows.weights[at])
        total /= rows.weights.sum()
        return total

    return Estimate(value, min(low, value), max(high, value), *gaps.floor(error))


def _distances(points: Numbers, ascending: Numbers, weights: Numbers) -> Numbers:
    """Return Σ w|point − value| over the `ascending` values (n,), for each point (S,)."""
    below = np.searchsorted(ascending, points)
    masses = np.concatenate([[0.0], np.cumsum(weights)])
    sums = np.concatenate([[0.0], np.cumsum(weights * ascending)])
    return points * (2 * masses[below] - masses[-1]) + sums[-1] - 2 * sums[below]
