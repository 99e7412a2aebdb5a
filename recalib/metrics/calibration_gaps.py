"""Gaps between accuracy and confidence in bins, and calibration errors computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate
from recalib.metrics.intervals import (
    interval_of_largest_gap,
    interval_of_mean_gap,
    interval_of_mean_squared_gap,
    variances_under,
)
from recalib.metrics.noise_floor import noise_floor

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gaps:
    """The gaps of the non-empty bins; arrays of (B,). Make one with `from_sums`."""

    #: Rows in the bin, at least 1; for weighted rows the effective size, rounded.
    counts: NDArray[np.int64]
    #: Mean confidence.
    confidences: Vector
    #: Fraction of rows that are right, or that have the class.
    accuracies: Vector
    #: Variance of the gap, never 0.
    variances: Vector
    #: Variance of the gap of a calibrated bin: Σp(1 − p)/n².
    calibrated_variances: Vector
    #: N.
    rows: int
    #: K if each row is in one bin of each class; 1 if it is in one bin.
    classes: int = 1
    #: The bins' shares of the weight, if rows have weights.
    shares: Vector | None = None

    @classmethod
    def from_sums(
        cls,
        counts: NDArray[np.int64],
        confidences: Vector,
        correct: Vector,
        *,
        squares: tuple[Vector, Vector] | None = None,
        classes: int = 1,
    ) -> Gaps:
        """Return gaps from the bins' sums over rows; the arrays may have any common shape.

        The variance of a gap is the largest of three estimates: the sample variance
        (Σr²/n − g²)/(n − 1) with r = y − p; q(1 − q)/n with q = (Σy + a)/(n + 2a) and a = 2
        (Agresti and Coull, 1998), which matters in bins with one row or few errors; and p̄(1 − p̄)/n
        of a calibrated bin. Over K classes a is 4/K: their errors average, and a = 2 for each would
        hide rare classes.

        Parameters
        ----------
        counts: n.
        confidences: Σp.
        correct: Σy.
        squares: Σp² and Σpy. Without them all rows of a bin count with its mean confidence.
        classes: K where each row is in one bin of each class.
        """
        at = counts > 0
        n, p, y = counts[at], confidences[at] / counts[at], correct[at] / counts[at]
        calibrated = np.maximum(p * (1 - p), 0)
        residual = y * (1 - y)
        if squares is not None:
            p2, py = (sums[at] / n for sums in squares)
            calibrated = np.maximum(p - p2, 0)
            residual = y - 2 * py + p2 - (y - p) ** 2
        sample = residual / np.maximum(n - 1, 1)
        return cls.from_means(n, p, y, sample, calibrated / n, int(n.sum()) // classes, classes)

    @classmethod
    def from_means(
        cls,
        counts: NDArray[Any],
        confidences: Vector,
        accuracies: Vector,
        sample_variances: Vector,
        calibrated_variances: Vector,
        rows: float,
        classes: int,
        shares: Vector | None = None,
    ) -> Gaps:
        """Return gaps from the means of non-empty bins and the sample variances of their gaps.

        The other variances are those of `from_sums`. `counts` and `rows` may be effective sizes.
        """
        extra = _extra(classes)
        q = (accuracies * counts + extra) / (counts + 2 * extra)
        variances = np.maximum(sample_variances, q * (1 - q) / counts)
        return cls(
            np.maximum(np.rint(counts), 1).astype(np.int64),
            confidences,
            accuracies,
            np.maximum(variances, calibrated_variances),
            calibrated_variances,
            max(round(rows), 1),
            classes,
            shares,
        )

    @property
    def gaps(self) -> Vector:
        """Accuracy minus confidence."""
        return self.accuracies - self.confidences

    @property
    def weights(self) -> Vector:
        """The fraction of rows in each bin; over classes, the mean of these fractions."""
        if self.shares is not None:
            return self.shares
        shares: Vector = self.counts / self.counts.sum()
        return shares

    @property
    def copies(self) -> int:
        """The number of bins with correlated errors, see `interval_of_mean_gap`."""
        return min(self.classes, 2)


def mean_gap(gaps: Gaps, level: float | None = None, value: float | None = None) -> Estimate:
    """Return Σ w|g|, with interval and floor if `level` is given.

    `value` replaces the sum for metrics that differ from it, such as those whose bins split ties.
    """
    weights = gaps.weights

    def error(gaps_sb: Vector) -> Vector:
        errors: Vector = np.abs(gaps_sb) @ weights
        return errors

    value = float(error(gaps.gaps)) if value is None else value
    if level is None:
        return Estimate(value)
    ends = interval_of_mean_gap(
        weights, gaps.gaps, gaps.variances, level, rows=gaps.rows, copies=gaps.copies
    )
    return _estimate(value, ends, error, gaps)


def root_mean_squared_gap(
    gaps: Gaps, level: float | None = None, value: float | None = None
) -> Estimate:
    """Return √(Σ wg²), with interval and floor if `level` is given; `value` as in `mean_gap`."""
    weights = gaps.weights

    def error(gaps_sb: Vector) -> Vector:
        errors: Vector = np.sqrt(gaps_sb**2 @ weights)
        return errors

    value = float(error(gaps.gaps)) if value is None else value
    if level is None:
        return Estimate(value)
    low, high = _ends_of_squares(gaps, level)
    return _estimate(value, (float(np.sqrt(low)), float(np.sqrt(high))), error, gaps)


def mean_squared_gap(gaps: Gaps, level: float | None = None) -> Estimate:
    """Return Σ wg², with interval and floor if `level` is given."""
    weights = gaps.weights

    def error(gaps_sb: Vector) -> Vector:
        errors: Vector = gaps_sb**2 @ weights
        return errors

    value = float(error(gaps.gaps))
    if level is None:
        return Estimate(value)
    return _estimate(value, _ends_of_squares(gaps, level), error, gaps)


def _ends_of_squares(gaps: Gaps, level: float) -> tuple[float, float]:
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


def largest_gap(gaps: Gaps, level: float | None = None) -> Estimate:
    """Return max |g|, with interval and floor if `level` is given."""

    def error(gaps_sb: Vector) -> Vector:
        errors: Vector = np.abs(gaps_sb).max(axis=-1)
        return errors

    value = float(error(gaps.gaps))
    if level is None:
        return Estimate(value)
    ends = interval_of_largest_gap(gaps.confidences, gaps.accuracies, gaps.counts, level)
    return _estimate(value, ends, error, gaps)


def _extra(classes: int) -> float:
    """Return the successes, and failures, that are added to estimate a variance."""
    return 2.0 if classes == 1 else 4 / classes


def _estimate(
    value: float, ends: tuple[float, float], error: Callable[[Vector], Vector], gaps: Gaps
) -> Estimate:
    """Return an estimate whose interval contains its value.

    Over many nearly empty bins the bias is so large that the interval ends below the value. It is
    then extended to the value, which does not lower its coverage.
    """
    floor, floor_high = noise_floor(error, gaps.counts, gaps.confidences, gaps.calibrated_variances)
    return Estimate(value, min(ends[0], value), max(ends[1], value), floor, floor_high)
