"""Soft-binned calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.options import check_option
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

    bins: int = 15
    temperature: float = 0.01
    order: float = 2.0
    variant: Literal["binned", "label_binned"] = "label_binned"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("bins", self.bins, self.bins >= 1, "bins ≥ 1")
        check_option("temperature", self.temperature, self.temperature > 0, "temperature > 0")
        check_option("order", self.order, self.order >= 1, "order ≥ 1")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, correct = top_prediction(logits, labels)
        error: Tensor = soft_binned_error(
            ops_for(logits), confidence, correct.to(confidence.dtype), torch.ones_like(confidence),
            self.bins, self.temperature, self.order, self.variant,
        )  # fmt: skip
        return error
