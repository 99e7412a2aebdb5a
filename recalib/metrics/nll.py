"""Negative log-likelihood."""

from __future__ import annotations

from typing import ClassVar

from recalib.core.arrays import Floats
from recalib.metrics.base import Unit
from recalib.metrics.mean_metrics import RowMean
from recalib.metrics.predictions import Predictions


class NegativeLogLikelihood(RowMean):
    """The mean of −log p(y), in nats; range [0, ∞), finite here.

    A proper score. From logits it is exact for p(y) down to exp(−1e100); from probabilities p(y) is
    clipped at 1e-38. Ties have no effect. Unbiased; the interval is Student's.

    Use it where two classifiers or maps are compared: it is the headline of every comparison.

    Source: paper 004, section 2.
    """

    name: ClassVar[str] = "nll"
    summary: ClassVar[str] = "mean negative log-likelihood, in nats; a proper score"
    unit: ClassVar[Unit] = "nats"
    state_kind: ClassVar[str] = "nll"

    @staticmethod
    def scores(predictions: Predictions) -> Floats:
        return -predictions.label_log_probabilities
