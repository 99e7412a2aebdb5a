"""Cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.losses.base import Loss
from recalib.losses.softmax import softmax_of

__all__ = ["CrossEntropy"]


@dataclass(eq=False)
class CrossEntropy(Loss):
    """Negative log-likelihood, −log p_y; range [0, ∞). Proper.

    A network that fits its training set makes it smaller for ever by larger logits, which is how
    predictions become overconfident.

    Source: paper 001, eqs. 1 to 3; paper 004, section 3.
    """

    name: ClassVar[str] = "cross_entropy"
    summary: ClassVar[str] = "negative log-likelihood, a proper score"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        return -softmax_of(logits, labels).label.mean()
