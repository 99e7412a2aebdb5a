"""Gaps between accuracy and confidence in bins, and calibration errors computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate
from recalib.metrics.intervals import (
    interval_of_largest_gap,
    interval_of_mean_gap,
    interval_of_mean_squared_gap,
    variances_under,
)
from recalib.metrics.noise_floor import noise_floor
from recalib.stats.class_bins import ClassBins
from recalib.stats.sums import BinSums, Moments

#: Returns the error of each sample of gaps (S, B), or of one (B,).
Error = Callable[[Numbers], Numbers]


@dataclass(frozen=True, eq=False)
class Gaps:
    """The gaps of the non-empty bins; arrays of (B,). Make one with `of`."""

    #: Rows in the bin, at least 1; for weighted rows the effective size, rounded.
    counts: NDArray[np.int64]
    #: Mean confidence.
    confidences: Numbers
    #: Fraction of rows that are right, or that have the class.
    accuracies: Numbers
    #: Variance of the gap, never 0.
    variances: Numbers
    #: Variance of the gap of a calibrated bin: Σp(1 − p)/n².
    calibrated_variances: Numbers
    #: N.
    rows: int
    #: The bins' shares of the weight; over classes, the mean of these.
    weights: Numbers
    #: K if each row is in one bin of each class; 1 if it is in one bin.
    classes: int = 1

    @classmethod
    def of(cls, state: BinSums) -> Gaps:
        """Return the gaps of the bins of a state; in those of K classes, each has weight 1/K."""
        classes = len(state.count) if isinstance(state, ClassBins) else 1
        return cls.from_moments(state.moments, state.squared, classes)

    @classmethod
    def from_moments(cls, sums: Moments, squared: Moments, classes: int = 1) -> Gaps:
        """Return gaps from the bins' sums over rows, with weights w and w²: any common shape.

        The size n of a bin is Kish's, (Σw)²/Σw². The variance of a gap g is the largest of three
        estimates: the sample variance, Σw²(r − g)²/(Σw)² · n/(n − 1) with r = y − p; q(1 − q)/n
        with q = (n·ȳ + a)/(n + 2a) and a = 2 (Agresti and Coull, 1998), which matters in bins with
        one row or few errors; and Σw²p(1 − p)/(Σw)² of a calibrated bin. Over K classes a is 4/K:
        their errors average, and a = 2 for each would hide rare classes.

        Parameters
        ----------
        squared: equal to `sums` for rows without weights.
        classes: K where each row is in one bin of each class.
        """
        filled = sums.weight > 0
        w, v = sums.select(filled), squared.select(filled)
        # The rest of a column, see `ClassBins`, may be −1e-17 for probabilities of 0.
        weight = w.weight.astype(np.float64)
        p, y, counts = (
            np.maximum(w.confidence, 0) / weight,
            w.correct / weight,
            weight**2 / v.weight,
        )
        gaps, squares = y - p, v.residual_squares()
        squares = squares - 2 * gaps * (v.correct - v.confidence) + gaps**2 * v.weight
        sample = np.maximum(squares, 0) / weight**2 * counts / np.maximum(counts - 1, 1)
        calibrated = v.calibrated_squares() / weight**2
        extra = _extra(classes)
        q = (y * counts + extra) / (counts + 2 * extra)
        total, square = float(weight.sum()), float(v.weight.sum())
        return cls(
            np.maximum(np.rint(counts), 1).astype(np.int64),
            p,
            y,
            np.maximum(np.maximum(sample, q * (1 - q) / counts), calibrated),
            calibrated,
            max(round(total**2 / square / classes), 1),
            weight / total,
            classes,
        )

    @property
    def gaps(self) -> Numbers:
        """Accuracy minus confidence."""
        return self.accuracies - self.confidences

    @property
    def copies(self) -> int:
        """The number of bins with correlated errors, see `interval_of_mean_gap`."""
        return min(self.classes, 2)

    def floor(self, error: Error) -> tuple[float, float]:
        """Return mean and 95th percentile of an error of a calibrated model; see `noise_floor`."""
        return noise_floor(error, self.counts, self.confidences, self.calibrated_variances)

    def estimate(
        self,
        error: Error,
        interval: Callable[[float], tuple[float, float]],
        level: float | None,
        value: float | None = None,
    ) -> Estimate:
        """Return an error of the gaps, or `value`; of a `level` also its interval and floor.

        Over many nearly empty bins the bias is so large that the interval ends below the value. It
        is then extended to the value, which does not lower its coverage.
        """
        value = float(error(self.gaps)) if value is None else value
        if level is None:
            return Estimate(value)
        low, high = interval(level)
        return Estimate(value, min(low, value), max(high, value), *self.floor(error))


def mean_gap(gaps: Gaps, level: float | None = None, value: float | None = None) -> Estimate:
    """Return Σ w|g|, with interval and floor if `level` is given.

    `value` replaces the sum for metrics that differ from it, such as those whose bins split ties.
    """

    def interval(level: float) -> tuple[float, float]:
        options = {"rows": gaps.rows, "copies": gaps.copies}
        return interval_of_mean_gap(gaps.weights, gaps.gaps, gaps.variances, level, **options)

    return gaps.estimate(lambda gaps_sb: np.abs(gaps_sb) @ gaps.weights, interval, level, value)


def root_mean_squared_gap(
    gaps: Gaps, level: float | None = None, value: float | None = None
) -> Estimate:
    """Return √(Σ wg²), with interval and floor if `level` is given; `value` as in `mean_gap`."""

    def interval(level: float) -> tuple[float, float]:
        low, high = _interval_of_squares(gaps, level)
        return float(np.sqrt(low)), float(np.sqrt(high))

    return gaps.estimate(lambda gaps_sb: np.sqrt(gaps_sb**2 @ gaps.weights), interval, level, value)


def mean_squared_gap(gaps: Gaps, level: float | None = None) -> Estimate:
    """Return Σ wg², with interval and floor if `level` is given."""
    interval = partial(_interval_of_squares, gaps)
    return gaps.estimate(lambda gaps_sb: gaps_sb**2 @ gaps.weights, interval, level)


def largest_gap(gaps: Gaps, level: float | None = None) -> Estimate:
    """Return max |g|, with interval and floor if `level` is given."""
    interval = partial(interval_of_largest_gap, gaps.confidences, gaps.accuracies, gaps.counts)
    return gaps.estimate(lambda gaps_sb: np.abs(gaps_sb).max(axis=-1), interval, level)


def _interval_of_squares(gaps: Gaps, level: float) -> tuple[float, float]:
    under = variances_under(
        gaps.counts, gaps.confidences, gaps.gaps, gaps.variances, _extra(gaps.classes)
    )
    return interval_of_mean_squared_gap(
        gaps.weights,
        gaps.gaps,
        gaps.variances,
        level,
        rows=gaps.rows,
        copies=gaps.copies,
        under=under,
    )


def _extra(classes: int) -> float:
    """Return the successes, and failures, that are added to estimate a variance."""
    return 2.0 if classes == 1 else 4 / classes
