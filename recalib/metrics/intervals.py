"""Intervals for calibration errors over bins, from nothing but each bin's gap and its variance.

A bin's gap ĝ is taken for a normal variable with mean g and variance v, its share w for known. Of
what is not known, the sizes of the true gaps, the worst case is assumed: none of the intervals
leans on an estimate of the bias, which for a sum of absolute values nobody can have (Cai and Low,
Annals of Statistics 39, 2011). Arrays are (B,), of the bins that hold anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

__all__ = [
    "interval_of_convex_error",
    "interval_of_largest_gap",
    "interval_of_mean_gap",
    "interval_of_mean_squared_gap",
    "variances_under",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
VariancesUnder = Callable[[Vector], Vector]

#: Bins whose noise is drawn; the sum of all others, each of them smaller, is taken for normal.
_DRAWN = 6
_DRAWS = 2000
#: Scales beyond which a noncentral χ² is as good as a gamma variable, and slow.
_FAR = 2000.0


def interval_of_mean_gap(
    weights: Vector,
    gaps: Vector,
    variances: Vector,
    level: float,
    *,
    rows: int,
    copies: int = 1,
) -> tuple[float, float]:
    """Return an interval for θ = Σ w|g| around t = Σ w|ĝ|, within [0, 1].

    With c = w√v, x = |g|/√v and z standard normal, t is Σ c|x + z|, and t − θ = Σ c(|x + z| − x)
    falls where any x rises. Hence

    - the lower end is t minus the 1 − α/2 quantile of Σ c(|ℓ + z| − ℓ), where ℓ is smaller than
      x: what is found, |ĝ|/√v, less √(2 ln B), which no noise of B bins exceeds by much;
    - the upper end is the largest θ = Σ c·x that t does not contradict where the noise adds least
      to it, which is where all x are equal (|x + z| − x has a convex mean). It is contradicted if
      P(T ≤ t) < α/2 · P₀(T ≤ t): as Read (2002) has it, so that a t that is too good to be true
      gives no interval of width 0.

    Parameters
    ----------
    rows: N, by which the shares of bins vary.
    copies: how many bins may err together: 2 for bins of several classes, since the residuals of
        a row add up to 0 over classes. Σ_k s_k r_k with signs s is twice the residual of "the
        label is among those of s = 1", of variance 4Q(1 − Q) ≤ 2 Σ q(1 − q): at most twice what
        independent classes would have. Bins are taken in pairs of like size that err alike.
    """
    tail = (1 - level) / 2
    found = np.abs(gaps) / np.sqrt(variances)
    scales, found = _in_groups(weights * np.sqrt(variances), found, copies)
    t = float(np.sum(weights * np.abs(gaps)))
    shares = _variance_of_shares(weights, gaps, variances) / rows
    most_noise = scipy.special.ndtri((1 + (1 - tail) ** (1 / len(gaps))) / 2)
    least = np.maximum(found - most_noise, 0.0)
    off = _quantile(_Noise(scales, least, shares), 1 - tail)
    total = float(scales.sum())

    def doubt(x: float) -> float:
        noise = _Noise(scales, np.full_like(scales, x), shares)
        return noise.at_most(t - x * total)

    target = tail * doubt(0.0)
    furthest = 1 / total
    if doubt(furthest) >= target:
        return max(t - off, 0.0), 1.0
    x = scipy.optimize.brentq(lambda x: doubt(x) - target, 0.0, furthest, xtol=1e-4)
    return max(t - off, 0.0), float(x) * total


def interval_of_mean_squared_gap(
    weights: Vector,
    gaps: Vector,
    variances: Vector,
    level: float,
    *,
    rows: int,
    copies: int = 1,
    under: VariancesUnder | None = None,
) -> tuple[float, float]:
    """Return an interval for θ = Σ wg² around t = Σ wĝ², within [0, 1].

    The ends are where P(T ≥ t) = α/2 and P(T ≤ t) = α/2 · P₀(T ≤ t), the upper one as Read (2002)
    has it, with T the variable of `_law_of_squares`. The upper end is also at most (√t + z·s)²,
    where s² is the largest w·v, by `under` too, and what shares of rows add: √t is a norm of a + n,
    at least its part along a, which is ‖a‖ and a normal variable of no larger variance.

    Parameters: as `interval_of_mean_gap`; bins that err together multiply the variance. `under`
    gives the variances under the θ that is tested, from the sizes of its gaps; without it they
    are `variances`, which is too narrow where few bins hold many rows.
    """
    law = _law_of_squares(weights, gaps, variances, rows, copies, under)
    t = float(np.sum(weights * gaps**2))
    tail = (1 - level) / 2
    chance = _at_most(t, *law(0.0))
    low = _crossing(lambda theta: 1 - _at_most(t, *law(theta)), tail, 0.0)
    high = _crossing(lambda theta: _at_most(t, *law(theta)), tail * chance, 1.0)
    shares = _share_variance(weights, gaps, variances, 2 * np.log(len(gaps) + 1)) * t / (4 * rows)

    def furthest(tested: Vector) -> float:
        error = np.sqrt(copies * float(np.max(weights * tested)) + shares)
        return min(high, float(np.sqrt(t) - scipy.special.ndtri(tail) * error) ** 2)

    if under is not None:
        there = under(_sizes(furthest(variances), weights, gaps, variances))
        variances = np.maximum(variances, there)
    return low, furthest(variances)


def _sizes(theta: float, weights: Vector, gaps: Vector, variances: Vector) -> Vector:
    """Return |g| of bins whose Σwg² is `theta`, in the proportion of what was found beyond noise.

    Where no gap is larger than its noise, all are taken to be of one size.
    """
    parts = np.maximum(gaps**2 - variances, 0)
    found = float(weights @ parts)
    sizes: Vector = np.sqrt(theta / found * parts if found > 0 else np.full_like(parts, theta))
    return sizes


def _at_most(t: float, theta: float, noise: float, variance: float) -> float:
    """Return P(T ≤ t) of a scaled noncentral χ², of mean θ + `noise` and of this variance.

    Scale c, ν = noise/c degrees of freedom and noncentrality λ = θ/c have the variance
    c(2·noise + 4θ). Exact of one bin.
    """
    scale = variance / (2 * noise + 4 * theta)
    if t / scale < _FAR:
        return float(scipy.special.chndtr(t / scale, noise / scale, theta / scale))
    # Patnaik's approximation (1949), good where ν + λ are large.
    mean = theta + noise
    return float(scipy.special.gammainc(mean**2 / variance, t * mean / variance))


def _share_variance(weights: Vector, gaps: Vector, variances: Vector, beyond: float) -> float:
    """Return N·Var(T)/θ² that comes of shares of rows: Σwg⁴/θ² − 1.

    Of what g² is beyond so many times its variance, which for bins that are nearly empty shall be
    more than all noise: g⁴ would be little else.
    """
    sure = np.maximum(gaps**2 - beyond * variances, 0)
    found = float(weights @ np.maximum(gaps**2 - variances, 0))
    if found == 0:
        return 0.0
    return max(float(weights @ sure**2) - float(weights @ sure) ** 2, 0.0) / found**2


def _law_of_squares(
    weights: Vector,
    gaps: Vector,
    variances: Vector,
    rows: int,
    copies: int,
    under: VariancesUnder | None,
) -> Callable[[float], tuple[float, float, float]]:
    """Return of T = Σ wĝ², as a function of θ: θ, Σwv and the variance.

    The variance is 2Σw²v² + 4Σw²vg² + θ²·k/N, the last since shares of rows vary. Σw²vg² is θ times
    a mean of w·v, by the gaps found and not below what equal noncentralities would give.
    """
    parts = np.maximum(gaps**2 - variances, 0)
    found = float(weights @ parts)
    beyond = 1.0 if copies == 1 else 2 * np.log(len(gaps) + 1)
    share_variance = _share_variance(weights, gaps, variances, beyond) / rows

    def moments(theta: float) -> tuple[float, float, float]:
        sizes = _sizes(theta, weights, gaps, variances)
        tested = variances if under is None else under(sizes)
        noise = weights * tested
        mean, squares = float(noise.sum()), copies * float(noise @ noise)
        spread = squares / mean
        if found > 0:
            spread = max(spread, copies * float((weights * parts) @ noise) / found)
        return theta, mean, 2 * squares + 4 * theta * spread + share_variance * theta**2

    return moments


def variances_under(
    counts: NDArray[Any],
    confidences: Vector,
    gaps: Vector,
    variances: Vector,
    extra: float = 2.0,
) -> VariancesUnder:
    """Return a function from gaps' sizes (B,) to what `variances` would be, were they so large.

    In the proportion of q(1 − q) at the accuracies that gaps of these sizes and the signs found
    make, where q has `extra` rights and wrongs more. A surprising share of errors brings its own
    variance with it: without this, 95% would be 92% where all rows are in one bin. As found where
    a gap's size is 0, since that says nothing of its sign.
    """

    def binomial(accuracies: Vector) -> Vector:
        q: Vector = (accuracies * counts + extra) / (counts + 2 * extra)
        return q * (1 - q)

    as_found = binomial(np.clip(confidences + gaps, 0, 1))

    def under(sizes: Vector) -> Vector:
        tested = binomial(np.clip(confidences + np.copysign(sizes, gaps), 0, 1))
        tested_variances: Vector = variances * np.where(sizes > 0, tested / as_found, 1.0)
        return tested_variances

    return under


def interval_of_convex_error(
    value: float, weights: Vector, variances: Vector, level: float
) -> tuple[float, float]:
    """Return an interval for θ = Σ w·f(a) around `value`, Σ w·f(â), within [0, 1].

    For accuracies a and convex functions f, another for each bin, none steeper than 1. With
    â = a + √v·z, the value is at most Σ w√v|z| too large; and at least Σ w√v·s·z, where s are
    slopes of f at a, so that it is hardly more than a normal variable of variance Σ w²v too small.
    """
    tail = (1 - level) / 2
    scales = np.sort(weights * np.sqrt(variances))[::-1, None]
    off = _quantile(_Noise(scales, np.zeros_like(scales), 0.0), 1 - tail)
    short = -float(scipy.special.ndtri(tail)) * float(np.sqrt(np.sum(scales**2)))
    return max(value - off, 0.0), min(value + short, 1.0)


def interval_of_largest_gap(
    confidences: Vector, accuracies: Vector, counts: NDArray[Any], level: float
) -> tuple[float, float]:
    """Return an interval for max |g| around max |ĝ|, within [0, 1].

    Of each bin, Clopper and Pearson's interval (1934) for its accuracy, exact for one of few rows,
    against its mean confidence. The upper end is the largest gap that any bin's interval of level
    `level` allows: only the bin with the largest true gap has to be in it. The lower end is the
    largest gap that some bin must have, where all intervals hold together (Šidák, 1967).
    """
    tail = (1 - level) / 2
    low, high = _clopper_pearson(accuracies, counts, tail)
    largest = np.maximum(np.abs(low - confidences), np.abs(high - confidences)).max()
    low, high = _clopper_pearson(accuracies, counts, -np.expm1(np.log1p(-tail) / len(counts)) / 2)
    smallest = np.maximum(np.maximum(low - confidences, confidences - high), 0).max()
    return float(smallest), float(largest)


class _Noise:
    """The distribution of Σ c(|x + z| − x): the largest c drawn, the others normal."""

    def __init__(self, scales: Matrix, x: Matrix, extra_variance: float) -> None:
        """Take scales c and distances x, (G, copies): a row shares one z; c falls from row to row.

        `extra_variance` is that of an independent normal term.
        """
        z = _normal_draws()[:, : len(scales), None]
        c, distance = scales[:_DRAWN], x[:_DRAWN]
        self.drawn = np.einsum("sgk,gk->s", np.abs(distance + z) - distance, c)
        mean, variance = _folded(x[_DRAWN:])
        c = scales[_DRAWN:]
        self.mean = float(np.sum(c * (mean - x[_DRAWN:])))
        rest = float(np.sum(np.sum(c * np.sqrt(variance), axis=1) ** 2)) + extra_variance
        # Of little weight, and enough to make a smooth function of the draws.
        self.deviation = float(np.sqrt(rest + 1e-3 * np.sum(scales**2)))

    def at_most(self, value: float) -> float:
        """Return the probability of at most `value`."""
        return float(scipy.special.ndtr((value - self.mean - self.drawn) / self.deviation).mean())


def _quantile(noise: _Noise, probability: float) -> float:
    ends = noise.drawn + noise.mean
    reach = 10 * noise.deviation
    low, high = float(ends.min() - reach), float(ends.max() + reach)
    return float(scipy.optimize.brentq(lambda q: noise.at_most(q) - probability, low, high))


def _crossing(tail_of: Callable[[float], float], target: float, beyond: float) -> float:
    """Return the θ in [0, 1] where a monotone probability is `target`; `beyond` if it never is."""
    if (tail_of(0.0) - target) * (tail_of(1.0) - target) >= 0:
        return beyond
    return float(scipy.optimize.brentq(lambda theta: tail_of(theta) - target, 0, 1, xtol=1e-14))


def _clopper_pearson(shares: Vector, counts: NDArray[Any], tail: float) -> tuple[Vector, Vector]:
    """Return the ends of an interval for a share, of which each is missed with at most `tail`."""
    successes = np.rint(shares * counts)
    failures = counts - successes
    with np.errstate(invalid="ignore"):
        low = scipy.special.betaincinv(np.maximum(successes, 1), failures + 1, tail)
        high = scipy.special.betaincinv(successes + 1, np.maximum(failures, 1), 1 - tail)
    return np.where(successes > 0, low, 0.0), np.where(failures > 0, high, 1.0)


def _in_groups(scales: Vector, found: Vector, copies: int) -> tuple[Matrix, Matrix]:
    """Return both as (G, copies), by falling scale; what is missing in the last row is 0."""
    order = np.argsort(-scales, kind="stable")
    fill = -len(order) % copies
    both = (np.append(one[order], np.zeros(fill)).reshape(-1, copies) for one in (scales, found))
    first, second = both
    return first, second


def _variance_of_shares(weights: Vector, gaps: Vector, variances: Vector) -> float:
    """Return N times what Σ w|g| varies by because shares of rows do: the variance of |g|."""
    squares = float(np.sum(weights * np.maximum(gaps**2 - variances, 0)))
    return max(squares - float(np.sum(weights * np.abs(gaps))) ** 2, 0.0)


def _folded(x: Matrix) -> tuple[Matrix, Matrix]:
    """Return mean and variance of |x + z|."""
    mean = np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2) + x * (1 - 2 * scipy.special.ndtr(-x))
    return mean, np.maximum(1 + x**2 - mean**2, 0)


@lru_cache
def _normal_draws() -> Matrix:
    """(S, at most G): the same for ever; the S quantiles of a normal variable, shuffled by column.

    So that one bin alone has its exact distribution, and sums vary less than of plain draws.
    """
    scores = scipy.special.ndtri((np.arange(_DRAWS) + 0.5) / _DRAWS)
    columns = np.tile(scores[:, None], (1, _DRAWN))
    shuffled: Matrix = np.random.default_rng(0).permuted(columns, axis=0)
    return shuffled
