"""Roots of falling functions, and the ends of intervals that invert a test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

__all__ = ["ends_of_square", "falling_roots", "normal_scores"]

Vector = NDArray[np.float64]

#: Far more than a bisection to double precision takes.
_MAX_STEPS = 100


def falling_roots(
    function: Callable[[Vector], Vector],
    start: Vector,
    low: Vector | float,
    high: Vector | float,
    *,
    slope: float,
    precision: float,
) -> Vector:
    """Return where falling functions are 0, (S,): the secant method inside a shrinking bracket.

    A step that would leave the bracket goes to its end, which is returned for a function without a
    root. Several roots cost little more than one, since a step takes the time of calls and not of
    arithmetic.

    Parameters
    ----------
    function: a function from points (S,) to the values of S functions, finite.
    start: (S,), first guesses.
    low, high: (S,), the bracket.
    slope: about the derivative at the roots, negative.
    precision: the largest last step; the error is much smaller.

    Examples
    --------
    >>> falling_roots(lambda x: [2, 9] - x**2, np.ones(2), 0, 4, slope=-2.0, precision=1e-9)
    array([1.41421356, 3.        ])
    """
    x = np.clip(start, low, high)
    slopes, moves, before = np.full_like(x, slope), np.zeros_like(x), np.zeros_like(x)
    for _ in range(_MAX_STEPS):
        value = function(x)
        low, high = np.where(value > 0, x, low), np.where(value > 0, high, x)
        change = np.divide(value - before, moves, out=slopes.copy(), where=moves != 0)
        # A flat part has no slope: the steps grow until they leave it.
        slopes = np.where(change < 0, change, slopes / 10)
        # x is an end of the bracket, so a secant through the other end leads inside.
        there = np.minimum(np.maximum(x - value / slopes, low), high)
        # A root that is found stays: the slope of a tiny step is rounding error.
        moves = np.where(np.abs(there - x) > precision, there - x, 0.0)
        if not moves.any():
            return there
        before, x = value, x + moves
    return x


def ends_of_square(
    chance_of: Callable[[Vector], Vector], targets: Vector, root: float, error: float
) -> tuple[float, float]:
    """Return the two θ in [0, 1] at which falling probabilities are `targets`; 0 or 1 without one.

    They are searched as √θ, on the scale of a normal variable's quantiles: the score of the
    probability is nearly linear in √θ.

    Parameters
    ----------
    chance_of: a function from two values of θ to the probability at each.
    targets: (2,), for the lower and the upper end.
    root, error: about √θ and its standard error.
    """
    scores = normal_scores(targets)
    is_below = normal_scores(chance_of(np.zeros(2))) <= scores
    roots = falling_roots(
        lambda root: normal_scores(chance_of(root**2)) - scores,
        root - scores * error,
        0.0,
        np.where(is_below, 0.0, 1.0),
        slope=-1 / error,
        precision=1e-3 * error,
    )
    low, high = (float(end) ** 2 for end in roots)
    return low, high


def normal_scores(probabilities: ArrayLike) -> Vector:
    """Return the quantiles of a normal variable, finite also for 0 and 1."""
    scores: Vector = scipy.special.ndtri(np.clip(probabilities, 1e-300, 1 - 1e-16))
    return scores
