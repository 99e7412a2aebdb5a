"""Soft-binned calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import AtLeastOne, Count, Positive
from recalib.losses.base import BatchLoss, Regulariser, is_masked, ops_for, top_prediction
from recalib.ops.formulas import soft_binned_error

#: Share of a uniform distribution in the memberships as released.
_EPSILON = 1e-5


@dataclass(eq=False)
class SoftBinnedEce(BatchLoss, Regulariser):
    """Calibration error of the top prediction over soft bins; range [0, 1].

    `variant`:

    - `label_binned`, as paper 000 writes it: (1/N Σ_i Σ_j u_j(c_i) |A_j − c_i|^p)^(1/p), where
      u_j(c) is the membership of a confidence in bin j (`recalib.ops.formulas.soft_bins`), and A_j
      is the accuracy in bin j.
    - `binned`, never larger: (Σ_j S_j/N |A_j − C_j|^p)^(1/p).
    - `released`, with which paper 000 trains: `label_binned` without the root, with bins over
      [1/K, 1], K being the number of possible classes of the row, and memberships
      (1 − 1e-5) u_j + 1e-5/M.

    The estimate is noisy in small batches; the paper uses 512 rows.

    Options: `bins` M, default 15 as in paper 000; `temperature` T > 0 of the bins, default 0.01, at
    which neighbouring bins overlap (the paper tunes it and publishes no value); `order` p ≥ 1,
    default 2; `variant`.

    Source: paper 000, eqs. 8 to 12 and appendix G; google/uncertainty-baselines,
    experimental/caltrain/secondary_losses.py.
    """

    name: ClassVar[str] = "sb_ece"
    summary: ClassVar[str] = "calibration error of the top prediction over soft bins"
    cost: ClassVar[str] = "N·(K + M)"

    bins: Count = 15
    temperature: Positive = 0.01
    order: AtLeastOne = 2.0
    variant: Literal["binned", "label_binned", "released"] = "label_binned"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, is_correct = top_prediction(logits, labels)
        correct = is_correct.to(confidence.dtype)
        if self.variant == "released":
            lowest = 1 / (~is_masked(logits)).sum(dim=1, keepdim=True).to(confidence.dtype)
            return self._released(confidence, correct, lowest)
        error: Tensor = soft_binned_error(
            ops_for(logits), confidence, correct, torch.ones_like(confidence),
            self.bins, self.temperature, self.order, self.variant,
        )  # fmt: skip
        return error

    def _released(self, confidence: Tensor, correct: Tensor, lowest: Tensor) -> Tensor:
        """Return the loss of bins over [lowest, 1], lowest (N, 1)."""
        bins = torch.arange(self.bins, dtype=confidence.dtype, device=confidence.device)
        gaps = lowest + (1 - lowest) * (bins + 0.5) / self.bins - confidence[:, None]
        membership = (-gaps.square() / self.temperature).softmax(dim=1)
        membership = (1 - _EPSILON) * membership + _EPSILON / self.bins
        accuracy = correct @ membership / membership.sum(dim=0)
        errors = (accuracy - confidence[:, None]).abs() ** self.order
        return (membership * errors).sum() / len(errors)
