"""How differently classes fare: the spread of their mean losses."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.metrics.base import Estimate, State, StreamingMetric, Unit
from recalib.metrics.predictions import Predictions

__all__ = ["ClassLossState", "ClasswiseLossDeviation"]


class ClassLossState(State):
    """The count and the summed NLL of the rows of each label; arrays of (K,)."""

    def __init__(self, classes: int) -> None:
        self.count = np.zeros(classes, np.int64)
        self.loss = np.zeros(classes)

    def add(self, predictions: Predictions) -> None:
        labels, classes = predictions.labels, len(self.count)
        self.count += np.bincount(labels, minlength=classes)
        self.loss += np.bincount(labels, -predictions.label_log_probabilities, classes)

    def merge(self, other: ClassLossState) -> None:
        if len(other.count) != len(self.count):
            raise ValueError("states of different classes cannot be merged")
        self.count += other.count
        self.loss += other.loss


class ClasswiseLossDeviation(StreamingMetric[ClassLossState]):
    """Standard deviation over classes of the mean NLL of each class's rows; range [0, ∞).

        √(1/K Σ_k (L_k − L̄)²),  L_k = mean of −log p(y) over rows of label k, L̄ = mean of L_k

    In nats. The population's deviation (ddof 0), as in the paper's eq. 4, and of mean losses, as
    its digits have it, though it writes sums. Classes without a row are left out; of one class, it
    is 0. Losses as in `nll`; ties need no rule. Biased upwards: means of few rows differ by
    chance. No interval, also where intervals are asked for, since no honest one can be had: losses
    have no bound, so that a rare row may move the mean of its class by any amount (Bahadur and
    Savage, Annals of Mathematical Statistics 27, 1956), and the few rows of a class do not show it.

    Source: paper 003, section 3.1 and eq. 4.
    """

    name: ClassVar[str] = "classwise_loss_std"
    summary: ClassVar[str] = "standard deviation over classes of their mean loss, in nats"
    unit: ClassVar[Unit] = "nats"
    state_kind: ClassVar[str] = "class_losses"

    def state(self, classes: int) -> ClassLossState:
        return ClassLossState(classes)

    def estimate(self, state: ClassLossState, level: float | None = None) -> Estimate:
        seen = state.count > 0
        return Estimate(float(np.std(state.loss[seen] / state.count[seen])))
