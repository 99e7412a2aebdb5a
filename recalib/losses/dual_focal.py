"""Dual focal loss: as its paper means it, and as its code was released."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.losses.base import Loss
from recalib.losses.softmax import softmax_of
from recalib.options import check_option

__all__ = ["DualFocal", "DualFocalReleased"]

#: The smallest base of a power: below it nothing is left of a weight, and a root has no slope.
_LEAST = 1e-12


@dataclass(eq=False)
class DualFocal(Loss):
    """Dual focal loss, −(1 − p_y + p_j)^γ log p_y; range [0, ∞).

    p_j is the largest probability of another class: rows whose label leads by less count more, and
    most of all those where another class leads.

    Options: `gamma` γ ≥ 0, by default 5, which paper 002 selected for ResNet-50 on CIFAR-10.

    Source: Tao, Dong and Xu, Dual focal loss for calibration, ICML 2023, as paper 002, eq. 24,
    gives it.
    """

    name: ClassVar[str] = "dual_focal"
    summary: ClassVar[str] = "focal loss by the label's lead over the strongest other class"

    gamma: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("gamma", self.gamma, self.gamma >= 0, "gamma ≥ 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        found = softmax_of(logits, labels, "rival")
        log_p, rival = found.label, found.rival
        base = (1 - log_p.exp() + rival.exp()).clamp_min(_LEAST)
        return -(base**self.gamma * log_p).mean()


@dataclass(eq=False)
class DualFocalReleased(DualFocal):
    """Dual focal loss as paper 002 found it released: without p_j where another class leads.

    −(1 − p_y + p_j)^γ log p_y where p_y ≥ p_j, and −(1 − p_y)^γ log p_y elsewhere; range [0, ∞).
    It jumps where the two are equal, and rows that are wrong count less than rows that
    are nearly right: the opposite of what was meant.

    Source: paper 002, eqs. 25 and 26.
    """

    name: ClassVar[str] = "dual_focal_released"
    summary: ClassVar[str] = "dual focal loss as released: no rival where another class leads"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        found = softmax_of(logits, labels, "rival")
        log_p, rival = found.label, found.rival
        lead = torch.where(log_p >= rival, rival.exp(), 0.0)
        base = (1 - log_p.exp() + lead).clamp_min(_LEAST)
        return -(base**self.gamma * log_p).mean()
