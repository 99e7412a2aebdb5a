"""Selective risk where confidence is low (AU)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from recalib.losses.base import Loss
from recalib.losses.confidence_scores import Confidence, losses_and_scores, range_of
from recalib.options import check_option

__all__ = ["SelectiveRisk"]


@dataclass(eq=False)
class SelectiveRisk(Loss):
    """Area under the risk-coverage curve over the low-confidence region (AU); range [0, ∞).

    1/N Σ β_i ℓ_i, ℓ being cross-entropy and β_i = −ln(1 − G(g_i)) for rows of confidence score g
    under a threshold τ; the others all weigh −ln(1 − G(τ)). G is the distribution of scores in the
    batch, over M equal bins of the score's range with centres c_k and h_k of N rows each:
    G(g) = Σ_k h_k/N · σ((g − c_k)/ν). 1 − G is formed by its own sum and logarithm, so that no
    weight overflows.

    τ is the score under which the share `coverage` of the batch lies. It, and so the weight of all
    rows above it, has no gradient, which eq. 27 needs and the text does not say; nor have counts.

    The gradient through β rewards being less sure, and where nothing is known yet it may be the
    stronger one. With t = σ((1/K − c)/ν), c being the centre of the bin of 1/K, equal
    probabilities are a local minimum of the rows below τ, whatever their labels, where
    t·ln K / (K ν) > −ln(1 − t): for `msp` and K = 10 where ν < .17, and so at the default. A
    network then does not begin to learn, and one that has learnt little forgets it; ν = 1, of
    which the paper's figure 5 shows the effect, learns. The paper selects ν and the score on
    validation rows.

    Options: `coverage` in (0, 1], by default 0.9, and `nu` ν > 0, by default 0.1, both the paper's
    for ResNet-50 on CIFAR-10; `confidence`: `msp` (default), `margin` or `negative_entropy`;
    `bins` M, by default 15, so that .1 is within reach of a bin's width: the paper gives
    none.

    Source: paper 002, eqs. 8 to 17 and 27, algorithm 1, appendices A and E.2.
    """

    name: ClassVar[str] = "selective_risk"
    summary: ClassVar[str] = "cross-entropy weighted by the rank of confidence, where it is low"
    cost: ClassVar[str] = "N·(K + M)"

    coverage: float = 0.9
    nu: float = 0.1
    confidence: Confidence = "msp"
    bins: int = 15

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("coverage", self.coverage, 0 < self.coverage <= 1, "0 < coverage ≤ 1")
        check_option("nu", self.nu, self.nu > 0, "nu > 0")
        check_option("bins", self.bins, self.bins >= 1, "bins ≥ 1")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses, score = losses_and_scores(logits, labels, self.confidence)
        low, high = range_of(self.confidence, logits.shape[1])
        threshold = _threshold(score.detach(), self.coverage)
        low_scores = torch.where(score < threshold, score, threshold)
        weight = self._weight(low_scores, score.detach(), low, high)
        return (weight * losses).mean()

    def _weight(self, score: Tensor, batch: Tensor, low: float, high: float) -> Tensor:
        """Return −ln(1 − G(score)), G being the distribution of `batch`."""
        place = ((batch - low) * (self.bins / (high - low))).long().clamp(0, self.bins - 1)
        share = torch.bincount(place, minlength=self.bins).to(batch.dtype) / len(batch)
        width = (high - low) / self.bins
        places = torch.arange(self.bins, dtype=batch.dtype, device=batch.device)
        centres = low + width * (places + 0.5)
        above = functional.logsigmoid(-(score[:, None] - centres[None, :]) / self.nu)
        return -torch.logsumexp(share.log() + above, dim=1)


def _threshold(score: Tensor, coverage: float) -> Tensor:
    """Return the score under which the share `coverage` of rows lies; the largest for all."""
    below = min(int(coverage * len(score)), len(score) - 1)
    return score.kthvalue(below + 1).values
