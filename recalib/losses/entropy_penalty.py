"""Penalty on confident predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from recalib.losses.base import Regulariser, RowLoss, entropy


@dataclass(eq=False)
class EntropyPenalty(RowLoss, Regulariser):
    """Negative entropy, Σ_k p_k log p_k, in nats; range [−log K, 0].

    The minimum is the uniform prediction, for any label. Also called ECP.

    Use it where a simple remedy for overconfidence is added to another loss.

    Source: Pereyra et al., Regularizing neural networks by penalizing confident output
    distributions, ICLR workshop 2017; paper 001, section 2; paper 004, eq. 4.
    """

    name: ClassVar[str] = "entropy_penalty"
    summary: ClassVar[str] = "negative entropy: a penalty on confident predictions"

    accepts_probabilities: ClassVar[bool] = True

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return -entropy(logits.log_softmax(dim=1))
