"""Selective risk in the low-confidence region (AU)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from recalib.core.field_types import Count, Interval, Positive
from recalib.losses.base import BatchLoss
from recalib.losses.confidence_scores import Confidence, losses_and_scores, score_range


@dataclass(eq=False)
class SelectiveRisk(BatchLoss):
    """Area under the risk-coverage curve over the low-confidence region (AU); range [0, ∞).

    1/N Σ β_i ℓ_i, where ℓ is cross-entropy and β_i = −ln(1 − G(g_i)) for rows with a confidence
    score g below a threshold τ. All other rows have weight −ln(1 − G(τ)). G is the soft
    distribution of scores in the batch, over M equal bins of the score's range with centres c_k and
    counts h_k: G(g) = Σ_k h_k/N · σ((g − c_k)/ν). 1 − G is computed as a log-sum-exp, so weights do
    not overflow.

    τ is the `coverage` quantile of the scores in the batch. τ, and with it the weight of all rows
    above, has no gradient, which eq. 27 needs and the text omits. The counts have no gradient.

    The gradient through β rewards lower confidence, and early in training it may dominate. With
    t = σ((1/K − c)/ν), c being the centre of the bin that contains 1/K, uniform probabilities are a
    local minimum for the rows below τ, for any labels, if t·ln K / (K ν) > −ln(1 − t). For
    `msp` and K = 10 this holds for ν < .17, including the default: an untrained network does not
    learn, and a network early in training unlearns. With ν = 1 (the paper's figure 5) it learns.
    The paper selects ν and the score on validation rows.

    Options: `coverage` in (0, 1], default 0.9, and `nu` ν > 0, default 0.1, both the paper's for
    ResNet-50 on CIFAR-10; `confidence`: `msp` (default), `margin` or `negative_entropy`; `bins` M,
    default 15, of a width comparable to ν = .1 (the paper gives no number).

    Use it where rows of low confidence are rejected, and errors among the accepted ones count.

    Source: paper 002, eqs. 8 to 17 and 27, algorithm 1, appendices A and E.2.
    """

    name: ClassVar[str] = "selective_risk"
    summary: ClassVar[str] = "cross-entropy weighted by rank in the low-confidence region"
    cost: ClassVar[str] = "N·(K + M)"

    coverage: Annotated[float, Interval(gt=0, le=1)] = 0.9
    nu: Positive = 0.1
    confidence: Confidence = "msp"
    bins: Count = 15

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses, score = losses_and_scores(logits, labels, self.confidence)
        low, high = score_range(self.confidence, logits.shape[1])
        threshold = _threshold(score.detach(), self.coverage)
        low_scores = torch.where(score < threshold, score, threshold)
        weight = self._weight(low_scores, score.detach(), low, high)
        return (weight * losses).mean()

    def _weight(self, score: Tensor, batch: Tensor, low: float, high: float) -> Tensor:
        """Return −ln(1 − G(score)), where G is the soft distribution of `batch`."""
        indices = ((batch - low) * (self.bins / (high - low))).long().clamp(0, self.bins - 1)
        counts = torch.zeros(self.bins, dtype=batch.dtype, device=batch.device)
        frequency = counts.scatter_add(0, indices, torch.ones_like(batch)) / len(batch)
        width = (high - low) / self.bins
        bins = torch.arange(self.bins, dtype=batch.dtype, device=batch.device)
        centres = low + width * (bins + 0.5)
        log_above = functional.logsigmoid(-(score[:, None] - centres[None, :]) / self.nu)
        return -torch.logsumexp(frequency.log() + log_above, dim=1)


def _threshold(score: Tensor, coverage: float) -> Tensor:
    """Return the `coverage` quantile of the scores; the largest score for a coverage of 1."""
    rank = min(int(coverage * len(score)), len(score) - 1)
    return score.sort().values[rank]
