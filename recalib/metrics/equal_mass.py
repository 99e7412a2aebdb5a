"""Calibration errors over bins of equal counts (adaptive binning)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.calibration_gaps import Gaps, mean_gap, root_mean_squared_gap
from recalib.metrics.confidence_order import bin_start
from recalib.metrics.fine_histogram import FineHistogram, cell_edges
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import gaps_of_bins

__all__ = ["EqualMassBins", "EqualMassError", "EqualMassL2Error"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EqualMassBins:
    """N rows, sorted by confidence and cut into M bins whose counts differ by at most one.

    The first N mod M bins have one row more, as in `numpy.array_split`; other libraries put these
    rows elsewhere, so their values differ slightly. There are N bins if N < M. Rows come in groups
    of ascending confidence; a cut through a group divides the group's gap in proportion. A group is
    either all rows of one confidence (`from_rows`), so the order of rows in a file does not matter,
    or a cell of a fine histogram (`from_histogram`); `error` bounds the difference.

    Arrays are (G,).
    """

    bins: int
    #: Rows, or their weight.
    counts: NDArray[np.int64] | Vector
    #: Σp, Σy, Σp² and Σpy.
    confidence: Vector
    correct: Vector
    confidence_squared: Vector
    confidence_correct: Vector
    #: The largest difference of confidences within a group.
    widths: Vector

    @classmethod
    def from_rows(cls, confidences: Floats, correct: NDArray[np.bool_], bins: int) -> EqualMassBins:
        """Return bins of rows from their confidences (N,) and correctness (N,)."""
        values, group, counts = np.unique(confidences, return_inverse=True, return_counts=True)
        p = values.astype(np.float64)
        hits = np.bincount(group, correct, len(p)).astype(np.float64, copy=False)
        sums = counts * p, hits, counts * p**2, hits * p
        return cls(bins, counts.astype(np.int64), *sums, np.zeros(len(p)))

    @classmethod
    def from_weights(
        cls, confidences: Floats, correct: NDArray[np.bool_], weights: Vector, bins: int
    ) -> EqualMassBins:
        """Return bins of equal weight from confidences, correctness and weights of rows (N,).

        Rows of whole weights are cut as repeated rows; others into bins of exactly equal weight.
        """
        p, group = np.unique(confidences, return_inverse=True)
        p = p.astype(np.float64)
        counts = np.bincount(group, weights).astype(np.float64, copy=False)
        hits = np.bincount(group, weights * correct).astype(np.float64, copy=False)
        sums = counts * p, hits, counts * p**2, hits * p
        if (weights == np.rint(weights)).all():
            return cls(bins, np.rint(counts).astype(np.int64), *sums, np.zeros(len(p)))
        return cls(min(bins, len(weights)), counts, *sums, np.zeros(len(p)))

    @classmethod
    def from_histogram(cls, state: FineHistogram, bins: int) -> EqualMassBins:
        """Return bins of all rows in `state`."""
        at = state.filled
        sums = (
            state.confidence,
            state.correct,
            state.confidence_squared,
            state.confidence_correct,
            np.diff(cell_edges()),
        )
        return cls(bins, state.count[at], *(values[at] for values in sums))

    @cached_property
    def _ends(self) -> NDArray[np.int64] | Vector:
        """The number of rows before each group, and N; (G + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def _cuts(self) -> NDArray[np.int64] | Vector:
        """The number of rows before each bin, and N; (M + 1,)."""
        if self.counts.dtype.kind == "f":
            return np.linspace(0, self._ends[-1], self.bins + 1)
        rows = int(self._ends[-1])
        count = min(self.bins, rows)
        return bin_start(np.arange(count + 1), rows, count)

    @cached_property
    def sizes(self) -> NDArray[np.int64] | Vector:
        """The number of rows in each bin, (M,)."""
        return np.diff(self._cuts)

    @cached_property
    def gaps(self) -> Vector:
        """Accuracy minus mean confidence of each bin, (M,)."""
        sums = np.concatenate([[0.0], np.cumsum(self.correct - self.confidence)])
        gaps: Vector = np.diff(np.interp(self._cuts, self._ends, sums)) / self.sizes
        return gaps

    def mean(self, order: int) -> float:
        """Return (Σ_b n_b/N · |gap_b|^order)^(1/order)."""
        return _mean(np.abs(self.gaps), self.sizes, order)

    def error(self, order: int) -> float:
        """Return a bound on the difference of `mean(order)` from its value on the single rows.

        Only groups that are cut matter. In a group of n rows with s hits that is cut after a rows,
        the true number of hits among the a rows is between max(0, a − (n − s)) and min(a, s), and
        a·s/n is counted. The sum of confidences differs by at most the group's width times
        a(n − a)/n. A norm changes by at most the norm of the change.
        """
        inner = self._cuts[1:-1]
        group = np.searchsorted(self._ends, inner, side="right") - 1
        n, s = self.counts[group], self.correct[group]
        a = inner - self._ends[group]
        hits = a * s / n
        hit_error = np.maximum(np.minimum(a, s) - hits, hits - np.maximum(0, a - (n - s)))
        widths = self.widths[group]
        cut_error = hit_error * (widths > 0) + widths * a * (n - a) / n
        cut_error = np.concatenate([[0.0], cut_error, [0.0]])
        return _mean((cut_error[:-1] + cut_error[1:]) / self.sizes, self.sizes, order)

    @cached_property
    def bin_of_group(self) -> NDArray[np.intp]:
        """The bin of each group's middle row, (G,)."""
        middle = self._ends[:-1] + self.counts / 2
        return np.searchsorted(self._cuts, middle, side="right") - 1

    def to_gaps(self) -> Gaps:
        """Return the bins for intervals and floors, with each group in the bin of its middle row.

        Bins that share tied rows are correlated; these bins are independent, and differ only by
        the parts of the groups that are cut.
        """
        where = self.bin_of_group

        def total(values: NDArray[np.float64]) -> Vector:
            return np.bincount(where, values, len(self.sizes)).astype(np.float64, copy=False)

        return Gaps.from_sums(
            np.rint(total(self.counts.astype(np.float64))).astype(np.int64),
            total(self.confidence),
            total(self.correct),
            squares=(total(self.confidence_squared), total(self.confidence_correct)),
        )


def _mean(values: Vector, sizes: NDArray[np.int64] | Vector, order: int) -> float:
    return float((np.sum(sizes * values**order) / sizes.sum()) ** (1 / order))


class EqualMassError(StreamingMetric[FineHistogram]):
    """Adaptive expected calibration error: Σ_b n_b/N · |accuracy_b − confidence_b|; range [0, 1].

    As ECE, over M bins of equal counts instead of equal width, so no bin is nearly empty. For ties
    and streams see `EqualMassBins`. Biased upwards, at least by `floor`. The interval is for the
    error with infinitely many rows of bins at this sample's quantiles, see `interval_of_mean_gap`.

    Source: paper 004, App. F (AdaECE); paper 001, S2.1 (AECE).
    """

    name: ClassVar[str] = "ece_equal_mass"
    summary: ClassVar[str] = "expected calibration error, bins of equal counts"
    unit: ClassVar[Unit] = "fraction"
    state_kind: ClassVar[str] = "cells"

    def state(self, classes: int) -> FineHistogram:
        return FineHistogram()

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        return self._estimate(_bins_of(predictions, self.bins), level)

    def measure_weighted(
        self, predictions: Predictions, weights: Vector, level: float | None = None
    ) -> Estimate:
        bins, gaps = _weighted(predictions, weights, self.bins)
        return mean_gap(gaps, level, bins.mean(1))

    def estimate(self, state: FineHistogram, level: float | None = None) -> Estimate:
        return self._estimate(EqualMassBins.from_histogram(state, self.bins), level)

    def _estimate(self, bins: EqualMassBins, level: float | None) -> Estimate:
        return mean_gap(bins.to_gaps(), level, bins.mean(1))


class EqualMassL2Error(StreamingMetric[FineHistogram]):
    """ℓ2 calibration error: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Over M bins of equal counts; at least as large as the ℓ1 form, and dominated by large gaps.
    Ties, streams, bias and estimand as in `ece_equal_mass`. The interval is that of
    `interval_of_mean_squared_gap`.

    Source: paper 000, eq. 6 with p = 2, and its equal-mass binning.
    """

    name: ClassVar[str] = "ece_l2_equal_mass"
    summary: ClassVar[str] = "root mean squared gap, bins of equal counts"
    unit: ClassVar[Unit] = "fraction"
    state_kind: ClassVar[str] = "cells"

    def state(self, classes: int) -> FineHistogram:
        return FineHistogram()

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        return self._estimate(_bins_of(predictions, self.bins), level)

    def measure_weighted(
        self, predictions: Predictions, weights: Vector, level: float | None = None
    ) -> Estimate:
        bins, gaps = _weighted(predictions, weights, self.bins)
        return root_mean_squared_gap(gaps, level, bins.mean(2))

    def estimate(self, state: FineHistogram, level: float | None = None) -> Estimate:
        return self._estimate(EqualMassBins.from_histogram(state, self.bins), level)

    def _estimate(self, bins: EqualMassBins, level: float | None) -> Estimate:
        return root_mean_squared_gap(bins.to_gaps(), level, bins.mean(2))


def _weighted(predictions: Predictions, weights: Vector, bins: int) -> tuple[EqualMassBins, Gaps]:
    """Return bins of equal weight, and their gaps for intervals and floors, as `to_gaps` does."""
    p, correct = predictions.confidences, predictions.correct
    cut = EqualMassBins.from_weights(p, correct, weights, bins)
    where = cut.bin_of_group[np.unique(p, return_inverse=True)[1]]
    return cut, gaps_of_bins(where, p, correct, weights, len(cut.sizes))


def _bins_of(predictions: Predictions, bins: int) -> EqualMassBins:
    return EqualMassBins.from_rows(predictions.confidences, predictions.correct, bins)
