"""Accuracy-versus-uncertainty losses: certain where correct, uncertain where wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from recalib.core.field_types import Fraction, Positive
from recalib.losses.base import (
    BatchLoss,
    Regulariser,
    entropy,
    is_masked,
    possible_classes,
    predict,
    take_column,
)
from recalib.losses.confidence_scores import log_entropy

#: Added to both sums: a batch may have no row in one of them.
_EPSILON = 1e-10
#: As released: the share of a uniform distribution in the probabilities, and the least denominator.
_RELEASED_EPSILON = 1e-5
_Variant = Literal["paper", "released"]


@dataclass(eq=False)
class Avuc(BatchLoss, Regulariser):
    """Accuracy-versus-uncertainty loss by an entropy threshold; range [0, ∞).

    log(1 + (n_AU + n_IC) / (n_AC + n_IU)), over accurate (A), inaccurate (I), certain (C) and
    uncertain (U) rows: n_AU = Σ c tanh h, n_IC = Σ (1−c)(1−tanh h), n_AC = Σ c (1−tanh h),
    n_IU = Σ (1−c) tanh h, with the entropy h in nats. A row is certain if h ≤ κ log K. More
    confidence in certain rows that are wrong decreases this loss; `avuc_gs` and `s_avuc` correct
    that.

    `variant`: `paper` adds 1e-10 to both sums; `released` is as in the code of paper 000, with the
    entropy of (1 − 1e-5) p + 1e-5/K and a denominator of at least 1e-5 instead.

    Options: `kappa` κ in (0, 1), the threshold as a fraction of the largest entropy, log K, so that
    it has the same meaning for any K and in `s_avuc`. Paper 000 compares h itself and tunes κ.
    Default 0.5, at which `s_avuc` is the identity. `variant`.

    Use it where an entropy threshold separates rows that a person looks at.

    Source: Krishnan and Tickoo 2020, as given in paper 000, eqs. 13 and 14;
    google/uncertainty-baselines, experimental/caltrain/secondary_losses.py.
    """

    name: ClassVar[str] = "avuc"
    summary: ClassVar[str] = "certain where correct, uncertain where wrong, by an entropy threshold"

    kappa: Fraction = 0.5
    variant: _Variant = "paper"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _hard(logits, labels, self.kappa, self.variant, stop_gradient=False)


@dataclass(eq=False)
class AvucGradientStopping(Avuc):
    """`avuc` with no gradient through c and 1 − c; the same value, range [0, ∞).

    Confidence in wrong rows is then not rewarded. Options as in `avuc`.

    Use it where `avuc` lowers the accuracy.

    Source: paper 000, appendix F.
    """

    name: ClassVar[str] = "avuc_gs"
    summary: ClassVar[str] = "avuc without a gradient through confidences"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _hard(logits, labels, self.kappa, self.variant, stop_gradient=True)


@dataclass(eq=False)
class SoftAvuc(BatchLoss, Regulariser):
    """Accuracy-versus-uncertainty loss with soft uncertainty; range [0, ∞).

    log(1 + (n_AU + n_IC) / (n_AC + n_IU)). Correct rows add t·tanh h to n_AU and
    (1−t)(1−tanh h) to n_AC; wrong rows add (1−t)(1−tanh h) to n_IC and t·tanh h to n_IU. h is the
    entropy in nats, h* = h / log K, and t = logistic(1/T · log(h*(1−κ) / ((1−h*)κ))), which is
    ½ at h* = κ and becomes a threshold for T → 0. K is the number of possible classes of the row.
    All sums are of logarithms, so confident rows that are wrong keep their gradient. h* is at most
    1 − 1e-6; above, t has no gradient.

    `variant`: `paper` is as above; `released` is as in the authors' code, with the entropy of
    (1 − 1e-5) p + 1e-5/K and a denominator of at least 1e-5, which bound the value and the gradient
    of confident rows that are wrong.

    Options: `kappa` κ in (0, 1) and `temperature` T > 0. Paper 000 tunes both and publishes
    neither. With the defaults, κ = .5 and T = 1, t is the identity. `variant`.

    Use it where as `avuc`, without a threshold to choose.

    Source: paper 000, eqs. 15 and 16; google/uncertainty-baselines,
    experimental/caltrain/secondary_losses.py.
    """

    name: ClassVar[str] = "s_avuc"
    summary: ClassVar[str] = "certain where correct, uncertain where wrong, without a threshold"

    kappa: Fraction = 0.5
    temperature: Positive = 1.0
    variant: _Variant = "paper"

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        top, prediction = predict(logits)
        if self.variant == "released":
            log_p = _log_probabilities(logits, self.variant)
            log_h = log_entropy(log_p, take_column(log_p.detach(), prediction), prediction)
        else:
            log_h = log_entropy(logits, top, prediction)
        correct = prediction == labels
        h, log_largest = log_h.exp(), _log_largest_entropy(logits)
        log_share = (log_h - log_largest).clamp_max(math.log1p(-1e-6))
        log_odds = log_share - torch.log(-torch.expm1(log_share))
        log_odds = (log_odds - math.log(self.kappa / (1 - self.kappa))) / self.temperature
        # tanh h = h to within h³/3; 1 − tanh h = 2 / (1 + e^2h).
        is_small = h < 1e-4
        log_tanh = torch.where(is_small, log_h, torch.where(is_small, 1.0, h).tanh().log())
        uncertain = functional.logsigmoid(log_odds) + log_tanh
        certain = functional.logsigmoid(-log_odds) + math.log(2) - functional.softplus(2 * h)
        inconsistent = torch.where(correct, uncertain, certain).logsumexp(dim=0)
        consistent = torch.where(correct, certain, uncertain).logsumexp(dim=0)
        if self.variant == "released":
            consistent = consistent.clamp_min(math.log(_RELEASED_EPSILON))
        return functional.softplus(inconsistent - consistent)


def _hard(
    logits: Tensor, labels: Tensor, kappa: float, variant: _Variant, *, stop_gradient: bool
) -> Tensor:
    log_p, prediction = _log_probabilities(logits, variant), predict(logits)[1]
    h, confidence = entropy(log_p), take_column(logits.softmax(dim=1), prediction)
    correct = prediction == labels
    if stop_gradient:
        confidence = confidence.detach()
    certain = h <= kappa * _log_largest_entropy(logits).exp()
    terms = torch.where(correct, confidence, 1 - confidence)
    terms = terms * torch.where(certain, 1 - h.tanh(), h.tanh())
    is_consistent = correct == certain
    inconsistent, consistent = (terms * ~is_consistent).sum(), (terms * is_consistent).sum()
    if variant == "released":
        return torch.log1p(inconsistent / consistent.clamp_min(_RELEASED_EPSILON))
    return torch.log(inconsistent + consistent + 2 * _EPSILON) - torch.log(consistent + _EPSILON)


def _log_probabilities(logits: Tensor, variant: _Variant) -> Tensor:
    """Return log p of each class, (N, K); as released, of a mixture with a uniform distribution."""
    log_p = logits.log_softmax(dim=1)
    if variant == "paper":
        return log_p
    uniform = math.log(_RELEASED_EPSILON) - possible_classes(log_p).log()[:, None]
    mixture = torch.logaddexp(log_p + math.log1p(-_RELEASED_EPSILON), uniform)
    return mixture.masked_fill(is_masked(log_p), -torch.inf)


def _log_largest_entropy(logits: Tensor) -> Tensor:
    """Return log log K of the number K of possible classes of each row, at least 2, (N,)."""
    return possible_classes(logits).clamp_min(2).log().log()
