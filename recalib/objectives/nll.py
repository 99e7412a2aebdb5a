"""Negative log-likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recalib.objectives.base import Objective
from recalib.ops.base import Array, FittingOps


@dataclass(frozen=True)
class NegativeLogLikelihood(Objective):
    """Mean negative log-likelihood, −1/N Σ log p(y), in nats; range [0, ∞).

    A proper score: the true probabilities minimise its expectation. For one temperature it is
    convex in 1/T (paper 003, eq. 2 with unit class weights; Guo et al. 2017).

    Use it where nothing speaks for another: it is the default, and `auto` uses it.
    """

    name: ClassVar[str] = "nll"
    summary: ClassVar[str] = "mean negative log-likelihood, a proper score"
    by_row: ClassVar[bool] = True

    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        return -(ops.pick(log_probabilities, labels) * weights).mean()
