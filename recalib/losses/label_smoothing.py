"""Cross-entropy with smoothed labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.losses.base import Loss
from recalib.losses.softmax import softmax_of
from recalib.options import check_option

__all__ = ["LabelSmoothing"]


@dataclass(eq=False)
class LabelSmoothing(Loss):
    """Cross-entropy against 1 − α on the label and α/(K−1) on each other class; range [0, ∞).

    −(1 − α) log p_y − α/(K−1) Σ_{k≠y} log p_k, least at those very probabilities. Paper 001, eq. 4,
    spreads ε over all K classes: that is α = ε (K−1)/K.

    Options: `smoothing` α in [0, 1), by default 0.05, the better of paper 004's two.

    Source: paper 004, section 5.1.
    """

    name: ClassVar[str] = "label_smoothing"
    summary: ClassVar[str] = "cross-entropy with a share of each label on the other classes"

    smoothing: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("smoothing", self.smoothing, 0 <= self.smoothing < 1, "0 ≤ smoothing < 1")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        # `formulas.smoothed_cross_entropy` without its masks, which cost more than all the rest.
        found = softmax_of(logits, labels, "total")
        share = self.smoothing / (logits.shape[1] - 1)
        of_others = found.total - found.label
        return -((1 - self.smoothing) * found.label + share * of_others).mean()
