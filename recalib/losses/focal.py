"""Focal loss: one exponent, one that falls with the epochs, one for each row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import scipy
import torch
from torch import Tensor

from recalib.errors import InputError
from recalib.formulas import focal_terms_from_log_p
from recalib.losses.base import Loss, ops_for
from recalib.losses.softmax import softmax_of
from recalib.options import check_option

__all__ = ["Focal", "FocalSampleDependent", "FocalScheduled", "gamma_for"]


@dataclass(eq=False)
class Focal(Loss):
    """Focal loss, −(1 − p_y)^γ log p_y; range [0, ∞).

    Rows that the network has right count less, the more the larger γ; γ = 0 is cross-entropy. An
    upper bound of the divergence from the label less γ times the entropy. In the logits its
    gradient is that of cross-entropy times g(p_y, γ) = (1 − p)^γ − γ p (1 − p)^(γ−1) log p.
    Improper: it prefers less confidence than the truth.

    Options: `gamma` γ ≥ 0, by default 3, the best fixed one of paper 004.

    Source: paper 004, section 4 and proposition 1; paper 002, eq. 2.
    """

    name: ClassVar[str] = "focal"
    summary: ClassVar[str] = "cross-entropy that counts rows the less, the surer they are right"

    gamma: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("gamma", self.gamma, self.gamma >= 0, "gamma ≥ 0")

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _focal(logits, labels, self.gamma)


@dataclass(eq=False)
class FocalScheduled(Loss):
    """Focal loss whose γ depends on how far training has come; range [0, ∞).

    `gamma` lists the exponents, and `until` the shares of all epochs after which each but the last
    ends: (5, 3, 2) until (100/350, 250/350), FLSc-532. Before the first epoch is announced by
    `start_epoch`, the first counts.

    Source: paper 004, appendix E. (5, 3, 1), its FLSc-531, does worse in its table 5.
    """

    name: ClassVar[str] = "focal_scheduled"
    summary: ClassVar[str] = "focal loss whose exponent falls as training goes on"

    gamma: tuple[float, ...] = (5.0, 3.0, 2.0)
    until: tuple[float, ...] = (100 / 350, 250 / 350)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_steps(self.gamma, "until", self.until)
        self._progress = 0.0

    def start_epoch(self, epoch: int, epochs: int) -> None:
        self._progress = epoch / epochs

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        # A little early rather than an epoch late: 100/350 is not exact.
        passed = sum(self._progress + 1e-9 >= end for end in self.until)
        return _focal(logits, labels, self.gamma[passed])


@dataclass(eq=False)
class FocalSampleDependent(Loss):
    """Focal loss whose γ depends on p_y of each row (FLSD); range [0, ∞).

    `gamma` lists the exponents, and `until` the probabilities below which each but the last
    counts: (5, 3) until (0.2,) is FLSD-53; (5, 3, 2) until (0.2, 0.5) is FLSD-532. γ is chosen,
    not differentiated. p_y of exactly .2 has γ = 3, as section 4 has it; the caption of table 4
    closes the interval on the other side.

    Instead of `gamma`, `p0` lists probabilities, and each exponent is the γ from which on
    rows above p0 get smaller gradients than from cross-entropy: see `gamma_for`. p0 = (.2, .25)
    gives (4.85, 3.07), of which FLSD-53 is the rounded form.

    Source: paper 004, section 4, proposition 2 and appendix E.
    """

    name: ClassVar[str] = "focal_sample_dependent"
    summary: ClassVar[str] = "focal loss whose exponent depends on the row, FLSD-53"

    gamma: tuple[float, ...] = (5.0, 3.0)
    until: tuple[float, ...] = (0.2,)
    p0: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._steps = tuple(map(gamma_for, self.p0)) or self.gamma
        _check_steps(self._steps, "until", self.until)

    def value(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_p = softmax_of(logits, labels).label
        of_label = log_p.detach().exp()
        ends = torch.tensor(self.until, dtype=of_label.dtype, device=of_label.device)
        steps = torch.tensor(self._steps, dtype=of_label.dtype, device=of_label.device)
        gamma = steps[torch.bucketize(of_label, ends, right=True)]
        terms: Tensor = focal_terms_from_log_p(ops_for(logits), log_p, gamma)
        return terms.mean()


def gamma_for(p0: float) -> float:
    """Return the γ* at which g(p0, γ*) = 1: above p0, a focal gradient is the smaller one.

    γ* = a/b + W₋₁(−a^(1−a/b) log a / b) / log a, where a = 1 − p0 and b = p0 log p0; 4.85 at .2
    and 3.07 at .25.

    Raises
    ------
    InputError: p0 outside (0, .5). From .5 on the root is 0, which is cross-entropy: the paper's
        negative branch then meets the other, and no positive γ has the property.

    Source: paper 004, proposition 2.
    """
    check_option("p0", p0, 0 < p0 < 0.5, "0 < p0 < 0.5")
    a, b = 1 - p0, p0 * np.log(p0)
    argument = -(a ** (1 - a / b)) / b * np.log(a)
    return float(a / b + scipy.special.lambertw(argument, k=-1).real / np.log(a))


def _focal(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    log_p = softmax_of(logits, labels).label
    terms: Tensor = focal_terms_from_log_p(ops_for(logits), log_p, gamma)
    return terms.mean()


def _check_steps(gamma: tuple[float, ...], name: str, ends: tuple[float, ...]) -> None:
    for one in gamma:
        check_option("gamma", one, one >= 0, "gamma ≥ 0")
    for end in ends:
        check_option(name, end, 0 < end < 1, f"0 < {name} < 1")
    if len(gamma) != len(ends) + 1 or any(one >= other for one, other in pairwise(ends)):
        raise InputError(
            f"options.{name}",
            found=f"{list(ends)} for {len(gamma)} exponents",
            accepted="one less than exponents, rising",
        )
