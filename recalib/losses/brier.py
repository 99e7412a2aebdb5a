"""The Brier score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.losses.base import RowLoss, ops_for
from recalib.ops.formulas import squared_error


@dataclass(eq=False)
class Brier(RowLoss):
    """Squared distance of p from the one-hot label, Σ_k (p_k − y_k)²; range [0, 2]. Proper.

    Its gradient vanishes for rows that are wrong with confidence near 1, so outliers count little.

    Use it where some labels are wrong, and confident errors must not dominate.

    Source: Brier 1950; paper 004, section 5.1; the squared error (MSE) of paper 000, section 5.1,
    up to a factor.
    """

    name: ClassVar[str] = "brier"
    summary: ClassVar[str] = "squared distance from the one-hot label, a proper score"

    accepts_probabilities: ClassVar[bool] = True

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        if labels.is_floating_point():
            return (logits.softmax(dim=1) - labels).square().sum(dim=1)
        return squared_error(ops_for(logits), logits.log_softmax(dim=1), labels)
