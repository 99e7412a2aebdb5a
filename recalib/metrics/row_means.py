"""Metrics that are means over rows, with and without weights."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from numpy.typing import NDArray

from recalib.metrics.base import Estimate, StreamingMetric
from recalib.metrics.mean_metrics import MeanState, interval_of_mean, wilson
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import WeightedMean, weighted_fraction, weighted_mean


class RowMean(StreamingMetric[MeanState]):
    """The mean of the scores of rows, which are at least 0, with Student's interval."""

    @staticmethod
    @abstractmethod
    def scores(predictions: Predictions) -> NDArray[Any]:
        """Return the score of each row that counts."""

    def state(self, classes: int) -> MeanState:
        return MeanState(self.scores)

    def weighted_state(self, classes: int) -> WeightedMean:
        return WeightedMean(self.scores)

    def estimate(self, state: MeanState, level: float | None = None) -> Estimate:
        return interval_of_mean(state, level)

    def estimate_weighted(self, state: WeightedMean, level: float | None = None) -> Estimate:
        return weighted_mean(state.totals, level)


class RowFraction(RowMean):
    """The fraction of rows with an event, whose score is true or 1, with Wilson's interval."""

    def estimate(self, state: MeanState, level: float | None = None) -> Estimate:
        if level is None:
            return Estimate(state.mean)
        low, high = wilson(state.sum, state.count, level)
        return Estimate(state.mean, float(low), float(high))

    def estimate_weighted(self, state: WeightedMean, level: float | None = None) -> Estimate:
        return weighted_fraction(state.totals, level)
