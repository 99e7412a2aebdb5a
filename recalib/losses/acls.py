"""Adaptive and conditional label smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import NonNegative
from recalib.losses.base import Regulariser, RowLoss, is_masked


@dataclass(eq=False)
class Acls(RowLoss, Regulariser):
    """Adaptive and conditional label smoothing (ACLS); range [0, ∞).

    λ1 ReLU(z_ŷ − min z − M)² + λ2 Σ_{j≠ŷ} ReLU(z_ŷ − z_j − M)². It decreases the predicted logit
    and increases the others, in proportion to how far their distance exceeds the margin.

    `variant`:

    - `loss`: eq. 13 as written. Its gradient is not eq. 12: it is twice as large and also acts on
      the smallest logit and, through every other class, on the largest.
    - `gradient`: half of eq. 13, with min z held constant in the first term and z_ŷ in the second.
      Its gradient is eq. 12, from which the paper starts.
    - `released`: as in the authors' code, λ1 ReLU(z_ŷ − M)² + λ2 mean_{j≠ŷ} ReLU(z_ŷ − z_j − M)²
      with z_ŷ held constant in the second term. It changes when a constant is added to all logits.

    Options: `lambda1` and `lambda2` ≥ 0; `margin` M ≥ 0, default 10 (the paper uses 6 for
    CIFAR-10); `variant`. The paper's λ1 of 0.1 and λ2 of 0.01 are those of its code, with a mean
    over K − 1 classes and no lowest logit: they are the defaults of `released`, K being the number
    of possible classes of the row. Those of the other forms are min(0.1, 1 / (K − 1)), because the
    range of the logits grows with K and the first term with its square, and 0.01 / (K − 1).

    Use it where label smoothing is to depend on the row.

    Source: paper 001, eqs. 10 to 13 and section 4.1; cvlab-yonsei/ACLS, calibrate/losses/acls.py.
    """

    name: ClassVar[str] = "acls"
    summary: ClassVar[str] = "label smoothing that adapts to how far logits exceed a margin"

    accepts_probabilities: ClassVar[bool] = True

    lambda1: NonNegative | None = None
    lambda2: NonNegative | None = None
    margin: NonNegative = 10.0
    variant: Literal["loss", "gradient", "released"] = "loss"

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        masked = is_masked(logits)
        largest = logits.max(dim=1, keepdim=True).values
        lowest = logits.masked_fill(masked, torch.inf).min(dim=1, keepdim=True).values
        if self.variant == "released":
            lowest = torch.zeros_like(lowest)
        elif self.variant == "gradient":
            lowest = lowest.detach()
        predicted = (largest - lowest - self.margin).relu().square()[:, 0]
        fixed = largest if self.variant == "loss" else largest.detach()
        gaps = torch.where(masked, 0.0, fixed - logits)
        # The term of the predicted class is 0: its gap is 0, and M ≥ 0.
        other_terms = (gaps - self.margin).relu().square().sum(dim=1)
        others = ((~masked).sum(dim=1) - 1).clamp_min(1).to(logits.dtype)
        if self.variant == "released" or self.lambda2 is None:
            other_terms = other_terms / others
        lambda1: Tensor | float = 0.1 if self.lambda1 is None else self.lambda1
        if self.variant != "released" and self.lambda1 is None:
            lambda1 = (1 / others).clamp_max(0.1)
        lambda2 = 0.01 if self.lambda2 is None else self.lambda2
        total = lambda1 * predicted + lambda2 * other_terms
        return total / 2 if self.variant == "gradient" else total
