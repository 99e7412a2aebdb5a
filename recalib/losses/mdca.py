"""Difference between confidence and accuracy, class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.losses.base import Regulariser
from recalib.losses.softmax import mean_softmax

__all__ = ["Mdca"]


@dataclass(eq=False)
class Mdca(Regulariser):
    """Σ_k |mean p_k − share of class k| over the batch (MDCA); range [0, 2].

    A batch's class-wise calibration error with all rows in one bin. Its gradient in a row's logits
    is p_j (a_j − Σ_k a_k p_k) / N, a_k being the sign of class k's difference; the row of table 2
    in paper 001 is that for a_ŷ = 1 and all other signs −1, without the other classes' p in the
    sum. The source divides by K.

    Source: Hebbalaguppe et al., A stitch in time saves nine, CVPR 2022, as paper 001, S1.3, eq. 9,
    gives it.
    """

    name: ClassVar[str] = "mdca"
    summary: ClassVar[str] = "difference between mean probability and share, class by class"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        share = torch.bincount(labels, minlength=logits.shape[1]).to(logits.dtype) / len(labels)
        return (mean_softmax(logits) - share).abs().sum()
