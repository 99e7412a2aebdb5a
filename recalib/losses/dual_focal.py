"""Dual focal loss: as the paper defines it, and as its code was released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.core.field_types import NonNegative
from recalib.losses.base import RowLoss, take_column

#: Lower bound of the base of the power. A root has no derivative at 0.
_MIN_BASE = 1e-12


@dataclass(eq=False)
class DualFocal(RowLoss):
    """Dual focal loss, −(1 − p_y + p_j)^γ log p_y; range [0, ∞).

    p_j is the largest probability among the other classes. The smaller the margin of the label, the
    more a row counts; rows that are misclassified count most.

    Options: `gamma` γ ≥ 0, default 5, which paper 002 selected for ResNet-50 on CIFAR-10.

    Use it where the focal loss overshoots to underconfidence.

    Source: Tao, Dong and Xu, Dual focal loss for calibration, ICML 2023, as paper 002, eq. 24,
    gives it.
    """

    name: ClassVar[str] = "dual_focal"
    summary: ClassVar[str] = "focal loss by the label's margin over the strongest other class"

    gamma: NonNegative = 5.0

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p, rival = _label_and_rival(logits, labels)
        base = (1 - log_p.exp() + rival.exp()).clamp_min(_MIN_BASE)
        return -(base**self.gamma * log_p)


@dataclass(eq=False)
class DualFocalReleased(DualFocal):
    """Dual focal loss as released, according to paper 002: without p_j in misclassified rows.

    −(1 − p_y + p_j)^γ log p_y where p_y ≥ p_j, and −(1 − p_y)^γ log p_y elsewhere; range [0, ∞).
    It is discontinuous at p_y = p_j, and rows that are wrong count less than rows that are nearly
    right, the opposite of the paper's intention.

    Use it where the numbers of its paper are reproduced.

    Source: paper 002, eqs. 25 and 26.
    """

    name: ClassVar[str] = "dual_focal_released"
    summary: ClassVar[str] = "dual focal loss as released: no rival in misclassified rows"

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p, rival = _label_and_rival(logits, labels)
        rival_p = torch.where(log_p >= rival, rival.exp(), 0.0)
        base = (1 - log_p.exp() + rival_p).clamp_min(_MIN_BASE)
        return -(base**self.gamma * log_p)


def _label_and_rival(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return log p_y and the largest log p of another class, each (N,)."""
    log_p = logits.log_softmax(dim=1)
    other_log_p = log_p.scatter(1, labels[:, None], -torch.inf)
    return take_column(log_p, labels), other_log_p.max(dim=1).values
