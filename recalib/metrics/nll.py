"""Negative log-likelihood."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.mean_metrics import MeanState, interval_of_mean
from recalib.metrics.predictions import Predictions
from recalib.metrics.weighted import weighted_mean

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

    def measure_weighted(
        self, predictions: Predictions, weights: NDArray[np.float64], level: float | None = None
    ) -> Estimate:
        return weighted_mean(_losses(predictions), weights, level)

    def estimate(self, state: MeanState, level: float | None = None) -> Estimate:
        return interval_of_mean(state, level)


def _losses(predictions: Predictions) -> Floats:
    return -predictions.label_log_probabilities
