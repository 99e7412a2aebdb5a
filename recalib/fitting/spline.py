"""A monotone spline of log-odds: penalised likelihood with non-negative slopes."""

from __future__ import annotations

from typing import cast

import numpy as np
import scipy

from recalib.core.arrays import Numbers
from recalib.fitting.log_odds import Groups
from recalib.fitting.problem import Bound, Problem, Solution
from recalib.fitting.temperature_preprocessing import first_temperature, with_nll
from recalib.maps.lookup_table import next_power_of_two, pad_table
from recalib.maps.spline import Spline

#: Minimum distance of knots in nats; closer knots need more data than usual.
_MIN_DISTANCE = 0.1
#: Maximum slope; float32 is too inaccurate for larger slopes.
_MAX_SLOPE = 10.0


class Curve:
    """The spline G on given knots, as a function of its offset c and the γ of its derivative."""

    def __init__(self, knots: Numbers) -> None:
        self.knots = knots
        padded = np.concatenate([[knots[0]] * 2, knots, [knots[-1]] * 2])
        self.size = len(padded) - 3
        self._slopes = scipy.interpolate.BSpline(padded, np.eye(self.size), 2)
        self._rises = self._slopes.antiderivative()

    def inputs(self, odds: Numbers) -> Numbers:
        """Return the matrix that takes (c, γ) to G, one row for each of `odds`."""
        inside = np.clip(odds, self.knots[0], self.knots[-1])
        rises = self._rises(inside) - self._rises(self.knots[0])
        return np.column_stack([np.ones(len(odds)), rises])

    def slopes(self, gamma: Numbers) -> Numbers:
        """Return G' at the knots."""
        return np.asarray(self._slopes(self.knots) @ gamma)


def fit_spline(problem: Problem) -> Solution:
    """Return the knots, values and slopes of a `Spline`."""
    map = cast(Spline, problem.map)
    single = first_temperature(problem, of_classes=not map.preserves_accuracy)
    solution = spline_curve(problem.rows.groups(single.temperature, map.target), map)
    return with_nll(problem, single.before(solution))


def spline_curve(groups: Groups, map: Spline) -> Solution:
    """Return the solution with knots, values and slopes, without temperature and objective."""
    knots = choose_knots(groups, next_power_of_two(map.pieces) + 1)
    curve = Curve(knots)
    coefficients, converged = fit_curve(groups, curve, map.smoothing)
    values = knots[0] + curve.inputs(knots) @ coefficients
    parameters = {"knots": knots, "values": values, "slopes": curve.slopes(coefficients[1:])}
    flat = int((coefficients[1:] <= 0).sum())
    steep = int((coefficients[1:] >= _MAX_SLOPE).sum())
    bounds = []
    if flat:
        bounds.append(Bound(f"{flat} of {curve.size} slopes", "lower", 0.0))
    if steep:
        bounds.append(Bound(f"{steep} of {curve.size} slopes", "upper", _MAX_SLOPE))
    return Solution(parameters, converged=converged, bounds=tuple(bounds))


def choose_knots(groups: Groups, count: int) -> Numbers:
    """Return `count` knots with equal numbers of rows between them, at a minimum distance.

    Remaining knots are above the last row, where only the penalty shapes the curve.
    """
    cumulative = np.cumsum(groups.rows)
    parts = np.linspace(0, 1, count) * cumulative[-1]
    at = np.minimum(np.searchsorted(cumulative, parts * (1 - 1e-9)), len(cumulative) - 1)
    knots = [float(groups.odds[at[0]])]
    for odds in groups.odds[at[1:]].tolist():
        if odds >= knots[-1] + _MIN_DISTANCE:
            knots.append(odds)
    return pad_table(np.array(knots), count, 1.0)


def fit_curve(groups: Groups, curve: Curve, smoothing: float) -> tuple[Numbers, bool]:
    """Return (c, γ) of the curve, and whether the search for them ended at the optimum.

    The loss is convex and the range of γ a box; c is G − s at the first knot.
    """
    inputs = curve.inputs(groups.odds)
    start = curve.knots[0]
    centre = np.concatenate([[0.0], np.ones(curve.size)])
    strength = smoothing * np.concatenate([[0.25], np.ones(curve.size)])
    scale = 1 / groups.rows.sum()

    def value(numbers: Numbers) -> tuple[float, Numbers]:
        odds = start + inputs @ numbers
        loss = groups.rows @ np.logaddexp(0, odds) - groups.hits @ odds
        offset = numbers - centre
        slope = inputs.T @ (groups.rows * scipy.special.expit(odds) - groups.hits)
        total = loss + 0.5 * strength @ offset**2
        return float(total * scale), (slope + strength * offset) * scale

    result = scipy.optimize.minimize(
        value,
        centre,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] + [(0.0, _MAX_SLOPE)] * curve.size,
        options={"ftol": 0.0, "gtol": 1e-9, "maxiter": 2_000, "maxcor": 30},
    )
    # Steps lost in rounding at the bottom count as an end too.
    lower = np.concatenate([[-np.inf], np.zeros(curve.size)])
    projected = result.x - np.clip(result.x - result.jac, lower, None)
    return result.x, bool(result.success) or float(np.abs(projected).max()) < 1e-5
