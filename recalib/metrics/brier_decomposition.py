"""What the Brier score of the top label is made of."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.metrics.base import Estimate, StreamingMetric
from recalib.metrics.binning import BinState

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
    squared is the same without bias. No interval, since the bias would put it in the wrong place.

    Source: Murphy, A new vector partition of the probability score, J. Appl. Meteor. 1973.
    """

    name: ClassVar[str] = "brier_reliability"
    summary: ClassVar[str] = "what miscalibration adds to the top label's Brier score"

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        return Estimate(float(np.sum(state.weights * state.gaps**2)))


class BrierResolution(_Part):
    """Resolution of the top label, Σ_b n_b/N · (accuracy_b − accuracy)²; range [0, 1/4].

    What telling sure rows from unsure ones takes off mean (p − y)²; large is good. Bins, ties,
    bias and source as in `brier_reliability`. No interval in this version.
    """

    name: ClassVar[str] = "brier_resolution"
    summary: ClassVar[str] = "what telling right rows from wrong ones takes off that score"

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        at = state.filled
        accuracies = state.correct[at] / state.count[at]
        accuracy = state.correct.sum() / state.count.sum()
        return Estimate(float(np.sum(state.weights * (accuracies - accuracy) ** 2)))


class BrierUncertainty(_Part):
    """Uncertainty of the top label, accuracy · (1 − accuracy); range [0, 1/4].

    The score of always giving the accuracy itself as confidence. It depends on no bins and no
    ties. Biased downwards, by a share 1/N of itself. No interval in this version. Source as in
    `brier_reliability`.
    """

    name: ClassVar[str] = "brier_uncertainty"
    summary: ClassVar[str] = "that score, were the accuracy the confidence of every row"

    def estimate(self, state: BinState, level: float | None = None) -> Estimate:
        accuracy = float(state.correct.sum() / state.count.sum())
        return Estimate(accuracy * (1 - accuracy))


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
