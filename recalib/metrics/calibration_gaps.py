"""Gaps between accuracy and confidence, bin by bin, and the errors that are functions of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

__all__ = ["Gaps", "largest_gap", "mean_gap", "mean_squared_gap", "root_mean_squared_gap"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gaps:
    """The bins that hold anything, (B,) each; make one by `of_sums`."""

    #: Rows in the bin, at least 1.
    counts: NDArray[np.int64]
    #: Mean confidence.
    confidences: Vector
    #: Share of rows that are right, or of the class.
    accuracies: Vector
    #: Of the gap, never 0.
    variances: Vector
    #: What the gap's variance would be if the bin were calibrated: Σp(1 − p)/n².
    calibrated_variances: Vector
    #: N.
    rows: int
    #: K where each row is in one bin of each class, 1 where it is in one bin.
    classes: int = 1

    @classmethod
    def of_sums(
        cls,
        counts: NDArray[np.int64],
        confidences: Vector,
        correct: Vector,
        *,
        squares: tuple[Vector, Vector] | None = None,
        classes: int = 1,
    ) -> Gaps:
        """Return the gaps of bins by their sums over rows, of any one shape.

        A gap's variance is the sample's own, (Σr²/n − g²)/(n − 1) with r = y − p. Where that is
        smaller, as in a bin of one row or one with few errors, it is q(1 − q)/n with
        q = (Σy + a)/(n + 2a), where a = 2, as Agresti and Coull (1998) have it, without which
        intervals from one bin would be too narrow; or p̄(1 − p̄)/n, were that larger. Over K
        classes a is 4/K, since their errors average: 2 each would drown rare classes.

        Parameters
        ----------
        counts: n.
        confidences: Σp.
        correct: Σy.
        squares: Σp² and Σpy. Without them rows are taken to have their bin's mean confidence.
        classes: K where each row is in one bin of each class.
        """
        at = counts > 0
        n, p, y = counts[at], confidences[at] / counts[at], correct[at] / counts[at]
        calibrated = np.maximum(p * (1 - p), 0)
        residual = y * (1 - y)
        if squares is not None:
            p2, py = (one[at] / n for one in squares)
            calibrated = np.maximum(p - p2, 0)
            residual = y - 2 * py + p2 - (y - p) ** 2
        extra = _extra(classes)
        q = (y * n + extra) / (n + 2 * extra)
        variance = np.maximum(residual / np.maximum(n - 1, 1), q * (1 - q) / n)
        return cls(
            n,
            p,
            y,
            np.maximum(variance, calibrated / n),
            calibrated / n,
            int(n.sum()) // classes,
            classes,
        )

    @property
    def gaps(self) -> Vector:
        """Accuracy minus confidence."""
        return self.accuracies - self.confidences

    @property
    def weights(self) -> Vector:
        """The share of rows in each bin; over classes, their mean."""
        shares: Vector = self.counts / self.counts.sum()
        return shares

    @property
    def copies(self) -> int:
        """How many bins may err together, see `interval_of_mean_gap`."""
        return min(self.classes, 2)


def mean_gap(gaps: Gaps, level: float | None = None, value: float | None = None) -> Estimate:
    """Return Σ w|g|; with interval and floor where `level` is given.

    `value` is the metric's own where it is not quite that sum, such as where bins part ties.
    """
    weights = gaps.weights

    def error(of: Vector) -> Vector:
        found: Vector = np.abs(of) @ weights
        return found

    found = float(error(gaps.gaps)) if value is None else value
    if level is None:
        return Estimate(found)
    ends = interval_of_mean_gap(
        weights, gaps.gaps, gaps.variances, level, rows=gaps.rows, copies=gaps.copies
    )
    return _estimate(found, ends, error, gaps)


def root_mean_squared_gap(
    gaps: Gaps, level: float | None = None, value: float | None = None
) -> Estimate:
    """Return √(Σ wg²); with interval and floor where `level` is given; `value` as in `mean_gap`."""
    weights = gaps.weights

    def error(of: Vector) -> Vector:
        found: Vector = np.sqrt(of**2 @ weights)
        return found

    found = float(error(gaps.gaps)) if value is None else value
    if level is None:
        return Estimate(found)
    low, high = _ends_of_squares(gaps, level)
    return _estimate(found, (float(np.sqrt(low)), float(np.sqrt(high))), error, gaps)


def mean_squared_gap(gaps: Gaps, level: float | None = None) -> Estimate:
    """Return Σ wg²; with interval and floor where `level` is given."""
    weights = gaps.weights

    def error(of: Vector) -> Vector:
        found: Vector = of**2 @ weights
        return found

    found = float(error(gaps.gaps))
    if level is None:
        return Estimate(found)
    return _estimate(found, _ends_of_squares(gaps, level), error, gaps)


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
    """Return max |g|; with interval and floor where `level` is given."""

    def error(of: Vector) -> Vector:
        found: Vector = np.abs(of).max(axis=-1)
        return found

    found = float(error(gaps.gaps))
    if level is None:
        return Estimate(found)
    ends = interval_of_largest_gap(gaps.confidences, gaps.accuracies, gaps.counts, level)
    return _estimate(found, ends, error, gaps)


def _extra(classes: int) -> float:
    """Return the rights, and wrongs, that a share of so many classes has more."""
    return 2.0 if classes == 1 else 4 / classes


def _estimate(
    value: float, ends: tuple[float, float], error: Callable[[Vector], Vector], gaps: Gaps
) -> Estimate:
    """Return an estimate whose interval holds its value.

    Over very many nearly empty bins the value is so much too large that the honest interval ends
    below it; it is stretched to the value, which costs no coverage.
    """
    floor, floor_high = noise_floor(error, gaps.counts, gaps.confidences, gaps.calibrated_variances)
    return Estimate(value, min(ends[0], value), max(ends[1], value), floor, floor_high)
