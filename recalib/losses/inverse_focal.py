"""Inverse focal loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.losses.base import Loss
from recalib.losses.softmax import softmax_of
from recalib.options import check_option

__all__ = ["InverseFocal"]


@dataclass(eq=False)
class InverseFocal(Loss):
    """Inverse focal loss, −(1 + p_y)^γ log p_y; range [0, ∞).

    Rows that the network has right count more: what focal loss does, turned round. From
    γ ≈ 3.6 on, its slope in p_y is positive around p_y = .28, so that descent makes the label's
    probability smaller there; paper 002 says so of more than 3.5 in section 5 and of 4 in
    appendix C.2.

    Options: `gamma` γ ≥ 0, by default 2, which paper 002 selected for ResNet-50 on CIFAR-10.

    Source: paper 002, eq. 3 and appendices C.2 and E.1.
    """

    name: ClassVar[str] = "inverse_focal"
    summary: ClassVar[str] = "cross-entropy that counts rows the more, the surer they are right"

    gamma: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("gamma", self.gamma, self.gamma >= 0, "gamma ≥ 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = softmax_of(logits, labels).label
        return -((1 + log_p.exp()) ** self.gamma * log_p).mean()
