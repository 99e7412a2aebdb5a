"""Standard deviation of the mean losses of classes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from recalib.core.arrays import Integers, Numbers
from recalib.metrics.base import Estimate, StreamingMetric, Unit
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import group_sums
from recalib.stats.sums import State


class ClassLosses(State):
    """Σw and the weighted sum of NLL for each label; arrays of (K,)."""

    sums = ("weight", "loss")

    def __init__(self, classes: int) -> None:
        self.weight, self.loss = np.zeros((2, classes))

    def add(
        self,
        labels: Integers,
        losses: Numbers,
        weights: Numbers | None = None,
    ) -> None:
        """Add rows by their labels, losses and weights (n,)."""
        w = np.ones(len(labels)) if weights is None else weights
        self.weight += group_sums(labels, w, len(self.weight))
        self.loss += group_sums(labels, w * losses, len(self.loss))


class ClasswiseLossDeviation(StreamingMetric[ClassLosses]):
    """Standard deviation over classes of the mean NLL of each class's rows; range [0, ∞).

        √(1/K Σ_k (L_k − L̄)²),  L_k = mean of −log p(y) over rows of label k, L̄ = mean of L_k

    In nats. It is the population deviation (ddof 0) of the paper's eq. 4, over mean losses: the
    paper writes sums, but its published digits come from means. Classes without rows are left out;
    for one class the value is 0. Losses as in `nll`; ties have no effect. Biased upwards: means
    of few rows differ by chance. There is no interval, even on request: losses are unbounded, so a
    rare row may change the mean of its class by any amount (Bahadur and Savage, Annals of
    Mathematical Statistics 27, 1956).

    Use it where classes are to be treated alike.

    Source: paper 003, section 3.1 and eq. 4.
    """

    name: ClassVar[str] = "classwise_loss_std"
    summary: ClassVar[str] = "standard deviation over classes of their mean loss, in nats"
    unit: ClassVar[Unit] = "nats"
    state_kind: ClassVar[str] = "class_losses"

    def state(self, classes: int, *, weighted: bool = False) -> ClassLosses:
        return ClassLosses(classes)

    def add(
        self,
        state: ClassLosses,
        predictions: Predictions,
        weights: Numbers | None = None,
    ) -> None:
        state.add(predictions.labels, -predictions.label_log_probabilities, weights)

    def estimate(self, state: ClassLosses, level: float | None = None) -> Estimate:
        present = state.weight > 0
        return Estimate(float(np.std(state.loss[present] / state.weight[present])))
