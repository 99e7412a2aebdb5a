"""Area under the risk-coverage curve, as a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.losses.base import Loss
from recalib.losses.confidence_scores import Confidence, losses_and_scores

__all__ = ["Aurc"]


@dataclass(eq=False)
class Aurc(Loss):
    """Area under the risk-coverage curve of cross-entropy; range [0, ∞).

    The mean over n of the mean loss of the n surest rows of the batch: row i of N, counted from
    the least sure, weighs Σ_{n=N−i+1}^{N} 1/n, which is −ln(1 − G) of the paper up to what a finite
    batch makes of it. The surer a row, the more it counts. Ranks are steps: weights have no
    gradient. Rows of equal confidence rank in the order of the batch. Cost N log N besides.

    Options: `confidence`, by which rows are ranked: `msp` (default), `margin` or
    `negative_entropy`.

    Source: Geifman, Uziel and El-Yaniv, ICLR 2019; paper 002, definition 3.3.
    """

    name: ClassVar[str] = "aurc"
    summary: ClassVar[str] = "mean loss among the surest rows, over all coverages"
    cost: ClassVar[str] = "N·(K + log N)"

    confidence: Confidence = "msp"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses, score = losses_and_scores(logits, labels, self.confidence)
        with torch.no_grad():
            surest_first = score.argsort(descending=True, stable=True)
            counts = torch.arange(len(score), 0, -1, device=score.device, dtype=score.dtype)
            # Of the k-th surest: the sum of 1/n from n = k to N.
            weights = counts.reciprocal().cumsum(0).flip(0)
        return (weights * losses[surest_first]).mean()
