"""Brier score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.mean_metrics import MeanState, interval_of_mean
from recalib.metrics.predictions import Predictions, row_chunks
from recalib.metrics.weighted import WeightedMean, weighted_mean

__all__ = ["Brier"]


class Brier(StreamingMetric[MeanState]):
    """The mean of Σ_k (p_k − 1[y = k])²; range [0, 2].

    This is Brier's original sum over classes, not a mean: for two classes it is twice the value
    that some libraries report. A proper score. Unbiased; the interval is Student's.

    Source: paper 004, section 4 (there as a loss).
    """

    name: ClassVar[str] = "brier"
    summary: ClassVar[str] = "mean squared error summed over classes; a proper score"
    unit: ClassVar[Unit] = "score"
    state_kind: ClassVar[str] = "brier"

    def state(self, classes: int) -> MeanState:
        return MeanState(_scores)

    def weighted_state(self, classes: int) -> WeightedMean:
        return WeightedMean(_scores)

    def estimate_weighted(self, state: WeightedMean, level: float | None = None) -> Estimate:
        return weighted_mean(state.totals, level)

    def estimate(self, state: MeanState, level: float | None = None) -> Estimate:
        return interval_of_mean(state, level)


def _scores(predictions: Predictions) -> NDArray[np.float64]:
    scores = np.empty(len(predictions))
    for rows in row_chunks(predictions.probabilities.shape):
        # In float64, as differences: Σp² − 2p(y) + 1 would cancel for confident rows.
        errors = predictions.probabilities[rows].astype(np.float64)
        errors[np.arange(len(errors)), predictions.labels[rows]] -= 1
        scores[rows] = np.einsum("ij,ij->i", errors, errors)
    return scores
