"""Margin-based label smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import NonNegative
from recalib.losses.base import Regulariser, RowLoss, is_masked


@dataclass(eq=False)
class Mbls(RowLoss, Regulariser):
    """Margin-based label smoothing, Σ_k max(0, z_ŷ − z_k − M); range [0, ∞).

    It penalises logits that are more than M below the largest, linearly. The source averages over
    classes.

    `variant`: `loss` is eq. 14 as written; its gradient decreases the largest logit by as much as
    it increases all others. `gradient` has the same value, with the largest logit held constant, as
    in eq. 15 and table 2.

    Options: `margin` M ≥ 0, default 10 (paper 001 uses 6 for CIFAR-10); `variant`.

    Use it where label smoothing lowers the distances between logits too much.

    Source: Liu et al., The devil is in the margin, CVPR 2022, as given in paper 001, S1.4.
    """

    name: ClassVar[str] = "mbls"
    summary: ClassVar[str] = "penalty on logits more than a margin below the largest"

    accepts_probabilities: ClassVar[bool] = True

    margin: NonNegative = 10.0
    variant: Literal["loss", "gradient"] = "loss"

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        largest = logits.max(dim=1, keepdim=True).values
        if self.variant == "gradient":
            largest = largest.detach()
        gaps = torch.where(is_masked(logits), 0.0, largest - logits)
        return (gaps - self.margin).relu().sum(dim=1)
