"""Maximum mean calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.losses.base import Regulariser, top
from recalib.options import check_option

__all__ = ["Mmce"]


@dataclass(eq=False)
class Mmce(Regulariser):
    """Maximum mean calibration error of the top prediction; range [0, 1] (weighted: [0, 2]).

    √(1/N² Σ_ij (a_i − c_i)(a_j − c_j) k(c_i, c_j)), a_i being 1 where row i is right, and k the
    kernel exp(−|c_i − c_j| / w). `weighted` normalises right and wrong rows apart, so that neither
    is lost among the other: with e_i = a_i − c_i over the number of rows that are as right as i,
    √(Σ_ij e_i e_j k). Cost N². Where every row is right with confidence 1, both value
    and gradient are 0, though the root has no slope there.

    Options: `width` w > 0, by default 0.4; `weighted`, by default no. Papers 000 and 004 add it to
    cross-entropy, 004 twice over (β = 2; 8 for documents), and give no formula: this is the
    source's.

    Source: Kumar, Sarawagi and Jain, Trainable calibration measures for neural networks from
    kernel mean embeddings, ICML 2018, section 3.
    """

    name: ClassVar[str] = "mmce"
    summary: ClassVar[str] = "calibration error of the top prediction, by a kernel"
    cost: ClassVar[str] = "N² + N·K"

    width: float = 0.4
    weighted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("width", self.width, self.width > 0, "width > 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, right = top(logits, labels)
        kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / self.width)
        error = right.to(confidence.dtype) - confidence
        if self.weighted:
            share = right.to(confidence.dtype).mean()
            error = error / torch.where(right, share, 1 - share)
        square = (error @ kernel @ error) / len(error) ** 2
        positive = square > 0
        return torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0.0)
