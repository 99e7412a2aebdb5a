"""Bins of equal counts (adaptive binning), and calibration errors over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate
from recalib.metrics.binned import GroupMetric
from recalib.metrics.calibration_gaps import Gaps, mean_gap, root_mean_squared_gap
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.predictions import Predictions

Indices = NDArray[np.int64]

#: With more bins than this, only the bins at the ends of groups are separate.
_MAX_SEPARATE = 2**16


def bin_start(index: Indices, rows: int, bins: Indices | int) -> Indices:
    """Return the first row of bin `index` of M bins of equal counts; N for `index` = M.

    If M does not divide N, the first N mod M bins have one row more, as in `numpy.array_split`.
    """
    return index * (rows // bins) + np.minimum(index, rows % bins)


def bin_of_row(row: Indices, rows: int, bins: Indices | int) -> Indices:
    """Return the bin of `bin_start` that has a row, 0 to N − 1."""
    size, longer = rows // bins, rows % bins
    in_longer = longer * (size + 1)
    return np.where(row < in_longer, row // (size + 1), longer + (row - in_longer) // size)


def sort_by_confidence(predictions: Predictions) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ascending confidences and the accuracy of each row, both (N,).

    Rows with tied confidences all have their mean accuracy, the expectation over their possible
    orders.
    """
    order = np.argsort(predictions.confidences, kind="stable")
    p = predictions.confidences[order]
    starts = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    sizes = np.diff([*starts, len(p)])
    hits = np.add.reduceat(predictions.correct[order].astype(np.float64), starts)
    return p.astype(np.float64), np.repeat(hits / sizes, sizes)


@dataclass(frozen=True, eq=False)
class EqualMassBins:
    """N rows, sorted by confidence and cut into M bins whose counts differ by at most one.

    The first N mod M bins have one row more, as in `numpy.array_split`; other libraries put these
    rows elsewhere, so their values differ slightly. There are N bins if N < M. Of weighted rows,
    the bins have these shares of the weight; N then counts rows, or whole weights. A cut through a
    group divides the group's gap in proportion. `error` bounds the difference of this from the rows
    of a histogram's cells.
    """

    groups: ConfidenceGroups
    bins: int

    @cached_property
    def _cuts(self) -> NDArray[np.int64] | Numbers:
        """The number of rows before each bin, and N; (M + 1,).

        Above 65,536 bins, neighbours inside a group, which have equal gaps, are one bin.
        """
        ends = self.groups.ends
        if self.groups.counts.dtype.kind == "f":
            rows = int(self.groups.rows.sum())
            bins = min(self.bins, rows)
            cuts = bin_start(np.arange(bins + 1), rows, bins)
            return np.asarray(cuts * (ends[-1] / rows), np.float64)
        rows = int(ends[-1])
        count = min(self.bins, rows)
        if count <= _MAX_SEPARATE:
            return bin_start(np.arange(count + 1), rows, count)
        holds = bin_of_row(np.concatenate([ends[:-1], ends[1:] - 1]), rows, count)
        return bin_start(np.union1d(holds, holds + 1), rows, count)

    @cached_property
    def sizes(self) -> NDArray[np.int64] | Numbers:
        """The number of rows in each bin, (M,)."""
        return np.diff(self._cuts)

    @cached_property
    def gaps(self) -> Numbers:
        """Accuracy minus mean confidence of each bin, (M,)."""
        residuals = self.groups.correct - self.groups.confidence
        sums = np.concatenate([[0.0], np.cumsum(residuals)])
        return np.diff(np.interp(self._cuts, self.groups.ends, sums)) / self.sizes

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

    def to_gaps(self) -> Gaps:
        """Return the bins for intervals and floors, with each group in the bin of its middle row.

        Bins that share tied rows are correlated; these bins are independent, and differ only by
        the parts of the groups that are cut.
        """
        groups, bins = self.groups, len(self.sizes)
        middle = groups.ends[:-1] + groups.counts / 2
        where = np.searchsorted(self._cuts, middle, side="right") - 1
        return Gaps.from_moments(
            groups.moments.merge(where, bins), groups.squared.merge(where, bins)
        )


def _mean(values: Numbers, sizes: NDArray[np.int64] | Numbers, order: int) -> float:
    return float((np.sum(sizes * values**order) / sizes.sum()) ** (1 / order))


class EqualMassError(GroupMetric):
    """Adaptive expected calibration error: Σ_b n_b/N · |accuracy_b − confidence_b|; range [0, 1].

    As ECE, over M bins of equal counts instead of equal width, so no bin is nearly empty. For ties
    and streams see `EqualMassBins`. Biased upwards, at least by `floor`. The interval is for the
    error with infinitely many rows of bins at this sample's quantiles, see `interval_of_mean_gap`.

    Use it where most confidences are near 1, so that bins of equal width are nearly empty.

    Source: paper 004, App. F (AdaECE); paper 001, S2.1 (AECE).
    """

    name: ClassVar[str] = "ece_equal_mass"
    summary: ClassVar[str] = "expected calibration error, bins of equal counts"
    _order: ClassVar[int] = 1

    def estimate_groups(self, groups: ConfidenceGroups, level: float | None) -> Estimate:
        bins = EqualMassBins(groups, self.bins)
        value = bins.mean(self._order)
        if level is None:
            return Estimate(value)
        error = mean_gap if self._order == 1 else root_mean_squared_gap
        return error(bins.to_gaps(), level, value)

    def error_of_groups(self, groups: ConfidenceGroups) -> float:
        return EqualMassBins(groups, self.bins).error(self._order)


class EqualMassL2Error(EqualMassError):
    """ℓ2 calibration error: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Over M bins of equal counts; at least as large as the ℓ1 form, and dominated by large gaps.
    Ties, streams, bias and estimand as in `ece_equal_mass`. The interval is that of
    `interval_of_mean_squared_gap`.

    Use it where large gaps matter more, and most confidences are near 1.

    Source: paper 000, eq. 6 with p = 2, and its equal-mass binning.
    """

    name: ClassVar[str] = "ece_l2_equal_mass"
    summary: ClassVar[str] = "root mean squared gap, bins of equal counts"
    _order: ClassVar[int] = 2
