"""Soft-binned calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from recalib.core.field_types import AtLeastOne, Count, Positive
from recalib.losses.base import BatchLoss, Regulariser, is_masked, ops_for, top_prediction
from recalib.ops.formulas import soft_binned_error

#: Rows whose memberships are computed at once: they stay in the cache of a processor.
_ROWS = 4096
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

    The estimate is noisy in small batches; the paper uses 512 rows. Memory is N·K: memberships are
    computed in parts, and again for the gradient. For the other variants it is N·(K + M).

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
        if self.variant == "label_binned":
            power, _, _ = _LabelBinned.apply(  # type: ignore[no-untyped-call]
                confidence, correct, self.bins, self.temperature, self.order
            )
            # The root has no slope at 0; this constant is far below the resolution of any sample.
            root: Tensor = (power + 1e-18) ** (1 / self.order)
            return root
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


class _LabelBinned(torch.autograd.Function):
    """1/N Σ_i Σ_j u_j(c_i) |A_j − c_i|^p, without an array of rows and bins."""

    @staticmethod
    def forward(
        confidence: Tensor, correct: Tensor, bins: int, temperature: float, order: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return also A_j, and the slope in A_j over the membership of all rows, (M, 1) each."""
        rows = list(zip(*(torch.split(x, _ROWS) for x in (confidence, correct)), strict=True))
        total = hits = confidence.new_zeros(bins, 1)
        for c, a in rows:
            u, _ = _memberships(c, bins, temperature)
            total = total + u.sum(dim=1, keepdim=True)
            hits = hits + u @ a[:, None]
        # A bin whose membership underflows has no error.
        total = total.clamp_min(torch.finfo(total.dtype).tiny)
        accuracy = hits / total
        power, slope = confidence.new_zeros(()), torch.zeros_like(accuracy)
        for c, _ in rows:
            gaps = accuracy - c
            shares = gaps.abs().pow_(order - 1).mul_(_memberships(c, bins, temperature)[0])
            power = power + (shares * gaps.abs()).sum()
            slope = slope + (shares * gaps.sign()).sum(dim=1, keepdim=True)
        return power / len(confidence), accuracy, order * slope / total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        confidence, correct, *ctx.options = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(confidence, correct, *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        confidence, correct, accuracy, slope = ctx.saved_tensors
        bins, temperature, order = ctx.options
        parts = []
        for c, a in zip(*(torch.split(x, _ROWS) for x in (confidence, correct)), strict=True):
            u, distances = _memberships(c, bins, temperature)
            gaps = accuracy - c
            powers = gaps.abs().pow_(order - 1)
            terms = powers * gaps.abs() + slope * (a - accuracy)
            # The slope of u_j in c is −2/T · u_j · (distance_j − mean distance).
            steeper = (distances - (u * distances).sum(dim=0)).mul_(-2 / temperature).mul_(terms)
            parts.append((u * (steeper - order * powers * gaps.sign())).sum(dim=0))
        return gradient / len(confidence) * torch.cat(parts), None, None, None, None


def _memberships(confidence: Tensor, bins: int, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the membership in each bin, and the distance to its centre, (M, N) each."""
    numbers = torch.arange(bins, dtype=confidence.dtype, device=confidence.device)
    centres = (numbers[:, None] + 0.5) / bins
    distances = confidence - centres
    nearest = (confidence * bins).floor_().clamp_(0, bins - 1).add_(0.5).div_(bins)
    # The largest exponent is 0.
    u = distances.square().sub_((confidence - nearest).square_()).div_(-temperature).exp_()
    return u.div_(u.sum(dim=0)), distances
