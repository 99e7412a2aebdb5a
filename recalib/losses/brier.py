"""The Brier score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.losses.base import Loss
from recalib.losses.softmax import softmax_of

__all__ = ["Brier"]


@dataclass(eq=False)
class Brier(Loss):
    """Squared distance of p from the one-hot label, Σ_k (p_k − y_k)²; range [0, 2]. Proper.

    Its slope vanishes where a prediction is surely wrong, so that a few such rows cannot rule.

    Source: Brier 1950; paper 004, section 5.1; the squared error (MSE) of paper 000, section 5.1,
    up to a factor.
    """

    name: ClassVar[str] = "brier"
    summary: ClassVar[str] = "squared distance from the one-hot label, a proper score"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        # As `formulas.squared_error`, which has all logarithms already.
        found = softmax_of(logits, labels, "squares")
        return (found.squares - 2 * found.label.exp() + 1).mean()
