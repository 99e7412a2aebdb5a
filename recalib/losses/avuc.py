"""Accuracy versus uncertainty: be certain where right, and uncertain where wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from recalib.losses.base import Regulariser
from recalib.losses.softmax import softmax_of
from recalib.options import check_option

__all__ = ["Avuc", "AvucGradientStopping", "SoftAvuc"]

#: Added to both sums, so that a batch with nothing in one of them has a loss.
_LEAST = 1e-10


@dataclass(eq=False)
class Avuc(Regulariser):
    """Accuracy-versus-uncertainty loss with a threshold on entropy; range [0, ∞).

    log(1 + (n_AU + n_IC) / (n_AC + n_IU)), over accurate (A), inaccurate (I), certain (C) and
    uncertain (U) rows: n_AU = Σ c tanh h, n_IC = Σ (1−c)(1−tanh h), n_AC = Σ c (1−tanh h),
    n_IU = Σ (1−c) tanh h, h being the entropy in nats. Among certain rows that are wrong, more
    confidence makes it smaller, which is what `avuc_gs` and `s_avuc` are there to mend. 1e-10 is
    added to both sums.

    Options: `kappa` κ in (0, 1), the threshold as a share of the largest entropy, log K, so that
    it means the same for any K and in `s_avuc`; paper 000 compares h itself, and tunes κ. By
    default 0.5, where `s_avuc` has the identity. A row is certain up to κ and with it.

    Source: Krishnan and Tickoo 2020, as paper 000, eqs. 13 and 14, gives it.
    """

    name: ClassVar[str] = "avuc"
    summary: ClassVar[str] = "certain where right, uncertain where wrong, by a threshold"

    kappa: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("kappa", self.kappa, 0 < self.kappa < 1, "0 < kappa < 1")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _hard(logits, labels, self.kappa, stopped=False)


@dataclass(eq=False)
class AvucGradientStopping(Avuc):
    """`avuc` with no gradient through c and 1 − c; the same value, range [0, ∞).

    Then nothing rewards confidence in rows that are wrong. Options as in `avuc`.

    Source: paper 000, appendix F.
    """

    name: ClassVar[str] = "avuc_gs"
    summary: ClassVar[str] = "avuc without its gradient through confidences"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _hard(logits, labels, self.kappa, stopped=True)


@dataclass(eq=False)
class SoftAvuc(Regulariser):
    """Accuracy-versus-uncertainty loss with soft uncertainty; range [0, ∞).

    log(1 + (n_AU + n_IC) / (n_AC + n_IU)): right rows count t·tanh h in n_AU and
    (1−t)(1−tanh h) in n_AC; wrong rows (1−t)(1−tanh h) in n_IC and t·tanh h in n_IU. h is the
    entropy in nats, h* = h / log K, and t = logistic(1/T · log(h*(1−κ) / ((1−h*)κ))), which is
    ½ at h* = κ; T → 0 makes it a threshold. 1e-10 is added to both sums, and h* is kept 1e-6 away
    from 0 and 1, beyond which t has no gradient.

    Options: `kappa` κ in (0, 1) and `temperature` T > 0. Paper 000 tunes both and publishes
    neither; κ = .5 and T = 1, the defaults, make t the identity.

    Source: paper 000, eqs. 15 and 16.
    """

    name: ClassVar[str] = "s_avuc"
    summary: ClassVar[str] = "certain where right, uncertain where wrong, softly"

    kappa: float = 0.5
    temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("kappa", self.kappa, 0 < self.kappa < 1, "0 < kappa < 1")
        check_option("temperature", self.temperature, self.temperature > 0, "temperature > 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        found = softmax_of(logits, labels, "largest", "entropy")
        h, right = found.entropy, found.place == labels
        share = (h / math.log(logits.shape[1])).clamp(1e-6, 1 - 1e-6)
        odds = torch.logit(share) - math.log(self.kappa / (1 - self.kappa))
        t = torch.sigmoid(odds / self.temperature)
        uncertain, certain = t * h.tanh(), (1 - t) * (1 - h.tanh())
        return _log_ratio(
            torch.where(right, uncertain, certain).sum(),
            torch.where(right, certain, uncertain).sum(),
        )


def _hard(logits: Tensor, labels: Tensor, kappa: float, *, stopped: bool) -> Tensor:
    found = softmax_of(logits, labels, "largest", "entropy")
    h, confidence, right = found.entropy, found.largest.exp(), found.place == labels
    if stopped:
        confidence = confidence.detach()
    certain = h <= kappa * math.log(logits.shape[1])
    terms = torch.where(right, confidence, 1 - confidence)
    terms = terms * torch.where(certain, 1 - h.tanh(), h.tanh())
    wanted = right == certain
    return _log_ratio((terms * ~wanted).sum(), (terms * wanted).sum())


def _log_ratio(unwanted: Tensor, wanted: Tensor) -> Tensor:
    """Return log(1 + unwanted / wanted)."""
    return torch.log(unwanted + wanted + 2 * _LEAST) - torch.log(wanted + _LEAST)
