"""Calibration by pairwise constraints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from recalib.core.field_types import NonNegative
from recalib.losses.base import Regulariser, RowLoss, is_masked, is_transformed

#: Pairs of classes of all rows that are computed at once.
_MAX_ELEMENTS = 4_000_000


@dataclass(eq=False)
class Cpc(RowLoss, Regulariser):
    """Binary cross-entropies of every pair of classes, λ1·L_1v1 + λ2·L_BE (CPC); range [0, ∞).

    L_1v1 = −Σ_{k≠y} log(p_y / (p_y + p_k)): the label against each other class.
    L_BE = −Σ_{k,l≠y} (log(p_k / (p_k + p_l)) + log(p_l / (p_k + p_l))): least when all other
    classes are equally probable. The sum is over ordered pairs and includes k = l, as written; the
    source averages. Cost N·K², in parts, so that memory is N·K.

    The gradient in z_j is eqs. 5 and 6 of paper 001, S1.2. The paper's simplifications of them are
    inconsistent: for j ≠ y, eqs. 7 and 8 and table 2 have the opposite sign for L_1v1, and eq. 8
    has the opposite sign for L_BE too. A factor of 2 is omitted there on purpose.

    Options: `lambda1`, `lambda2` ≥ 0, default 1 each; the papers give no values.

    Use it where all pairs of few classes should be calibrated.

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
        pairs = _AllPairs.forward if is_transformed(logits) else _AllPairs.apply
        all_pairs: Tensor = pairs(logits, is_other_class)
        # Each ordered pair has both terms of the sum.
        return self.lambda1 * one_vs_one + 2 * self.lambda2 * all_pairs


class _AllPairs(torch.autograd.Function):
    """Σ softplus(z_k − z_l) over ordered pairs of the classes that count, of each row (N,).

    The gradient in z_k is Σ_l tanh((z_k − z_l) / 2): no array of N·K² elements is kept.
    """

    @staticmethod
    def forward(logits: Tensor, counts: Tensor) -> Tensor:
        parts = (
            (functional.softplus(differences) * pairs).sum(dim=(1, 2))
            for differences, pairs in _differences(logits, counts)
        )
        return sum(parts, start=logits.new_zeros(len(logits)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None]:
        logits, counts = ctx.saved_tensors
        parts = (
            (torch.tanh(differences / 2) * pairs).sum(dim=2)
            for differences, pairs in _differences(logits, counts)
        )
        return gradients[:, None] * sum(parts, start=torch.zeros_like(logits)), None


def _differences(logits: Tensor, counts: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield z_k − z_l and whether the pair counts, (N, K, L) each, for L classes l at a time."""
    classes = max(1, _MAX_ELEMENTS // max(logits.numel(), 1))
    parts = zip(torch.split(logits, classes, 1), torch.split(counts, classes, 1), strict=True)
    for some, are_counted in parts:
        yield (
            logits[:, :, None] - some[:, None, :],
            counts[:, :, None] * are_counted[:, None, :],
        )
