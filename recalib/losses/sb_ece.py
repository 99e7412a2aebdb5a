"""Soft-binned calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from recalib.core.field_types import AtLeastOne, Count, Positive
from recalib.losses.base import (
    BatchLoss,
    Regulariser,
    is_transformed,
    ops_for,
    possible_classes,
    split_rows,
    top_prediction,
)
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

    The estimate is noisy in small batches; the paper uses 512 rows. Memory is N·K: memberships are
    computed in parts, and again for the gradient. With another variant or order it is N·(K + M).

    Options: `bins` M, default 15 as in paper 000; `temperature` T > 0 of the bins, default 0.01, at
    which neighbouring bins overlap (the paper tunes it and publishes no value); `order` p ≥ 1,
    default 2; `variant`.

    Use it where the metric to improve is ECE, with batches of at least a hundred rows.

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
            lowest = possible_classes(logits).reciprocal()[:, None]
            return self._released(confidence, correct, lowest)
        if self.variant == "label_binned" and self.order == 2 and not is_transformed(logits):
            power, _, _ = _LabelBinned.apply(  # type: ignore[no-untyped-call]
                confidence, correct, self.bins, self.temperature
            )
            # The root has no slope at 0; this constant is far below the resolution of any sample.
            return (power + 1e-18).sqrt()
        options = self.bins, self.temperature, self.order, self.variant
        return _error(confidence, correct, *options)

    def _released(self, confidence: Tensor, correct: Tensor, lowest: Tensor) -> Tensor:
        """Return the loss of bins over [lowest, 1], lowest (N, 1)."""
        bins = torch.arange(self.bins, dtype=confidence.dtype, device=confidence.device)
        gaps = lowest + (1 - lowest) * (bins + 0.5) / self.bins - confidence[:, None]
        membership = (-gaps.square() / self.temperature).softmax(dim=1)
        membership = (1 - _EPSILON) * membership + _EPSILON / self.bins
        accuracy = correct @ membership / membership.sum(dim=0)
        errors = (accuracy - confidence[:, None]).abs() ** self.order
        return (membership * errors).sum() / len(errors)


def _error(confidence: Tensor, correct: Tensor, *options: Any) -> Tensor:
    ops, ones = ops_for(confidence), torch.ones_like(confidence)
    return soft_binned_error(ops, confidence, correct, ones, *options)


class _LabelBinned(torch.autograd.Function):
    """1/N Σ_i Σ_j u_j(c_i) (A_j − c_i)², without an array of rows and bins.

    A part of the rows has the sums S_j of u_j, F_j of u_j (B_j − c_i) and Q_j of u_j (B_j − c_i)²,
    where B_j is its own accuracy in bin j: no digits are lost where all gaps are small. About A_j,
    the last one is Q_j + 2 (A_j − B_j) F_j + (A_j − B_j)² S_j.
    """

    @staticmethod
    def forward(
        confidence: Tensor, correct: Tensor, bins: int, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return also A_j, and the slope in A_j over the membership of all rows, (M, 1) each."""
        parts = []
        for c, a in split_rows(confidence, correct):
            u, _, scale = _memberships(c, bins, temperature)
            hits, total = u @ (a * scale), u @ scale
            gaps = _accuracy(hits, total)[:, None] - c
            first = u.mul_(gaps) @ scale
            parts.append(torch.stack([hits, total, first, u.mul_(gaps) @ scale]))
        hits, total, first, second = torch.stack(parts, dim=1)
        accuracy = _accuracy(hits.sum(dim=0), total.sum(dim=0))
        moves = accuracy - _accuracy(hits, total)
        slope = first + moves * total
        power = (second + moves * (first + slope)).sum() / len(confidence)
        slope = _accuracy(2 * slope.sum(dim=0), total.sum(dim=0))
        # Rounding of equal confidences may go below 0.
        return power.clamp_min(0), accuracy[:, None], slope[:, None]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        confidence, correct, *ctx.options = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(confidence, correct, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        confidence, correct, accuracy, slope = ctx.saved_tensors
        bins, temperature = ctx.options
        if torch.is_grad_enabled():  # for a second derivative
            root = _error(confidence, correct, bins, temperature, 2.0, "label_binned")
            slopes = torch.autograd.grad(root**2, confidence, gradient, create_graph=True)
            return *slopes, None, None, None
        parts = []
        for c, a in split_rows(confidence, correct):
            u, distances, scale = _memberships(c, bins, temperature)
            gaps = accuracy - c
            terms = gaps.square().addcmul_(slope, a - accuracy)
            # The slope of u_j in c is −2/√T · u_j · (distance_j − mean distance).
            means = (u * distances).sum(dim=0).mul_(scale)
            distances.sub_(means).mul_(terms).add_(gaps, alpha=temperature**0.5)
            parts.append(u.mul_(distances).sum(dim=0).mul_(scale))
        factor = -2 / temperature**0.5 / len(confidence) * gradient
        return factor * torch.cat(parts), None, None, None


def _accuracy(hits: Tensor, total: Tensor) -> Tensor:
    # A bin whose membership underflows has no error.
    return hits / total.clamp_min(torch.finfo(total.dtype).tiny)


def _memberships(
    confidence: Tensor, bins: int, temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return u_j times a number of the row, the distance to ξ_j over √T, and 1 over the number.

    Shapes (M, N), (M, N) and (N,).
    """
    numbers = torch.arange(bins, dtype=confidence.dtype, device=confidence.device)
    width = 1 / bins / temperature**0.5
    scaled = confidence / temperature**0.5
    distances = scaled - (numbers[:, None] + 0.5) * width
    nearest = (confidence * bins).floor_().clamp_(0, bins - 1).add_(0.5).mul_(width)
    # The largest exponent is 0.
    u = torch.addcmul((scaled - nearest).square_(), distances, distances, value=-1).exp_()
    return u, distances, u.sum(dim=0).reciprocal_()
