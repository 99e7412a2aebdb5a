"""What a fit minimises.

An objective is a frozen value whose fields are its options. It reads calibrated log-probabilities
and labels, and returns one number, lower being better. Like a map it is written in the operations
of `recalib.ops`, so that importing it costs nothing and NumPy can check what torch computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from recalib.formulas import top_predictions
from recalib.ops.base import Array, FittingOps

__all__ = ["Objective", "TopLabelObjective"]


@dataclass(frozen=True)
class Objective(ABC):
    """A function of predictions and labels that a fit makes small."""

    name: ClassVar[str]
    summary: ClassVar[str]
    #: It has a gradient almost everywhere that leads somewhere. Step functions are searched.
    smooth: ClassVar[bool] = True
    #: It is a mean over rows of what depends on that row alone, and may be summed in parts.
    by_row: ClassVar[bool] = False
    #: It reads only the confidence and correctness of top predictions, by `loss_of_confidences`.
    #: It does not reward sharpness, so a fit also checks the likelihood.
    top_label_only: ClassVar[bool] = False

    @abstractmethod
    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        """Return the objective, a scalar.

        Parameters
        ----------
        log_probabilities: calibrated log p, (N, K); −inf for a masked class.
        labels: integers (N,).
        weights: how much each row counts, (N,), with mean 1.
        """

    def settled(
        self, ops: FittingOps, before: Array, after: Array, labels: Array, weights: Array
    ) -> Objective:
        """Return the objective for the rest of a fit, once a first step has been made.

        `before` and `after` are the log p of the rows before and after a step down the gradient
        from the map's start at temperature 1. Most objectives do not ask.
        """
        return self


@dataclass(frozen=True)
class TopLabelObjective(Objective):
    """An objective of the confidence and the correctness of top predictions alone."""

    top_label_only: ClassVar[bool] = True

    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        return self.loss_of_confidences(
            ops, *top_predictions(ops, log_probabilities, labels), weights
        )

    @abstractmethod
    def loss_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> Array:
        """Return the objective of confidences, correctness and weights, each (N,)."""
