"""Maximum mean calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import Positive
from recalib.losses.base import BatchLoss, Regulariser, top_prediction


@dataclass(eq=False)
class Mmce(BatchLoss, Regulariser):
    """Maximum mean calibration error of the top prediction; range [0, 1] (weighted: [0, 2]).

    √(1/N² Σ_ij (a_i − c_i)(a_j − c_j) k(c_i, c_j)), where a_i is 1 if row i is correct and 0
    otherwise, and k is the kernel exp(−|c_i − c_j| / w). `weighted` normalises correct and wrong
    rows separately, so that the smaller group counts: √(Σ_ij e_i e_j k), where e_i is a_i − c_i
    divided by the number of rows s_i in the group of i. Cost N². If every row is correct with
    confidence 1, value and gradient are 0, although the root has no derivative there.

    `variant`:

    - `paper`: as above.
    - `released`: as in the code of paper 004, without the root; with `weighted`,
      √(Σ_ij e_i e_j k / (s_i s_j + 1e-5) + 1e-10), which divides by the numbers of rows twice, and
      0 if all rows are correct or all are wrong. Paper 004 trains with the second and β = 2.

    Options: `width` w > 0, default 0.4; `weighted`, default false; `variant`. Papers 000 and 004
    add this loss to cross-entropy, 004 with β = 2 (8 for documents), and give no formula; the
    formula of `paper` is the source's.

    Use it where the calibration error of a batch of at least a hundred rows is trained on.

    Source: Kumar, Sarawagi and Jain, Trainable calibration measures for neural networks from
    kernel mean embeddings, ICML 2018, section 3; torrvision/focal_calibration, Losses/mmce.py.
    """

    name: ClassVar[str] = "mmce"
    summary: ClassVar[str] = "calibration error of the top prediction, with a kernel"
    cost: ClassVar[str] = "N² + N·K"

    width: Positive = 0.4
    weighted: bool = False
    variant: Literal["paper", "released"] = "paper"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, correct = top_prediction(logits, labels)
        kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / self.width)
        error = correct.to(confidence.dtype) - confidence
        if self.weighted:
            accuracy = correct.to(confidence.dtype).mean()
            share = torch.where(correct, accuracy, 1 - accuracy)
            error = error / share
            if self.variant == "released":
                sizes = share * len(error)
                kernel = kernel / (sizes[:, None] * sizes[None, :] + 1e-5)
        square = (error @ kernel @ error) / len(error) ** 2
        if self.variant == "released":
            if not self.weighted:
                return square
            mixed = correct.any() & ~correct.all()
            return torch.where(mixed, (square.clamp_min(0.0) + 1e-10).sqrt(), 0.0)
        positive = square > 0
        return torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0.0)
