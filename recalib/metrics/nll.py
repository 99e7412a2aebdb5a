"""Negative log-likelihood."""

from __future__ import annotations

from typing import ClassVar

from recalib.arrays import Floats
from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.mean_metrics import MeanState, interval_of_mean
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import WeightedMean, weighted_mean

__all__ = ["NegativeLogLikelihood"]


class NegativeLogLikelihood(StreamingMetric[MeanState]):
    """The mean of −log p(y), in nats; range [0, ∞), finite here.

    A proper score. From logits it is exact for p(y) down to exp(−1e100); from probabilities p(y) is
    clipped at 1e-38. Ties have no effect. Unbiased; the interval is Student's.

    Source: paper 004, section 2.
    """

    name: ClassVar[str] = "nll"
    summary: ClassVar[str] = "mean negative log-likelihood, in nats; a proper score"
    unit: ClassVar[Unit] = "nats"
    state_kind: ClassVar[str] = "nll"

    def state(self, classes: int) -> MeanState:
        return MeanState(_losses)

    def weighted_state(self, classes: int) -> WeightedMean:
        return WeightedMean(_losses)

    def estimate_weighted(self, state: WeightedMean, level: float | None = None) -> Estimate:
        return weighted_mean(state.totals, level)

    def estimate(self, state: MeanState, level: float | None = None) -> Estimate:
        return interval_of_mean(state, level)


def _losses(predictions: Predictions) -> Floats:
    return -predictions.label_log_probabilities
