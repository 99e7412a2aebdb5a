"""Focal loss: with a fixed, a scheduled and a sample-dependent exponent."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import scipy
import torch
from torch import Tensor

from recalib.core.field_types import NonNegative
from recalib.core.options import check_option
from recalib.errors import InputError
from recalib.losses.base import (
    RowLoss,
    label_log_probabilities,
    ops_for,
)
from recalib.ops.formulas import focal_terms_from_log_p


@dataclass(eq=False)
class Focal(RowLoss):
    """Focal loss, −(1 − p_y)^γ log p_y; range [0, ∞).

    Rows that are classified correctly count less, the more so the larger γ; γ = 0 is
    cross-entropy. It is an upper bound of the divergence from the label minus γ times the entropy.
    Its gradient in the logits is that of cross-entropy times
    g(p_y, γ) = (1 − p)^γ − γ p (1 − p)^(γ−1) log p. It is not proper: its minimum has less
    confidence than the true probabilities. Labels that are probabilities weight the terms
    −(1 − p_k)^γ log p_k of all classes.

    Options: `gamma` γ ≥ 0, default 3, the best fixed exponent of paper 004.

    Use it where a network becomes overconfident, and one number γ may be tuned.

    Source: paper 004, section 4 and proposition 1; paper 002, eq. 2.
    """

    name: ClassVar[str] = "focal"
    summary: ClassVar[str] = "cross-entropy that gives less weight to confident correct rows"
    accepts_probabilities: ClassVar[bool] = True

    gamma: NonNegative = 3.0

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _focal(logits, labels, self.gamma)


@dataclass(eq=False)
class FocalScheduled(RowLoss):
    """Focal loss whose γ depends on the progress of training; range [0, ∞).

    Options: `gamma`, the exponents; `until`, the fraction of all epochs at which each exponent but
    the last ends. The default, (5, 3, 2) until (100/350, 250/350), is FLSc-532. The first exponent
    is used until `start_epoch` is called.

    Use it where the focal loss costs accuracy late in training.

    Source: paper 004, appendix E. (5, 3, 1), FLSc-531 there, is worse in table 5.
    """

    name: ClassVar[str] = "focal_scheduled"
    summary: ClassVar[str] = "focal loss whose exponent decreases during training"
    accepts_probabilities: ClassVar[bool] = True
    depends_on_epochs: ClassVar[bool] = True

    gamma: tuple[float, ...] = (5.0, 3.0, 2.0)
    until: tuple[float, ...] = (100 / 350, 250 / 350)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_steps(self.gamma, "until", self.until)
        self._progress = 0.0

    def start_epoch(self, epoch: int, epochs: int) -> None:
        self._progress = epoch / epochs

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        # 100/350 is not exact in binary: rounding must not delay a step by an epoch.
        step = sum(self._progress + 1e-9 >= end for end in self.until)
        return _focal(logits, labels, self.gamma[step])


@dataclass(eq=False)
class FocalSampleDependent(RowLoss):
    """Focal loss whose γ depends on p_y of each row (FLSD); range [0, ∞).

    Options: `gamma`, the exponents; `until`, the probability below which each exponent but the last
    is used. (5, 3) until (0.2,) is FLSD-53, the default; (5, 3, 2) until (0.2, 0.5) is FLSD-532.
    The choice of γ has no gradient. p_y of exactly .2 has γ = 3, as in section 4; the caption of
    table 4 closes the interval on the other side.

    `p0` replaces `gamma` by probabilities: each exponent is then `gamma_for(p0)`, with which rows
    above p0 have smaller gradients than with cross-entropy. p0 = (.2, .25) gives (4.85, 3.07),
    which FLSD-53 rounds.

    Use it where the focal loss leaves hard rows underconfident.

    Source: paper 004, section 4, proposition 2 and appendix E.
    """

    name: ClassVar[str] = "focal_sample_dependent"
    summary: ClassVar[str] = "focal loss whose exponent depends on the row, FLSD-53"
    accepts_probabilities: ClassVar[bool] = True

    gamma: tuple[float, ...] = (5.0, 3.0)
    until: tuple[float, ...] = (0.2,)
    p0: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._steps = tuple(map(gamma_for, self.p0)) or self.gamma
        _check_steps(self._steps, "until", self.until)

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = label_log_probabilities(logits, labels)
        p = log_p.detach().exp()
        gamma = torch.full_like(p, self._steps[-1])
        for end, step in zip(reversed(self.until), reversed(self._steps[:-1]), strict=True):
            gamma = torch.where(p < end, step, gamma)
        return _terms(log_p, labels, gamma)


def gamma_for(p0: float) -> float:
    """Return γ* with g(p0, γ*) = 1: above p0, focal gradients are smaller than cross-entropy's.

    γ* = a/b + W₋₁(−a^(1−a/b) log a / b) / log a, where a = 1 − p0 and b = p0 log p0; 4.85 at .2
    and 3.07 at .25.

    Raises
    ------
    InputError: p0 outside (0, .5). From .5 on the root is 0, which is cross-entropy: the two
        branches of W meet there, and no positive γ has the property.

    Source: paper 004, proposition 2.
    """
    check_option("p0", p0, 0 < p0 < 0.5, "0 < p0 < 0.5")
    a, b = 1 - p0, p0 * np.log(p0)
    argument = -(a ** (1 - a / b)) / b * np.log(a)
    return float(a / b + scipy.special.lambertw(argument, k=-1).real / np.log(a))


def _focal(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    return _terms(label_log_probabilities(logits, labels), labels, gamma)


def _terms(log_p: Tensor, labels: Tensor, gamma: float | Tensor) -> Tensor:
    """Return the loss of each row, (N,); with probabilities as labels, a sum over classes."""
    terms: Tensor = focal_terms_from_log_p(ops_for(log_p), log_p, gamma)
    return (labels * terms).sum(dim=1) if labels.is_floating_point() else terms


def _check_steps(gamma: tuple[float, ...], name: str, ends: tuple[float, ...]) -> None:
    for exponent in gamma:
        check_option("gamma", exponent, exponent >= 0, "gamma ≥ 0")
    for end in ends:
        check_option(name, end, 0 < end < 1, f"0 < {name} < 1")
    if len(gamma) != len(ends) + 1 or any(a >= b for a, b in pairwise(ends)):
        raise InputError(
            f"options.{name}",
            found=f"{list(ends)} for {len(gamma)} exponents",
            accepted="increasing numbers, one fewer than exponents",
        )
