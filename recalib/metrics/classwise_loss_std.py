"""Standard deviation of the mean losses of classes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.metrics.base import Estimate, State, StreamingMetric, Unit, WeightedState
from recalib.metrics.predictions import Predictions


class ClassLossState(State):
    """Count and sum of NLL for each label; arrays of (K,)."""

    sums: ClassVar[tuple[str, ...]] = ("count", "loss")

    def __init__(self, classes: int) -> None:
        self.count = np.zeros(classes, np.int64)
        self.loss = np.zeros(classes)

    def add(self, predictions: Predictions) -> None:
        labels, classes = predictions.labels, len(self.count)
        self.count += np.bincount(labels, minlength=classes)
        self.loss += np.bincount(labels, -predictions.label_log_probabilities, classes)


class WeightedClassLosses(WeightedState):
    """Weight and weighted sum of NLL for each label; arrays of (K,)."""

    sums: ClassVar[tuple[str, ...]] = ("weight", "loss")

    def __init__(self, classes: int) -> None:
        self.weight = np.zeros(classes)
        self.loss = np.zeros(classes)

    def add_weighted(self, predictions: Predictions, weights: NDArray[np.float64]) -> None:
        labels, classes = predictions.labels, len(self.weight)
        self.weight += np.bincount(labels, weights, classes)
        losses = -weights * predictions.label_log_probabilities
        self.loss += np.bincount(labels, losses, classes)


class ClasswiseLossDeviation(StreamingMetric[ClassLossState]):
    """Standard deviation over classes of the mean NLL of each class's rows; range [0, ∞).

        √(1/K Σ_k (L_k − L̄)²),  L_k = mean of −log p(y) over rows of label k, L̄ = mean of L_k

    In nats. It is the population deviation (ddof 0) of the paper's eq. 4, over mean losses: the
    paper writes sums, but its published digits come from means. Classes without rows are left out;
    for one class the value is 0. Losses as in `nll`; ties have no effect. Biased upwards: means
    of few rows differ by chance. There is no interval, even on request: losses are unbounded, so a
    rare row may change the mean of its class by any amount (Bahadur and Savage, Annals of
    Mathematical Statistics 27, 1956).

    Source: paper 003, section 3.1 and eq. 4.
    """

    name: ClassVar[str] = "classwise_loss_std"
    summary: ClassVar[str] = "standard deviation over classes of their mean loss, in nats"
    unit: ClassVar[Unit] = "nats"
    state_kind: ClassVar[str] = "class_losses"

    def state(self, classes: int) -> ClassLossState:
        return ClassLossState(classes)

    def weighted_state(self, classes: int) -> WeightedClassLosses:
        return WeightedClassLosses(classes)

    def estimate_weighted(self, state: WeightedClassLosses, level: float | None = None) -> Estimate:
        return _deviation(state.loss, state.weight)

    def estimate(self, state: ClassLossState, level: float | None = None) -> Estimate:
        return _deviation(state.loss, state.count)


def _deviation(losses: NDArray[np.float64], totals: NDArray[Any]) -> Estimate:
    """Return the deviation of mean losses from sums (K,) and the weights or counts of classes."""
    present = totals > 0
    return Estimate(float(np.std(losses[present] / totals[present])))
