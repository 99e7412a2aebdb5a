"""Calibration by pairwise constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from recalib.losses.base import Regulariser
from recalib.options import check_option

__all__ = ["Cpc"]


@dataclass(eq=False)
class Cpc(Regulariser):
    """Binary terms of every pair of classes, λ1·L_1v1 + λ2·L_BE (CPC); range [0, ∞).

    L_1v1 = −Σ_{k≠y} log(p_y / (p_y + p_k)): the label against each other class.
    L_BE = −Σ_{k,l≠y} (log(p_k / (p_k + p_l)) + log(p_l / (p_k + p_l))): classes that are not the
    label should be as likely as each other. The sum runs over ordered pairs, k = l included, as it
    is written; the source averages. Cost N·K².

    Its gradient in z_j is that of paper 001, S1.2, eqs. 5 and 6. What the paper makes of them
    contradicts itself: for j ≠ y, eqs. 7 and 8 and table 2 have the sign of L_1v1's term the
    wrong way round, and eq. 8 that of L_BE's too; a factor of 2 is left out on purpose.

    Options: `lambda1`, `lambda2` ≥ 0, by default 1 each: none of the papers gives values.

    Source: Cheng and Vasconcelos, Calibrating deep neural networks by pairwise constraints,
    CVPR 2022, as paper 001, S1.2, eqs. 2 to 4, gives it.
    """

    name: ClassVar[str] = "cpc"
    summary: ClassVar[str] = "binary calibration of every pair of classes"
    cost: ClassVar[str] = "N·K²"

    lambda1: float = 1.0
    lambda2: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("lambda1", self.lambda1, self.lambda1 >= 0, "lambda1 ≥ 0")
        check_option("lambda2", self.lambda2, self.lambda2 >= 0, "lambda2 ≥ 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        # −log(p_a / (p_a + p_b)) = softplus(z_b − z_a): no probability has to be formed.
        of_label = logits.gather(1, labels[:, None])
        against_label = functional.softplus(logits - of_label)
        others = torch.ones_like(logits).scatter(1, labels[:, None], 0.0)
        one_to_one = (against_label * others).sum(dim=1)
        pairs = functional.softplus(logits[:, :, None] - logits[:, None, :])
        each_way = (pairs * others[:, :, None] * others[:, None, :]).sum(dim=(1, 2))
        # Both orders of a pair hold both of its terms.
        return (self.lambda1 * one_to_one + 2 * self.lambda2 * each_way).mean()
