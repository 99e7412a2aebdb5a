"""Calibration error over bins of equal counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.calibration_gaps import Gaps, mean_gap, root_mean_squared_gap
from recalib.metrics.fine_histogram import FineHistogram, cell_edges
from recalib.metrics.predictions import Predictions

__all__ = ["EqualMassBins", "EqualMassError", "EqualMassL2Error"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EqualMassBins:
    """N rows, sorted by confidence and cut into M runs whose lengths differ by at most one.

    N runs where N < M. Rows come in groups by rising confidence, and a cut through a group gives
    either side its share of the group's gap. Groups are rows of equal confidence (`of_rows`), so
    that the order of rows in a file does not matter; or cells of a histogram (`of_cells`), of
    which `error` says how much that may change. Arrays are (G,).
    """

    bins: int
    counts: NDArray[np.int64]
    #: Σp, Σy, Σp² and Σpy.
    confidence: Vector
    correct: Vector
    confidence_squared: Vector
    confidence_correct: Vector
    #: By how much confidences of a group may differ.
    widths: Vector

    @classmethod
    def of_rows(cls, confidences: Floats, correct: NDArray[np.bool_], bins: int) -> EqualMassBins:
        """Return bins of rows by their confidences (N,) and whether each was right (N,)."""
        values, group, counts = np.unique(confidences, return_inverse=True, return_counts=True)
        p = values.astype(np.float64)
        right = np.bincount(group, correct, len(p)).astype(np.float64, copy=False)
        sums = counts * p, right, counts * p**2, right * p
        return cls(bins, counts.astype(np.int64), *sums, np.zeros(len(p)))

    @classmethod
    def of_cells(cls, state: FineHistogram, bins: int) -> EqualMassBins:
        """Return bins of all rows that `state` has seen."""
        at = state.filled
        sums = (
            state.confidence,
            state.correct,
            state.confidence_squared,
            state.confidence_correct,
            np.diff(cell_edges()),
        )
        return cls(bins, state.count[at], *(one[at] for one in sums))

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """(G + 1,), rows before each group, and N."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def _cuts(self) -> NDArray[np.int64]:
        """(M + 1,), rows before each bin, and N."""
        rows = int(self._ends[-1])
        count = min(self.bins, rows)
        cuts: NDArray[np.int64] = np.arange(count + 1) * rows // count
        return cuts

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(M,), the rows of each bin."""
        return np.diff(self._cuts)

    @cached_property
    def gaps(self) -> Vector:
        """(M,), accuracy minus mean confidence."""
        sums = np.concatenate([[0.0], np.cumsum(self.correct - self.confidence)])
        gaps: Vector = np.diff(np.interp(self._cuts, self._ends, sums)) / self.sizes
        return gaps

    def mean(self, order: int) -> float:
        """Return (Σ_b n_b/N · |gap_b|^order)^(1/order)."""
        return _mean(np.abs(self.gaps), self.sizes, order)

    def error(self, order: int) -> float:
        """Return by how much `mean(order)` may differ from that of the very rows.

        Only the groups that are cut matter. Of one of n rows, s of them right, cut after a rows:
        between max(0, a − (n − s)) and min(a, s) of those a are right, where a·s/n are counted,
        and their confidences may be off by the group's width times a(n − a)/n. A norm changes by
        no more than the norm of the change.
        """
        inner = self._cuts[1:-1]
        group = np.searchsorted(self._ends, inner, side="right") - 1
        n, s = self.counts[group], self.correct[group]
        a = inner - self._ends[group]
        shared = a * s / n
        most = np.maximum(np.minimum(a, s) - shared, shared - np.maximum(0, a - (n - s)))
        off = most * (self.widths[group] > 0) + self.widths[group] * a * (n - a) / n
        off = np.concatenate([[0.0], off, [0.0]])
        return _mean((off[:-1] + off[1:]) / self.sizes, self.sizes, order)

    def to_gaps(self) -> Gaps:
        """Return the bins for intervals and floors: each group whole, where its middle row is.

        Bins that share tied rows do not vary independently; these do, and differ otherwise only
        by parts of the groups that are cut.
        """
        middle = self._ends[:-1] + self.counts // 2
        where = np.searchsorted(self._cuts, middle, side="right") - 1

        def total(of: NDArray[np.float64]) -> Vector:
            return np.bincount(where, of, len(self.sizes)).astype(np.float64, copy=False)

        return Gaps.from_sums(
            np.rint(total(self.counts.astype(np.float64))).astype(np.int64),
            total(self.confidence),
            total(self.correct),
            squares=(total(self.confidence_squared), total(self.confidence_correct)),
        )


def _mean(values: Vector, sizes: NDArray[np.int64], order: int) -> float:
    return float((np.sum(sizes * values**order) / sizes.sum()) ** (1 / order))


class EqualMassError(StreamingMetric[FineHistogram]):
    """Adaptive expected calibration error: Σ_b n_b/N · |accuracy_b − confidence_b|; range [0, 1].

    As ECE, over M bins of equal counts instead of equal width, so that no bin is nearly empty.
    Ties, and what a stream of batches changes: see `EqualMassBins`. Biased upwards, `floor` says
    by how much at least. The interval is for the error, with infinitely many rows, of the bins
    whose edges are the quantiles of this sample, see `interval_of_mean_gap`.

    Source: paper 004, App. F (AdaECE); paper 001, S2.1 (AECE).
    """

    name: ClassVar[str] = "ece_equal_mass"
    summary: ClassVar[str] = "expected calibration error, bins of equal counts"
    unit: ClassVar[Unit] = "fraction"
    state_kind: ClassVar[str] = "cells"

    def state(self, classes: int) -> FineHistogram:
        return FineHistogram()

    def measure(self, predictions: Predictions, level: float | None = None) -> Estimate:
        return self._estimate(_of_predictions(predictions, self.bins), level)

    def estimate(self, state: FineHistogram, level: float | None = None) -> Estimate:
        return self._estimate(EqualMassBins.of_cells(state, self.bins), level)

    def _estimate(self, bins: EqualMassBins, level: float | None) -> Estimate:
        return mean_gap(bins.to_gaps(), level, bins.mean(1))


class EqualMassL2Error(StreamingMetric[FineHistogram]):
    """ℓ2 calibration error: √(Σ_b n_b/N · (accuracy_b − confidence_b)²); range [0, 1].

    Over M bins of equal counts; at least as large as the ℓ1 form, and dominated by large gaps.
    Ties, streams, bias and estimand as `ece_equal_mass`; the interval is that of
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
        return self._estimate(_of_predictions(predictions, self.bins), level)

    def estimate(self, state: FineHistogram, level: float | None = None) -> Estimate:
        return self._estimate(EqualMassBins.of_cells(state, self.bins), level)

    def _estimate(self, bins: EqualMassBins, level: float | None) -> Estimate:
        return root_mean_squared_gap(bins.to_gaps(), level, bins.mean(2))


def _of_predictions(predictions: Predictions, bins: int) -> EqualMassBins:
    return EqualMassBins.of_rows(predictions.confidences, predictions.correct, bins)
