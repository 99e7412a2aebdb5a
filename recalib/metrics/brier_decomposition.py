"""What the Brier score of the top label is made of."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.metrics.base import Estimate, StreamingMetric
from recalib.metrics.binning import BinState
from recalib.metrics.calibration_gaps import Gaps, mean_squared_gap
from recalib.metrics.intervals import interval_of_mean_squared_gap
from recalib.metrics.mean_metrics import wilson

__all__ = ["BrierReliability", "BrierResolution", "BrierUncertainty", "within_bins"]


class _Part(StreamingMetric[BinState]):
    """A term of mean (p − y)² = reliability − resolution + uncertainty + what is within bins.

    p is the confidence and y whether the prediction is right: the score of one event, not the sum
    over classes that `brier` is.
    """

    state_kind: ClassVar[str] = "bins"

    def __init__(self, bins: int = 15) -> None:
        self.bins = bins

    def state(self, classes: int) -> BinState:
        return BinState(self.bins)


class BrierReliability(_Part):
    """Reliability of the top label, Σ_b n_b/N · (accuracy_b − confidence_b)²; range [0, 1].

    What miscalibration adds to mean (p − y)²; 0 is best. Over M equal-width right-closed bins, as
    `ece`; ties need no rule, since equal confidences share a bin. Biased upwards; `ece_debiased`
    squared is the same without bias, `floor` says by how much. The interval is for these bins with
    infinitely many rows; it is that of `ece_l2`, whose square this is.

    Source: Murphy, A new vector partition of the probability score, J. Appl. Meteor. 1973.
    """

    name: ClassVar[str] = "brier_reliability"
    summary: ClassVar[str] = "what miscalibration adds to the top label's Brier score"

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        value = float(np.sum(state.weights * state.gaps**2))
        return Estimate(value) if level is None else mean_squared_gap(state.to_gaps(), level)


class BrierResolution(_Part):
    """Resolution of the top label, Σ_b n_b/N · (accuracy_b − accuracy)²; range [0, 1/4].

    What telling sure rows from unsure ones takes off mean (p − y)²; large is good. Bins, ties,
    bias and source as in `brier_reliability`. The interval is that of
    `interval_of_mean_squared_gap`, of bins' accuracies from all rows'. No calibration error, it has
    no floor.
    """

    name: ClassVar[str] = "brier_resolution"
    summary: ClassVar[str] = "what telling right rows from wrong ones takes off that score"

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        at = state.filled
        accuracies = state.correct[at] / state.count[at]
        accuracy = state.correct.sum() / state.count.sum()
        value = float(np.sum(state.weights * (accuracies - accuracy) ** 2))
        if level is None:
            return Estimate(value)
        if len(accuracies) == 1:  # nothing to tell apart, whatever rows come
            return Estimate(0.0, 0.0, 0.0)
        return Estimate(value, *_interval_of_resolution(state.to_gaps(), accuracy, value, level))


class BrierUncertainty(_Part):
    """Uncertainty of the top label, accuracy · (1 − accuracy); range [0, 1/4].

    The score of always giving the accuracy itself as confidence. It depends on no bins and no
    ties. Biased downwards, by a share 1/N of itself. The interval is Wilson's of the accuracy. No
    calibration error, it has no floor. Source as in `brier_reliability`.
    """

    name: ClassVar[str] = "brier_uncertainty"
    summary: ClassVar[str] = "that score, were the accuracy the confidence of every row"

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        rows, right = int(state.count.sum()), float(state.correct.sum())
        value = right / rows * (1 - right / rows)
        if level is None:
            return Estimate(value)
        low, high = (float(end) for end in wilson(right, rows, level))
        largest = 0.25 if low <= 0.5 <= high else max(low * (1 - low), high * (1 - high))
        return Estimate(value, min(low * (1 - low), high * (1 - high)), largest)


def _interval_of_resolution(
    bins: Gaps, accuracy: float, value: float, level: float
) -> tuple[float, float]:
    """Return an interval for Σ w·d² by the distances d of bins' accuracies from all rows'.

    d varies by v_b(1 − 2w_b) + Σ w²v, since a bin is part of all rows.
    """
    distances, shares = bins.accuracies - accuracy, bins.weights
    variances = bins.variances * (1 - 2 * shares) + shares**2 @ bins.variances
    low, high = interval_of_mean_squared_gap(shares, distances, variances, level, rows=bins.rows)
    return min(low, value), max(min(high, 0.25), value)


def within_bins(state: BinState) -> float:
    """Return what bins hide: 1/N Σ_b Σ_i∈b (p_i − p̄_b)² − 2(p_i − p̄_b)(y_i − ȳ_b).

    With it the parts add up to mean (p − y)² exactly; 0 where each bin has one confidence.

    Source: Stephenson, Coelho and Jolliffe, Two extra components in the Brier score
    decomposition, Wea. Forecasting 2008.
    """
    at = state.filled
    n, p, y = state.count[at], state.confidence[at], state.correct[at]
    squares = state.confidence_squared[at] - p**2 / n
    products = state.confidence_correct[at] - p * y / n
    return float(np.sum(squares - 2 * products) / state.count.sum())
