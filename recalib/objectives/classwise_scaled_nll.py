"""Class-wise scaled negative log-likelihood: classes with a large loss have a large weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.field_types import Interval, Positive
from recalib.objectives.base import Objective
from recalib.ops.base import Array, FittingOps

#: The start of alpha and beta (paper 003, section 5.1), and the range of beta.
_ALPHA, _BETA = 1.0, 1.5
_BETA_RANGE = (1.5, 2.0)
_LEAST_ALPHA = 0.1
#: Losses this close, as a fraction of their mean, are treated as equal.
_LEAST_SPREAD = 1e-2
_TINY = 1e-30


@dataclass(frozen=True)
class ClasswiseScaledNll(Objective):
    """Class-wise loss scaling: mean over classes of (1 + w_i) L_i, in nats.

    L_i is the mean −log p(y) of class i, n_i its normalised value among the classes, and

        w_i = β / (1 + exp(−n_i / α)) − β / 2,   in (−β/2, β/2).

    A class with an above-average loss has a larger weight, up to twice as large. Rare classes have
    the same weight as frequent ones, so this is not the likelihood even with w = 0. Classes without
    rows are left out of means, deviations and the sum; if one class remains, w = 0.

    Normalisations of L: `nd`, (L − mean) / standard deviation (eqs. 4 and 9); `mm`, (L − min) /
    (max − min) (eq. 10); `cm`, (L − mean) / (max − min) (eq. 11).

    After a first step from the uncalibrated start, SLSQP sets α and β to the minimum of eq. 6,
    starting at (1, 1.5); then they stay fixed. Eq. 6 writes the losses after the next step as
    L⁰ − w (L¹ − L⁰), with the opposite sign of a first-order step under weights 1 + w. As printed,
    its minimum is at the mildest weights, the bounds α = ln(K)/2 and β = 1.5, which reproduce the
    published digits. The gradient includes w, so a fit minimises one function; the published digits
    come from weights that are constant in each step.

    The paper contradicts itself: eq. 3 and the text sum the losses of a class, but the published
    digits come from their mean, which is used here; eq. 4 is the population deviation (ddof 0), but
    common code uses the sample deviation (ddof 1), which changes the published column by .03.

    Options: `normalisation`; `ddof`, 0 or 1; `alpha` > 0 and `beta` in [0, 2], set by the fit if
    not given.

    Use it where some classes have a larger loss than others and count as much.

    Source: paper 003, eqs. 3 to 11.
    """

    name: ClassVar[str] = "classwise_scaled_nll"
    summary: ClassVar[str] = "mean loss of each class, with larger weights for larger losses"

    normalisation: Literal["nd", "mm", "cm"] = "nd"
    ddof: Literal[0, 1] = 0
    alpha: Positive | None = None
    # Above 2 a class could have a negative weight.
    beta: Annotated[float, Interval(ge=0, le=2)] | None = None

    @property
    def summable(self) -> bool:
        return True

    def loss(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> Array:
        sums = self.sums(ops, log_probabilities, labels, weights)
        return self.of_sums(ops, sums, len(labels))

    def sums(
        self, ops: FittingOps, log_probabilities: Array, labels: Array, weights: Array
    ) -> tuple[Array, ...]:
        """Return the weighted losses and the weights of each class, (K,) each."""
        losses, classes = -ops.pick(log_probabilities, labels), log_probabilities.shape[-1]
        return (
            ops.sum_by_label(losses * weights, labels, classes),
            ops.sum_by_label(weights, labels, classes),
        )

    def of_sums(self, ops: FittingOps, sums: tuple[Array, ...], rows: float) -> Array:
        losses = _means(sums)
        return ((1 + self.scales(ops, losses)) * losses).mean()

    def scales(self, ops: FittingOps, losses: Array) -> Array:
        """Return w of each class from the mean losses of classes (eq. 5)."""
        alpha = _ALPHA if self.alpha is None else self.alpha
        beta = _BETA if self.beta is None else self.beta
        return beta / (1 + ops.exp(-self._normalise(losses) / alpha)) - beta / 2

    def settled_by_sums(
        self, ops: FittingOps, before: tuple[Array, ...], after: tuple[Array, ...]
    ) -> ClasswiseScaledNll:
        first, second = (np.asarray(_means(sums)) for sums in (before, after))
        alpha, beta = self._shape(first, second, len(before[0]))
        return replace(self, alpha=alpha, beta=beta)

    def _normalise(self, losses: Array) -> Array:
        if len(losses) < 2:
            return losses * 0.0
        mean = losses.mean()
        # Equal losses need no scaling. Without this term the objective has a kink at equal losses,
        # which maps with a bias for each class reach, and where gradient methods do not converge.
        least = _LEAST_SPREAD * mean
        if self.normalisation == "nd":
            variance = ((losses - mean) ** 2).sum() / (len(losses) - self.ddof)
            return (losses - mean) / (variance + least * least + _TINY) ** 0.5
        centre = mean if self.normalisation == "cm" else losses.min()
        return (losses - centre) / (losses.max() - losses.min() + least + _TINY)

    def _shape(
        self, before: NDArray[np.float64], after: NDArray[np.float64], classes: int
    ) -> tuple[float, float]:
        """Return the α and β that minimise eq. 6 as printed; a given one stays fixed."""
        normalised, mean = self._normalise(after), after.mean()

        def spread(shape: NDArray[np.float64]) -> float:
            scale = shape[1] / (1 + np.exp(-normalised / shape[0])) - shape[1] / 2
            return float(np.linalg.norm(before - scale * (after - before) - mean))

        widest = max(float(np.log(classes)) / 2, _LEAST_ALPHA)
        alphas = (_LEAST_ALPHA, widest) if self.alpha is None else (self.alpha, self.alpha)
        betas = _BETA_RANGE if self.beta is None else (self.beta, self.beta)
        # After a long step eq. 6 has local minima, most of them on an edge of the box.
        starts = [(float(np.clip(_ALPHA, *alphas)), betas[0]), *product(alphas, betas)]
        ends = [_slsqp(spread, start, (alphas, betas)) for start in starts]
        alpha, beta = min(ends, key=spread)
        return float(alpha), float(beta)


def _means(sums: tuple[Array, ...]) -> Array:
    """Return the mean loss of each class that occurs."""
    losses, weights = sums
    present = weights > 0
    return losses[present] / weights[present]


def _slsqp(
    function: Callable[[NDArray[np.float64]], float],
    start: tuple[float, float],
    bounds: tuple[tuple[float, float], tuple[float, float]],
) -> NDArray[np.float64]:
    # A first step changes the losses by a thousandth, so the default ftol would stop immediately.
    result = scipy.optimize.minimize(
        function, np.array(start), method="SLSQP", bounds=bounds, options={"ftol": 1e-15}
    )
    return np.clip(result.x, *np.transpose(bounds))
