"""Bounds of calibration error if labels are selected by outcome, up to a stated ratio.

In a bin, let A be the accuracy of all traffic and a that of the labelled predictions, r the share
of labelled predictions, and r₁ and r₀ the labelling rates of right and of wrong predictions. Then
a = A·r₁/r and 1 − a = (1 − A)·r₀/r, so odds(a) = odds(A)·r₁/r₀.

The assumption is 1/Γ ≤ r₁/r₀ ≤ Γ, separately in each bin. It gives a/(a + Γ(1 − a)) ≤ A ≤
Γa/(Γa + 1 − a). Rates are at most 1, so also a·r ≤ A ≤ 1 − (1 − a)·r, the bounds of Manski (1989)
without an assumption. Both together are sharp: each A that they allow has the rates r₁ = a·r/A and
r₀ = (1 − a)·r/(1 − A), which are at most 1 and have an allowed ratio.

Rosenbaum (2002) bounds the ratio of the odds of selection instead. The ratio of rates is at most
that of odds, and equal to it for small rates, so these bounds hold under his assumption too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recalib.core.arrays import Numbers
from recalib.core.monitoring_settings import MAX_SELECTION_RATIO
from recalib.core.options import check_option
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.intervals import interval_of_mean_gap


class AccuracyBounds(NamedTuple):
    """Bounds of the accuracy of all traffic; arrays of (B,)."""

    low: Numbers
    high: Numbers
    #: Derivatives with respect to the labelled accuracy, above 0.
    low_slopes: Numbers
    high_slopes: Numbers
    #: Sizes of the second derivatives: the lower bound is convex, the upper concave.
    low_curvatures: Numbers
    high_curvatures: Numbers


def accuracy_bounds(accuracies: Numbers, rates: Numbers, ratio: float) -> AccuracyBounds:
    """Return sharp bounds of the accuracy of all traffic.

    Parameters
    ----------
    accuracies: a, of the labelled predictions, (B,).
    rates: r, the labelled shares of traffic, (B,), above 0.
    ratio: Γ, at least 1.
    """
    low = _lower(accuracies, rates, ratio)
    # Exchanging right and wrong predictions exchanges the bounds.
    high = _lower(1 - accuracies, rates, ratio)
    return AccuracyBounds(low[0], 1 - high[0], low[1], high[1], low[2], high[2])


def check_selection_ratio(ratio: float, weighting: str) -> None:
    """Raise `InputError` for a ratio out of range, or above 1 without the weighting `traffic`."""
    legal = 1 <= ratio <= MAX_SELECTION_RATIO
    check_option("selection_ratio", ratio, legal, f"1 to {MAX_SELECTION_RATIO:g}")
    legal = ratio == 1 or weighting == "traffic"
    check_option("selection_ratio", ratio, legal, "1, unless the weighting is traffic")


def selection_interval(
    gaps: Gaps,
    confidences: Numbers,
    weights: Numbers,
    rates: Numbers,
    *,
    ratio: float,
    level: float,
    rows: int,
) -> tuple[float, float]:
    """Return an interval for ECE under any selection of labels by outcome up to a ratio.

    Its ends are those of `interval_of_mean_gap` for the smallest and the largest gap of each bin
    that the bounds of its accuracy allow. At the kink of the largest gap, and at that of the
    smallest, noise moves the estimate outwards no more than that function assumes for |g| at 0.
    Each bound is moved outwards by its bias, half its curvature times the variance.

    Parameters
    ----------
    gaps: of the labelled predictions, for the non-empty bins (B,).
    confidences: mean confidence of all traffic, (B,).
    weights: shares of traffic, (B,).
    rates, ratio: as for `accuracy_bounds`.
    level: confidence level, inside (0, 1).
    rows: the number of predictions in all bins.
    """
    bounds = accuracy_bounds(gaps.accuracies, rates, ratio)
    below = confidences - bounds.low + bounds.low_curvatures * gaps.variances / 2
    above = bounds.high - confidences + bounds.high_curvatures * gaps.variances / 2
    # The largest gap is at the upper bound of accuracy or at the lower, whichever is further; the
    # smallest gap is 0 unless the confidence is outside the bounds.
    largest = np.maximum(below, above)
    smallest = np.maximum(-np.minimum(below, above), 0)
    slopes = np.where(below > above, bounds.low_slopes, bounds.high_slopes)
    other_slopes = np.where(below > above, bounds.high_slopes, bounds.low_slopes)
    _, high = interval_of_mean_gap(weights, largest, slopes**2 * gaps.variances, level, rows=rows)
    low, _ = interval_of_mean_gap(
        weights, smallest, other_slopes**2 * gaps.variances, level, rows=rows
    )
    return low, high


def _lower(accuracies: Numbers, rates: Numbers, ratio: float) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lower bound of accuracy with its first and second derivatives."""
    scale = accuracies + ratio * (1 - accuracies)
    selected, least = accuracies / scale, accuracies * rates
    is_least = least > selected
    return (
        np.where(is_least, least, selected),
        np.where(is_least, rates, ratio / scale**2),
        np.where(is_least, 0.0, 2 * ratio * (ratio - 1) / scale**3),
    )
