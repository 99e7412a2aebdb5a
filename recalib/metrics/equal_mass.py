"""Calibration errors over bins of equal counts (adaptive binning)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.calibration_gaps import Gaps, mean_gap, root_mean_squared_gap
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.confidence_order import bin_of_row, bin_start
from recalib.metrics.fine_histogram import FineHistogram
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import WeightedBins, WeightedCells

Vector = NDArray[np.float64]

#: With more bins than this, only the bins at the ends of groups are separate.
_MAX_SEPARATE = 2**16


@dataclass(frozen=True, eq=False)
class EqualMassBins:
    """N rows, sorted by confidence and cut into M bins whose counts differ by at most one.

    The first N mod M bins have one row more, as in `numpy.array_split`; other libraries put these
    rows elsewhere, so their values differ slightly. There are N bins if N < M. Of weighted rows,
    the bins have these shares of the weight. A cut through a group divides the group's gap in
    proportion. `error` bounds the difference of this from the
    rows of a histogram's cells.
    """

    groups: ConfidenceGroups
    bins: int
    #: N, if rows have weights.
    rows: int = 0

    @cached_property
    def _cuts(self) -> NDArray[np.int64] | Vector:
        """The number of rows before each bin, and N; (M + 1,).

        Above 65,536 bins, neighbours inside a group, which have equal gaps, are one bin.
        """
        ends = self.groups.ends
        if self.groups.counts.dtype.kind == "f":
            cuts = bin_start(np.arange(self.bins + 1), self.rows, self.bins)
            return np.asarray(cuts * (ends[-1] / self.rows), np.float64)
        rows = int(ends[-1])
        count = min(self.bins, rows)
        if count <= _MAX_SEPARATE:
            return bin_start(np.arange(count + 1), rows, count)
        holds = bin_of_row(np.concatenate([ends[:-1], ends[1:] - 1]), rows, count)
        return bin_start(np.union1d(holds, holds + 1), rows, count)

    @cached_property
    def sizes(self) -> NDArray[np.int64] | Vector:
        """The number of rows in each bin, (M,)."""
        return np.diff(self._cuts)

    @cached_property
    def gaps(self) -> Vector:
        """Accuracy minus mean confidence of each bin, (M,)."""
        residuals = self.groups.correct - self.groups.confidence
        sums = np.concatenate([[0.0], np.cumsum(residuals)])
        gaps: Vector = np.diff(np.interp(self._cuts, self.groups.ends, sums)) / self.sizes
        return gaps

    def mean(self, order: int) -> float:
        """Return (Σ_b n_b/N · |gap_b|^order)^(1/order)."""
        return _mean(np.abs(self.gaps), self.sizes, order)

    def error(self, order: int) -> float:
        """Return a bound on the difference of `mean(order)` from its value on the single rows.

        Only groups that are cut matter. In a group of n rows with s hits that is cut after a rows,
        the true number of hits among the a rows is between max(0, a − (n − s)) and min(a, s), and
        a·s/n is counted. The sum of confidences differs by at most the group's width times
        a(n − a)/n. A norm changes by at most the norm of the change. It is 1 above 65,536 bins.
        """
        if self.bins > _MAX_SEPARATE:
            return 1.0
        inner, ends = self._cuts[1:-1], self.groups.ends
        group = np.searchsorted(ends, inner, side="right") - 1
        n, s = self.groups.counts[group], self.groups.correct[group]
        a = inner - ends[group]
        hits = a * s / n
        hit_error = np.maximum(np.minimum(a, s) - hits, hits - np.maximum(0, a - (n - s)))
        widths = self.groups.widths[group]
        cut_error = hit_error * (widths > 0) + widths * a * (n - a) / n
        cut_error = np.concatenate([[0.0], cut_error, [0.0]])
        return _mean((cut_error[:-1] + cut_error[1:]) / self.sizes, self.sizes, order)

    @cached_property
    def bin_of_group(self) -> NDArray[np.intp]:
        """The bin of each group's middle row, (G,)."""
        middle = self.groups.ends[:-1] + self.groups.counts / 2
        return np.searchsorted(self._cuts, middle, side="right") - 1

    def to_gaps(self) -> Gaps:
        """Return the bins for intervals and floors, with each group in the bin of its middle row.

        Bins that share tied rows are correlated; these bins are independent, and differ only by
        the parts of the groups that are cut.
        """
        where = self.bin_of_group

        def total(values: NDArray[np.float64]) -> Vector:
            return np.bincount(where, values, len(self.sizes)).astype(np.float64, copy=False)

        groups = self.groups
        return Gaps.from_sums(
            np.rint(total(groups.counts.astype(np.float64))).astype(np.int64),
            total(groups.confidence),
            total(groups.correct),
            squares=(total(groups.confidence_squared), total(groups.confidence_correct)),
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
        bins, gaps = _weighted_bins(predictions, weights, self.bins)
        return mean_gap(gaps, level, bins.mean(1))

    def weighted_state(self, classes: int) -> WeightedCells:
        return WeightedCells()

    def estimate_weighted(self, state: WeightedCells, level: float | None = None) -> Estimate:
        bins, gaps = _weighted_bins_of_cells(state, self.bins)
        return mean_gap(gaps, level, bins.mean(1))

    def estimate(self, state: FineHistogram, level: float | None = None) -> Estimate:
        return self._estimate(_bins_of_cells(state, self.bins), level)

    def _estimate(self, bins: EqualMassBins, level: float | None) -> Estimate:
        return mean_gap(bins.to_gaps(), level, bins.mean(1))

    def error_bound(self, state: FineHistogram | WeightedCells) -> float:
        return _bins_of_cells(state, self.bins).error(1)


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
        bins, gaps = _weighted_bins(predictions, weights, self.bins)
        return root_mean_squared_gap(gaps, level, bins.mean(2))

    def weighted_state(self, classes: int) -> WeightedCells:
        return WeightedCells()

    def estimate_weighted(self, state: WeightedCells, level: float | None = None) -> Estimate:
        bins, gaps = _weighted_bins_of_cells(state, self.bins)
        return root_mean_squared_gap(gaps, level, bins.mean(2))

    def estimate(self, state: FineHistogram, level: float | None = None) -> Estimate:
        return self._estimate(_bins_of_cells(state, self.bins), level)

    def _estimate(self, bins: EqualMassBins, level: float | None) -> Estimate:
        return root_mean_squared_gap(bins.to_gaps(), level, bins.mean(2))

    def error_bound(self, state: FineHistogram | WeightedCells) -> float:
        return _bins_of_cells(state, self.bins).error(2)


def _weighted_bins_of_cells(state: WeightedCells, count: int) -> tuple[EqualMassBins, Gaps]:
    """Return at most `count` bins of the rows of cells, and their weighted gaps."""
    bins = _bins_of_cells(state, count)
    where = np.zeros(state.bins, np.intp)
    where[state.filled] = bins.bin_of_group
    return bins, state.merged(where, len(bins.sizes)).to_gaps()


def _weighted_bins(
    predictions: Predictions, weights: Vector, bins: int
) -> tuple[EqualMassBins, Gaps]:
    """Return bins of equal weight, and their gaps for intervals and floors, as `to_gaps` does."""
    groups = ConfidenceGroups.from_weights(predictions.ties, predictions.correct, weights)
    cut = _cut(groups, bins, len(weights))
    where = cut.bin_of_group[predictions.ties[1]]
    return cut, WeightedBins.of_rows(where, predictions, weights, len(cut.sizes)).to_gaps()


def _cut(groups: ConfidenceGroups, bins: int, rows: int) -> EqualMassBins:
    """Return bins of equal weight; weights that are not whole are cut exactly."""
    is_whole = groups.counts.dtype.kind == "i"
    return EqualMassBins(groups, bins if is_whole else min(bins, rows), rows)


def _bins_of(predictions: Predictions, bins: int) -> EqualMassBins:
    groups = ConfidenceGroups.from_rows(predictions.ties, predictions.correct)
    return EqualMassBins(groups, bins)


def _bins_of_cells(state: FineHistogram | WeightedCells, bins: int) -> EqualMassBins:
    groups = ConfidenceGroups.from_histogram(state)
    return _cut(groups, bins, state.rows if isinstance(state, WeightedCells) else bins)
