"""Accuracy."""

from __future__ import annotations

from operator import attrgetter
from typing import ClassVar

from recalib.metrics.base import Better, Estimate, StreamingMetric, Unit
from recalib.metrics.mean_metrics import MeanState, wilson
from recalib.metrics.weighted import WeightedMean, weighted_fraction

__all__ = ["Accuracy"]


class Accuracy(StreamingMetric[MeanState]):
    """The fraction of rows whose predicted class is the label: mean 1[ŷ = y]; range [0, 1].

    If several classes tie for the largest score, the first is the prediction. Unbiased. The
    interval is Wilson's, which is accurate for few rows and near 0 and 1.
    """

    name: ClassVar[str] = "accuracy"
    summary: ClassVar[str] = "fraction of rows whose predicted class is the label"
    unit: ClassVar[Unit] = "fraction"
    better: ClassVar[Better | None] = "higher"
    state_kind: ClassVar[str] = "accuracy"

    def state(self, classes: int) -> MeanState:
        return MeanState(attrgetter("correct"))

    def weighted_state(self, classes: int) -> WeightedMean:
        return WeightedMean(attrgetter("correct"))

    def estimate_weighted(self, state: WeightedMean, level: float | None = None) -> Estimate:
        return weighted_fraction(state.totals, level)

    def estimate(self, state: MeanState, level: float | None = None) -> Estimate:
        if level is None:
            return Estimate(state.mean)
        low, high = wilson(state.sum, state.count, level)
        return Estimate(state.mean, float(low), float(high))
