"""Minimise objectives without useful gradients by search, first coarse and then fine.

A calibration error has local minima in the temperature, and jumps if bins are hard. One parameter
is searched over its whole range; `recalib.fitting.coordinate_search` has several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Bound, End, Problem, Solution, TemperatureFit
from recalib.objectives.ece_grid import EceGrid
from recalib.ops import NumpyOps
from recalib.ops.base import Array, FittingOps

#: Temperatures are searched within this factor of the best by NLL. The minimum of a calibration
#: error is normally within some tens of percent of it. Minima beyond are degenerate: confidences
#: are all 1 or close to uniform.
_FACTOR = 4.0
#: Points of the coarse grid, 3.5 percent apart, and of each finer grid around its best points.
_WIDE, _FINE = 81, 21
#: Smaller inputs have an eight times finer first grid: few rows make a rough objective, whose
#: minimum a coarse grid may miss.
_GRID_ROWS, _CLOSE = 20_000, 641
#: The number of local minima that are refined, and the number of refinements by ten.
_BASINS, _LEVELS = 3, 3
#: Larger inputs use float32: its confidences are accurate to 1e-6, which is enough to compare
#: temperatures.
_MAX_VALUES = 2_000_000


class _ConfidenceObjective(Protocol):
    """An objective of top predictions only."""

    def loss_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> Array: ...


_Function = Callable[[float], float]
_Values = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def search_temperature(problem: Problem) -> Solution:
    """Return the temperature that minimises the objective over its range.

    The range is a factor of 4 below and above the best temperature by NLL. If the minimum is at an
    end of the range, the best temperature by NLL is returned with a warning.
    """
    nll = fit_temperature(problem.logits, problem.labels, problem.weights)
    values_at = partial(_values_at, _value_of_temperature(problem), problem)
    return search_near(nll, problem.objective.name, problem.logits.size, values_at)


def search_near(nll: TemperatureFit, name: str, size: int, values_at: _Values) -> Solution:
    """Return what `search_temperature` does, for an objective that is computed elsewhere.

    Parameters
    ----------
    nll: the best temperature by NLL, the centre of the range.
    name: of the objective, for messages.
    size: N K.
    values_at: returns the objective at log temperatures (n,), as (n,).
    """

    def solution(temperature: float, evaluations: int) -> Solution:
        value = float(values_at(np.log([temperature]))[0])
        return _solution(temperature, value, nll, evaluations)

    centre = float(np.log(nll.temperature))
    if nll.end or nll.is_constant:  # no centre of a range
        return solution(nll.temperature, 0)
    ends = centre + np.array([-1, 1]) * np.log(_FACTOR)
    count = _CLOSE if size <= _GRID_ROWS else _WIDE
    points = np.linspace(ends[0], ends[1], count)
    values = values_at(points)
    best = _minimum(points, values, centre)
    if best in (points[0], points[-1]):
        end = "lower" if best == points[0] else "upper"
        at_nll = solution(nll.temperature, count)
        text = (
            f"{name} has no minimum between temperatures {np.exp(ends[0]):.4g} "
            f"and {np.exp(ends[1]):.4g}, it falls towards the {end} end: the temperature by nll "
            "was taken instead (narrower bins may help)"
        )
        return replace(at_nll, warnings=(*at_nll.warnings, text))
    step = points[1] - points[0]
    for _ in range(_LEVELS):
        around = [
            np.linspace(middle - step, middle + step, _FINE) for middle in _basins(points, values)
        ]
        points = np.unique(np.concatenate(around))
        values = values_at(points)
        count += len(points)
        step /= (_FINE - 1) / 2
    return solution(float(np.exp(_minimum(points, values, centre))), count)


def search_grid(problem: Problem) -> Solution:
    """Return the temperature of the objective's grid at which its error is least."""
    nll = fit_temperature(problem.logits, problem.labels, problem.weights)
    values_at = partial(_values_at, _value_of_temperature(problem), problem)
    return search_grid_near(nll, cast("EceGrid", problem.objective), values_at)


def search_grid_near(nll: TemperatureFit, objective: EceGrid, values_at: _Values) -> Solution:
    """Return what `search_grid` does, for an objective that is computed elsewhere.

    Parameters
    ----------
    nll: the best temperature by NLL, which decides between equal errors.
    values_at: returns the objective at log temperatures (n,), as (n,).
    """
    grid = objective.grid()
    points = np.log(grid)
    values = values_at(points)
    best = int(np.flatnonzero(points == _minimum(points, values, np.log(nll.temperature)))[0])
    ends: dict[int, End] = {0: "lower", len(grid) - 1: "upper"}
    bounds = [Bound("temperature of the grid", ends[best], grid[best])] if best in ends else []
    solution = _solution(float(grid[best]), float(values[best]), nll, len(grid))
    return replace(solution, bounds=tuple(bounds))


def _value_of_temperature(problem: Problem) -> _Function:
    """Return the objective as a function of one temperature."""
    objective = cast("_ConfidenceObjective", problem.objective)
    ops = NumpyOps()
    gaps, correct = (
        gaps_below_top(problem.logits, problem.logits.size),
        ops.is_top_label(problem.logits, problem.labels),
    )
    weights = problem.relative_weights
    weights = np.ones(len(gaps)) if weights is None else weights
    confidences = confidences_of(gaps)

    def value_at(temperature: float) -> float:
        confidence = confidences(temperature)
        return float(objective.loss_of_confidences(ops, confidence, correct, weights))

    return value_at


def confidences_of(gaps: Floats) -> Callable[[float], NDArray[np.float64]]:
    """Return the function from a temperature to the confidences (N,) of rows.

    Parameters
    ----------
    gaps: each logit minus the largest of its row, (N, K).
    """
    powers = np.empty_like(gaps)

    def at(temperature: float) -> NDArray[np.float64]:
        np.exp(np.multiply(gaps, 1 / temperature, out=powers), out=powers)
        return np.asarray(1 / powers.sum(axis=1, dtype=np.float64))

    return at


def gaps_below_top(logits: Floats, size: int) -> Floats:
    """Return each logit minus the largest of its row; `size` is N K of all rows."""
    dtype = np.float64 if size <= _MAX_VALUES else np.float32
    top = logits.max(axis=1, keepdims=True).astype(np.float64)
    gaps: Floats = np.subtract(logits, top, dtype=np.float64).astype(dtype, copy=False)
    return gaps


def _values_at(
    value_at: _Function, problem: Problem, points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the objective at log temperatures."""
    values = np.empty(len(points))
    for i, point in enumerate(points):
        values[i] = value_at(float(np.exp(point)))
        problem.report("temperature", i + 1, float(values[: i + 1].min()))
    return values


def _minimum(points: NDArray[np.float64], values: NDArray[np.float64], near: float) -> float:
    """Return the point of the smallest value, the one nearest to `near` in a tie."""
    equals = points[values == values.min()]
    return float(equals[np.argmin(np.abs(equals - near))])


def _basins(points: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lowest few local minima."""
    padded = np.concatenate([[np.inf], values, [np.inf]])
    lowest = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]))
    return points[lowest[np.argsort(values[lowest], kind="stable")][:_BASINS]]


def _solution(temperature: float, value: float, nll: TemperatureFit, evaluations: int) -> Solution:
    parameters = {"temperature": np.array(temperature)}
    return Solution(parameters, value, evaluations).after(nll.solution)
