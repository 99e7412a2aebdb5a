"""Area under the risk-coverage curve, as a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.losses.base import BatchLoss, label_log_probabilities, sum_dtype
from recalib.losses.confidence_scores import Confidence, rank_score


@dataclass(eq=False)
class Aurc(BatchLoss):
    """Area under the risk-coverage curve of cross-entropy; range [0, ∞).

    It is the mean over n of the mean loss of the n most confident rows of the batch. Row i of N, in
    order of increasing confidence, has weight Σ_{n=N−i+1}^{N} 1/n, the finite-batch form of the
    paper's −ln(1 − G). Weights have no gradient, because ranks are steps. Rows of equal confidence
    are ranked in batch order.

    Options: `confidence`, the score that ranks rows: `msp` (default), `margin` or
    `negative_entropy`.

    Use it where rows of low confidence are rejected, at any coverage.

    Source: Geifman, Uziel and El-Yaniv, ICLR 2019; paper 002, definition 3.3.
    """

    name: ClassVar[str] = "aurc"
    summary: ClassVar[str] = "mean loss of the most confident rows, averaged over all coverages"
    cost: ClassVar[str] = "N·(K + log N)"

    confidence: Confidence = "msp"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = -label_log_probabilities(logits, labels)
        with torch.no_grad():
            score = rank_score(logits, self.confidence)
            order = score.argsort(descending=True, stable=True)
            precision = sum_dtype(score.device)
            ranks = torch.arange(1, len(score) + 1, device=score.device, dtype=precision)
            # The k-th most confident row: the sum of 1/n from n = k to N. A sum in parallel would
            # have other bits each time.
            weights = (torch.digamma(ranks[-1] + 1) - torch.digamma(ranks)).to(score.dtype)
        return (weights * losses[order]).mean()
