"""The contract of an objective, the function that a fit minimises.

An objective is an immutable dataclass whose fields are its options. It maps calibrated
log-probabilities and labels to one number; lower is better. Like a map it is written in the
operations of `recalib.ops`, so importing it is cheap and NumPy can check the results of torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from recalib.core.field_types import check_fields
from recalib.ops.base import Array, FittingOps
from recalib.ops.formulas import top_predictions


@dataclass(frozen=True)
class Objective(ABC):
    """A function of predictions and labels that a fit minimises.

    Examples
    --------
    >>> from recalib.objectives import OBJECTIVES
    >>> OBJECTIVES["focal"](gamma=2.0)
    Focal(gamma=2.0)
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: True if it has a useful gradient almost everywhere. Step functions are minimised by search.
    smooth: ClassVar[bool] = True
    #: True if it is a mean over rows of a function of each row, so it can be summed in chunks.
    by_row: ClassVar[bool] = False
    #: It reads only the confidence and correctness of top predictions, by `loss_of_confidences`.
    #: It does not reward sharpness, so a fit also checks the likelihood.
    top_label_only: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        """Return the objective, a scalar.

        Parameters
        ----------
        log_probabilities: calibrated log p, (N, K); −inf for a masked class.
        labels: integers (N,).
        weights: weights of rows (N,), with mean 1.
        """

    @property
    def summable(self) -> bool:
        """Whether the objective is a function of sums over rows, `of_sums`."""
        return self.by_row

    def sums(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> tuple[Array, ...]:
        """Return the sums over these rows that `of_sums` takes; see `loss` for the parameters."""
        return (self.loss(ops, log_probabilities, labels, weights) * len(labels),)

    def of_sums(self, ops: FittingOps, sums: tuple[Array, ...], rows: float) -> Array:
        """Return the objective, a scalar, from `sums` of all rows, N = `rows`."""
        return sums[0] / rows

    def settled_by_sums(
        self, ops: FittingOps, before: tuple[Array, ...], after: tuple[Array, ...]
    ) -> Objective:
        """Return the objective for the rest of a fit, after its first step.

        `before` and `after` are `sums` of all rows before and after one gradient step from the
        map's start at temperature 1. Most objectives ignore them and return themselves.
        """
        return self


@dataclass(frozen=True)
class TopLabelObjective(Objective):
    """An objective of the confidence and the correctness of top predictions only."""

    top_label_only: ClassVar[bool] = True

    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        return self.loss_of_confidences(
            ops, *top_predictions(ops, log_probabilities, labels), weights
        )

    def sums(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> tuple[Array, ...]:
        return self.sums_of_confidences(
            ops, *top_predictions(ops, log_probabilities, labels), weights
        )

    @abstractmethod
    def sums_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> tuple[Array, ...]:
        """Return `sums` from confidences, correctness and weights, each (N,)."""

    @abstractmethod
    def loss_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> Array:
        """Return the objective from confidences, correctness and weights, each (N,)."""
