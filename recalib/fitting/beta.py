"""Beta calibration: a small penalised logistic regression for each class.

Legend: N rows, K classes.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.fitting.problem import Problem, Solution
from recalib.fitting.temperature_preprocessing import (
    Groups,
    ScaledRows,
    group_by_odds,
    make_solution,
)

__all__ = ["beta_curve", "fit_beta", "platt_curve"]

_Vector = NDArray[np.float64]

#: a = b = 1, c = 0: temperature scaling.
_CENTRE = np.array([1.0, 1.0, 0.0])
#: A normal prior with the weight of one row: variance 1 for a and b, 4 for c.
_STRENGTH = np.array([1.0, 1.0, 0.25])
#: The lower bound of a and b; the penalty bounds them above, and c on both sides.
_SMALLEST = 1e-6
_LOWEST = np.array([_SMALLEST, _SMALLEST, -np.inf])
#: The search ends with a step whose predicted gain is below this fraction of the sum.
_MIN_GAIN, _ROUNDING = 1e-14, 1e-9
_MIN_STEP, _MAX_STEPS = 1e-10, 100


def fit_beta(problem: Problem) -> Solution:
    """Return the curves of a `Beta`, one class after another."""
    scaled = ScaledRows.from_problem(problem)
    curves = np.tile(_CENTRE, (problem.classes, 1))
    absent, failed = 0, 0
    for k, odds, hits in scaled.iter_classes():
        if (scaled.weights[hits] > 0).any():
            curves[k], converged = beta_curve(group_by_odds(odds, hits, scaled.weights))
            failed += not converged
        else:
            absent += 1
    low, high, bias = curves.T.copy()
    warnings = []
    if absent:
        warnings.append(
            f"{absent} of {problem.classes} classes have no label: "
            "theirs stay as temperature scaling has them"
        )
    solution = make_solution(scaled, {"low": low, "high": high, "bias": bias}, warnings)
    solution.converged &= failed == 0
    for name, values in (("low", low), ("high", high)):
        at = int((values <= _SMALLEST).sum())
        if at:
            solution.bounds.append(f"{name} of {at} classes at its lower bound {_SMALLEST:g}")
    return solution


def beta_curve(groups: Groups) -> tuple[_Vector, bool]:
    """Return (a, b, c) of one class, and whether the search converged."""
    inputs = np.stack(
        [
            scipy.special.log_expit(groups.odds),
            -scipy.special.log_expit(-groups.odds),
            np.ones_like(groups.odds),
        ]
    )
    return _curve(inputs, groups, _CENTRE, _STRENGTH, _LOWEST)


def platt_curve(groups: Groups) -> tuple[_Vector, bool]:
    """Return the slope and the intercept of one label, and whether the search converged."""
    inputs = np.stack([groups.odds, np.ones_like(groups.odds)])
    return _curve(inputs, groups, _CENTRE[1:], _STRENGTH[1:], _LOWEST[1:])


def _curve(
    inputs: _Vector, groups: Groups, centre: _Vector, strength: _Vector, lowest: _Vector
) -> tuple[_Vector, bool]:
    """Return the weights (P,) of inputs (P, G) of a penalised logistic regression.

    The log-loss plus the penalty is strictly convex, and the bounds are a box. Newton's method on
    the numbers that are not on an active bound, with step halving, finds the optimum.
    """

    def value(curve: _Vector) -> float:
        score = curve @ inputs
        loss = np.vecdot(groups.rows, np.logaddexp(0, score)) - np.vecdot(groups.hits, score)
        return float(loss + 0.5 * strength @ (curve - centre) ** 2)

    curve, at = centre, value(centre)
    for _ in range(_MAX_STEPS):
        expected = scipy.special.expit(curve @ inputs)
        slope = inputs @ (groups.rows * expected - groups.hits) + strength * (curve - centre)
        bend = (inputs * (groups.rows * expected * (1 - expected))) @ inputs.T + np.diag(strength)
        free = (curve > lowest) | (slope < 0)
        step = np.zeros(len(centre))
        step[free] = np.linalg.solve(bend[np.ix_(free, free)], -slope[free])
        if -slope @ step < _MIN_GAIN * (1 + abs(at)):
            return curve, True
        length = 1.0
        while (new := value(moved := np.maximum(curve + length * step, lowest))) >= at:
            length /= 2
            if length < _MIN_STEP:
                # No descent: rounding error at the minimum, or failure.
                return curve, bool(-slope @ step < _ROUNDING * (1 + abs(at)))
        curve, at = moved, new
    return curve, False
