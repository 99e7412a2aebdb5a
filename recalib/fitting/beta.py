"""Beta calibration: a small penalised logistic regression for each class.

Legend: N rows, K classes.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.special
from numpy.typing import NDArray

from recalib.fitting.problem import Problem, Solution
from recalib.fitting.tempered import Groups, Tempered, grouped, solution_of

__all__ = ["beta_curve", "fit_beta"]

_Vector = NDArray[np.float64]

#: a = b = 1, c = 0: temperature scaling.
_CENTRE = np.array([1.0, 1.0, 0.0])
#: One row's worth, as a normal prior: of variance 1 for a and b, 4 for c.
_STRENGTH = np.array([1.0, 1.0, 0.25])
#: a and b stay in here; the penalty keeps them from the upper end, and c from any.
_SMALLEST, _LARGEST = 1e-6, 1e3


def fit_beta(problem: Problem) -> Solution:
    """Return the curves of a `Beta`, one class after another."""
    tempered = Tempered.of(problem)
    curves = np.tile(_CENTRE, (problem.classes, 1))
    absent, failed = 0, 0
    for k, odds, hits in tempered.each_class():
        if (tempered.weights[hits] > 0).any():
            curves[k], converged = beta_curve(grouped(odds, hits, tempered.weights))
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
    solution = solution_of(tempered, {"low": low, "high": high, "bias": bias}, warnings)
    solution.converged &= failed == 0
    for name, values in (("low", low), ("high", high)):
        at = int((values <= _SMALLEST * 1.001).sum())
        if at:
            solution.bounds.append(f"{name} of {at} classes at its lower bound {_SMALLEST:g}")
    return solution


def beta_curve(groups: Groups) -> tuple[_Vector, bool]:
    """Return (a, b, c) of one class, and whether the search for them ended at the optimum.

    The sum of log-losses over rows plus the penalty is strictly convex, and the bounds are a box:
    L-BFGS-B finds the one optimum.
    """
    inputs = np.stack(
        [
            scipy.special.log_expit(groups.odds),
            -scipy.special.log_expit(-groups.odds),
            np.ones_like(groups.odds),
        ],
        axis=1,
    )
    scale = 1 / groups.rows.sum()

    def value(curve: _Vector) -> tuple[float, _Vector]:
        score = inputs @ curve
        loss = groups.rows @ np.logaddexp(0, score) - groups.hits @ score
        away = curve - _CENTRE
        slope = inputs.T @ (groups.rows * scipy.special.expit(score) - groups.hits)
        total = loss + 0.5 * _STRENGTH @ away**2
        return float(total * scale), (slope + _STRENGTH * away) * scale

    found = scipy.optimize.minimize(
        value,
        _CENTRE,
        jac=True,
        method="L-BFGS-B",
        bounds=[(_SMALLEST, _LARGEST), (_SMALLEST, _LARGEST), (None, None)],
        options={"ftol": 0.0, "gtol": 1e-9, "maxiter": 500},
    )
    # Steps lost in rounding at the bottom count as an end too.
    projected = found.x - np.clip(found.x - found.jac, [_SMALLEST, _SMALLEST, -np.inf], np.inf)
    return found.x, bool(found.success) or float(np.abs(projected).max()) < 1e-5
