"""The Brier score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recalib.objectives.base import Objective
from recalib.ops.base import Array, FittingOps
from recalib.ops.formulas import squared_error


@dataclass(frozen=True)
class Brier(Objective):
    """Mean squared distance of p from the one-hot label, 1/N Σ Σ_k (p_k − y_k)²; range [0, 2].

    A proper score. It is bounded, unlike the likelihood, so a few very wrong rows cannot dominate.

    Use it where a few very wrong rows must not decide.

    Source: Brier 1950; paper 004, section 3, as a training loss.
    """

    name: ClassVar[str] = "brier"
    summary: ClassVar[str] = "mean squared distance from the one-hot label, a proper score"
    by_row: ClassVar[bool] = True

    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        return (squared_error(ops, log_probabilities, labels) * weights).mean()
