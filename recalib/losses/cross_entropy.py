"""Cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from recalib.losses.base import Loss

__all__ = ["CrossEntropy"]


@dataclass(eq=False)
class CrossEntropy(Loss):
    """Negative log-likelihood, −log p_y; range [0, ∞). Proper.

    On rows that are all classified correctly, larger logits always reduce it: this is how a network
    that fits its training set becomes overconfident.

    Source: paper 001, eqs. 1 to 3; paper 004, section 3.
    """

    name: ClassVar[str] = "cross_entropy"
    summary: ClassVar[str] = "negative log-likelihood, a proper score"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels)
