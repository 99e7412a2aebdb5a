"""Soft-binned calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import AtLeastOne, Count, Positive
from recalib.losses.base import BatchLoss, Regulariser, ops_for, top_prediction
from recalib.ops.formulas import soft_binned_error


@dataclass(eq=False)
class SoftBinnedEce(BatchLoss, Regulariser):
    """Calibration error of the top prediction over soft bins; range [0, 1].

    `variant`:

    - `label_binned`, with which paper 000 trains: (1/N Σ_i Σ_j u_j(c_i) |A_j − c_i|^p)^(1/p), where
      u_j(c) is the membership of a confidence in bin j (`recalib.ops.formulas.soft_bins`), and A_j
      is the accuracy in bin j.
    - `binned`, never larger: (Σ_j S_j/N |A_j − C_j|^p)^(1/p).

    The estimate is noisy in small batches; the paper uses 512 rows.

    Options: `bins` M, default 15 as in paper 000; `temperature` T > 0 of the bins, default 0.01, at
    which neighbouring bins overlap (the paper tunes it and publishes no value); `order` p ≥ 1,
    default 2; `variant`.

    Source: paper 000, eqs. 8 to 12 and appendix G.
    """

    name: ClassVar[str] = "sb_ece"
    summary: ClassVar[str] = "calibration error of the top prediction over soft bins"
    cost: ClassVar[str] = "N·(K + M)"

    bins: Count = 15
    temperature: Positive = 0.01
    order: AtLeastOne = 2.0
    variant: Literal["binned", "label_binned"] = "label_binned"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, correct = top_prediction(logits, labels)
        error: Tensor = soft_binned_error(
            ops_for(logits), confidence, correct.to(confidence.dtype), torch.ones_like(confidence),
            self.bins, self.temperature, self.order, self.variant,
        )  # fmt: skip
        return error
