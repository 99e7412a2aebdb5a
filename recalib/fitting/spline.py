"""A monotone spline of log-odds: likelihood with a penalty, over slopes that are not negative."""

from __future__ import annotations

from typing import cast

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
from recalib.maps.lookup_table import next_power_of_two, pad_table
from recalib.maps.spline import Spline

__all__ = ["Curve", "choose_knots", "fit_curve", "fit_spline"]

_Vector = NDArray[np.float64]

#: Knots are at least this far apart, in nats: no data of ordinary size tells more.
_MIN_DISTANCE = 0.1
#: Slopes end here: at more, float32 could not follow.
_MAX_SLOPE = 10.0


class Curve:
    """The spline G on given knots, as a function of its offset c and the γ of its derivative."""

    def __init__(self, knots: _Vector) -> None:
        self.knots = knots
        padded = np.concatenate([[knots[0]] * 2, knots, [knots[-1]] * 2])
        self.size = len(padded) - 3
        self._slopes = scipy.interpolate.BSpline(padded, np.eye(self.size), 2)
        self._rises = self._slopes.antiderivative()

    def inputs(self, odds: _Vector) -> NDArray[np.float64]:
        """Return the matrix that takes (c, γ) to G, one row for each of `odds`."""
        inside = np.clip(odds, self.knots[0], self.knots[-1])
        rises = self._rises(inside) - self._rises(self.knots[0])
        return np.column_stack([np.ones(len(odds)), rises])

    def slopes(self, gamma: _Vector) -> _Vector:
        """Return G' at the knots."""
        return np.asarray(self._slopes(self.knots) @ gamma)


def fit_spline(problem: Problem) -> Solution:
    """Return the knots, values and slopes of a `Spline`."""
    map = cast(Spline, problem.map)
    scaled = ScaledRows.from_problem(problem)
    groups = group_by_odds(scaled.odds, scaled.correct, scaled.weights)
    knots = choose_knots(groups, next_power_of_two(map.pieces) + 1)
    curve = Curve(knots)
    found, converged = fit_curve(groups, curve, map.smoothing)
    values = knots[0] + curve.inputs(knots) @ found
    parameters = {"knots": knots, "values": values, "slopes": curve.slopes(found[1:])}
    solution = make_solution(scaled, parameters, [])
    solution.converged &= converged
    flat = int((found[1:] <= 0).sum())
    if flat:
        solution.bounds.append(f"{flat} of {curve.size} slopes at their lower bound 0")
    if (found[1:] >= _MAX_SLOPE).any():
        solution.bounds.append(f"a slope at its upper bound {_MAX_SLOPE:g}")
    return solution


def choose_knots(groups: Groups, count: int) -> _Vector:
    """Return `count` knots with equal numbers of rows between them, never too near.

    What is left of them stands above the last row, where the penalty alone shapes the curve.
    """
    done = np.cumsum(groups.rows)
    parts = np.linspace(0, 1, count) * done[-1]
    at = np.minimum(np.searchsorted(done, parts * (1 - 1e-9)), len(done) - 1)
    knots = [float(groups.odds[at[0]])]
    for odds in groups.odds[at[1:]].tolist():
        if odds >= knots[-1] + _MIN_DISTANCE:
            knots.append(odds)
    return pad_table(np.array(knots), count, 1.0)


def fit_curve(groups: Groups, curve: Curve, smoothing: float) -> tuple[_Vector, bool]:
    """Return (c, γ) of the curve, and whether the search for them ended at the optimum.

    The loss is convex and the range of γ a box; c is G − s at the first knot.
    """
    inputs = curve.inputs(groups.odds)
    start = curve.knots[0]
    centre = np.concatenate([[0.0], np.ones(curve.size)])
    strength = smoothing * np.concatenate([[0.25], np.ones(curve.size)])
    scale = 1 / groups.rows.sum()

    def value(numbers: _Vector) -> tuple[float, _Vector]:
        odds = start + inputs @ numbers
        loss = groups.rows @ np.logaddexp(0, odds) - groups.hits @ odds
        away = numbers - centre
        slope = inputs.T @ (groups.rows * scipy.special.expit(odds) - groups.hits)
        total = loss + 0.5 * strength @ away**2
        return float(total * scale), (slope + strength * away) * scale

    found = scipy.optimize.minimize(
        value,
        centre,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] + [(0.0, _MAX_SLOPE)] * curve.size,
        options={"ftol": 0.0, "gtol": 1e-9, "maxiter": 2_000, "maxcor": 30},
    )
    # Steps lost in rounding at the bottom count as an end too.
    lower = np.concatenate([[-np.inf], np.zeros(curve.size)])
    projected = found.x - np.clip(found.x - found.jac, lower, None)
    return found.x, bool(found.success) or float(np.abs(projected).max()) < 1e-5
