"""Multi-class difference between confidence and accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.losses.base import BatchLoss, Regulariser, count_labels


@dataclass(eq=False)
class Mdca(BatchLoss, Regulariser):
    """Σ_k |mean p_k − frequency of class k| over the batch (MDCA); range [0, 2].

    This is the class-wise calibration error of the batch with a single bin. Its gradient in a row's
    logits is p_j (a_j − Σ_k a_k p_k) / N, where a_k is the sign of class k's difference. Table 2 of
    paper 001 is the case a_ŷ = 1 and all other signs −1, without the other classes' p in the sum.
    The source divides by K.

    Use it where the probabilities of all classes matter, not only the largest.

    Source: Hebbalaguppe et al., A stitch in time saves nine, CVPR 2022, as given in paper 001,
    S1.3, eq. 9.
    """

    name: ClassVar[str] = "mdca"
    summary: ClassVar[str] = "difference between mean probability and frequency, class by class"

    accepts_probabilities: ClassVar[bool] = True

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        frequencies = count_labels(labels, logits) / len(labels)
        return (logits.softmax(dim=1).mean(dim=0) - frequencies).abs().sum()
