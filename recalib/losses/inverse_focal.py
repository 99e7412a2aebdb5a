"""Inverse focal loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.core.field_types import NonNegative
from recalib.losses.base import RowLoss, label_log_probabilities


@dataclass(eq=False)
class InverseFocal(RowLoss):
    """Inverse focal loss, −(1 + p_y)^γ log p_y; range [0, ∞).

    Rows that are already classified correctly count more, the opposite of focal loss. For γ above
    about 3.6, its derivative in p_y is positive around p_y = .28, so gradient descent decreases the
    label's probability there. Paper 002 states this for γ above 3.5 (section 5) and for 4
    (appendix C.2).

    Options: `gamma` γ ≥ 0, default 2, which paper 002 selected for ResNet-50 on CIFAR-10.

    Use it where the network is underconfident, or calibrated later by a map.

    Source: paper 002, eq. 3 and appendices C.2 and E.1.
    """

    name: ClassVar[str] = "inverse_focal"
    summary: ClassVar[str] = "cross-entropy that gives more weight to confident correct rows"

    accepts_probabilities: ClassVar[bool] = True

    gamma: NonNegative = 2.0

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = label_log_probabilities(logits, labels)
        terms = -((1 + log_p.exp()) ** self.gamma * log_p)
        return (labels * terms).sum(dim=1) if labels.is_floating_point() else terms
