"""Calibration by pairwise constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from recalib.core.field_types import NonNegative
from recalib.losses.base import Regulariser, RowLoss, is_masked


@dataclass(eq=False)
class Cpc(RowLoss, Regulariser):
    """Binary cross-entropies of every pair of classes, λ1·L_1v1 + λ2·L_BE (CPC); range [0, ∞).

    L_1v1 = −Σ_{k≠y} log(p_y / (p_y + p_k)): the label against each other class.
    L_BE = −Σ_{k,l≠y} (log(p_k / (p_k + p_l)) + log(p_l / (p_k + p_l))): least when all other
    classes are equally probable. The sum is over ordered pairs and includes k = l, as written; the
    source averages. Cost N·K².

    The gradient in z_j is eqs. 5 and 6 of paper 001, S1.2. The paper's simplifications of them are
    inconsistent: for j ≠ y, eqs. 7 and 8 and table 2 have the opposite sign for L_1v1, and eq. 8
    has the opposite sign for L_BE too. A factor of 2 is omitted there on purpose.

    Options: `lambda1`, `lambda2` ≥ 0, default 1 each; the papers give no values.

    Source: Cheng and Vasconcelos, Calibrating deep neural networks by pairwise constraints,
    CVPR 2022, as given in paper 001, S1.2, eqs. 2 to 4.
    """

    name: ClassVar[str] = "cpc"
    summary: ClassVar[str] = "binary cross-entropy of every pair of classes"
    cost: ClassVar[str] = "N·K²"

    lambda1: NonNegative = 1.0
    lambda2: NonNegative = 1.0

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        # −log(p_a / (p_a + p_b)) = softplus(z_b − z_a): no probability is computed.
        masked = is_masked(logits)
        logits = torch.where(masked, 0.0, logits)
        label_logits = logits.gather(1, labels[:, None])
        against_label = functional.softplus(logits - label_logits)
        is_other_class = (~masked).to(logits.dtype).scatter(1, labels[:, None], 0.0)
        one_vs_one = (against_label * is_other_class).sum(dim=1)
        pairs = functional.softplus(logits[:, :, None] - logits[:, None, :])
        all_pairs = (pairs * is_other_class[:, :, None] * is_other_class[:, None, :]).sum(
            dim=(1, 2)
        )
        # Each ordered pair has both terms of the sum.
        return self.lambda1 * one_vs_one + 2 * self.lambda2 * all_pairs
