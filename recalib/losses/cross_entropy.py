"""Cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from recalib.losses.base import RowLoss, label_log_probabilities


@dataclass(eq=False)
class CrossEntropy(RowLoss):
    """Negative log-likelihood, −log p_y; range [0, ∞). Proper.

    On rows that are all classified correctly, larger logits always reduce it: this is how a network
    that fits its training set becomes overconfident.

    Use it where a baseline is needed: every secondary loss is added to it first.

    Source: paper 001, eqs. 1 to 3; paper 004, section 3.
    """

    name: ClassVar[str] = "cross_entropy"
    summary: ClassVar[str] = "negative log-likelihood, a proper score"

    accepts_probabilities: ClassVar[bool] = True

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        if not labels.is_floating_point():
            return functional.cross_entropy(logits, labels, reduction="none")
        return -(labels * label_log_probabilities(logits, labels)).sum(dim=1)
