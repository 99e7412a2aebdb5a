"""Minimise objectives without useful gradients by search, first coarse and then fine.

A calibration error has local minima in the temperature, and jumps if bins are hard. One parameter
is searched over its whole range; several parameters by coordinate search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.errors import InputError
from recalib.fitting.newton import TemperatureFit, fit_temperature
from recalib.fitting.problem import Problem, Solution
from recalib.objectives.ece_grid import EceGrid
from recalib.ops import NumpyOps
from recalib.ops.base import Array, FittingOps

__all__ = ["search_class_grid", "search_coordinates", "search_grid", "search_temperature"]

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
#: The largest number of parameters for a coordinate search of minutes.
_MAX_PARAMETERS = 200
#: Steps of a coordinate, as factors of positive parameters or summands of others.
_STEPS = (0.3, 0.1, 0.03, 0.01, 0.003)
_MAX_ROUNDS = 20


class _OfConfidence(Protocol):
    """An objective of top predictions only."""

    def loss_of_confidences(
        self, ops: FittingOps, confidence: Array, correct: Array, weights: Array
    ) -> Array: ...


_Function = Callable[[float], float]


def search_temperature(problem: Problem) -> Solution:
    """Return the temperature that minimises the objective over its range.

    The range is a factor of 4 below and above the best temperature by NLL. If the minimum is at an
    end of the range, the best temperature by NLL is returned with a warning.
    """
    nll = fit_temperature(problem.logits, problem.labels, problem.weights)
    value_at = _value_of_temperature(problem)
    if nll.bound or nll.warnings:  # no centre of a range
        return _solution(nll.temperature, value_at, nll, 0)
    ends = np.log(nll.temperature) + np.array([-1, 1]) * np.log(_FACTOR)
    count = _CLOSE if problem.logits.size <= _GRID_ROWS else _WIDE
    points, values = _evaluate_points(value_at, np.linspace(ends[0], ends[1], count), problem)
    best = _minimum(points, values, np.log(nll.temperature))
    if best in (points[0], points[-1]):
        solution = _solution(nll.temperature, value_at, nll, count)
        end = "lower" if best == points[0] else "upper"
        solution.warnings.append(
            f"{problem.objective.name} has no minimum between temperatures {np.exp(ends[0]):.4g} "
            f"and {np.exp(ends[1]):.4g}, it falls towards the {end} end: the temperature by nll "
            "was taken instead (narrower bins may help)"
        )
        return solution
    step = points[1] - points[0]
    for _ in range(_LEVELS):
        around = [
            np.linspace(centre - step, centre + step, _FINE) for centre in _basins(points, values)
        ]
        points, values = _evaluate_points(value_at, np.unique(np.concatenate(around)), problem)
        count += len(points)
        step /= (_FINE - 1) / 2
    best = _minimum(points, values, np.log(nll.temperature))
    return _solution(float(np.exp(best)), value_at, nll, count)


def search_grid(problem: Problem) -> Solution:
    """Return the temperature of the objective's grid at which its error is least."""
    nll = fit_temperature(problem.logits, problem.labels, problem.weights)
    grid = cast("EceGrid", problem.objective).grid()
    value_at = _value_of_temperature(problem)
    points, values = _evaluate_points(value_at, np.log(grid), problem)
    best = int(np.flatnonzero(points == _minimum(points, values, np.log(nll.temperature)))[0])
    solution = _solution(float(grid[best]), value_at, nll, len(grid))
    solution.bounds = [
        f"temperature at the {end} end of the grid, {grid[best]:.6g}"
        for end, at in (("lower", 0), ("upper", len(grid) - 1))
        if best == at
    ]
    return solution


def search_class_grid(problem: Problem) -> Solution:
    """Return class temperatures from the objective's grid by coordinate search.

    The method of Frenkel & Goldberger, started at the best single temperature.
    """
    grid = cast("EceGrid", problem.objective).grid()
    single = search_grid(problem)
    start = problem.map.start(problem.classes, float(single.parameters["temperature"]))
    parameters = dict(problem.start or start)

    def candidates(value: float, link: str) -> Iterator[float]:
        yield from grid

    return _coordinate_search(problem, parameters, lambda step: candidates, (0.0,))


def search_coordinates(problem: Problem) -> Solution:
    """Minimise the objective by coordinate search with decreasing steps.

    It starts at the best single temperature by NLL, or at a warm start.

    Raises
    ------
    InputError: too many parameters for a coordinate search.
    """
    nll = fit_temperature(problem.logits, problem.labels, problem.weights)
    parameters = dict(problem.start or problem.map.start(problem.classes, nll.temperature))

    def of_step(step: float) -> Callable[[float, str], Iterator[float]]:
        def candidates(value: float, link: str) -> Iterator[float]:
            for change in (step, -step):
                yield value + change if link == "real" else value * float(np.exp(change))

        return candidates

    return _coordinate_search(problem, parameters, of_step, _STEPS)


def _coordinate_search(
    problem: Problem,
    parameters: dict[str, NDArray[np.float64]],
    candidates_of: Callable[[float], Callable[[float, str], Iterator[float]]],
    steps: tuple[float, ...],
) -> Solution:
    """Try candidates for each coordinate in turn until a round gives no improvement."""
    moving = [name for stage in problem.map.stages(problem.classes) for name in stage]
    count = sum(parameters[name].size for name in moving)
    if count > _MAX_PARAMETERS:
        raise InputError(
            "objective",
            found=f"{problem.objective.name!r} for {count} parameters of {problem.map.name}",
            accepted=f"a smooth objective, or a map of at most {_MAX_PARAMETERS} parameters",
        )
    ops = NumpyOps()
    z = problem.logits.astype(np.float64, copy=False)
    weights = np.ones(len(z)) if problem.weights is None else problem.weights
    links = {
        name: parameter.link for name, parameter in problem.map.parameters(problem.classes).items()
    }

    def value_at(parameters: dict[str, NDArray[np.float64]]) -> float:
        log_p = problem.map.log_probabilities(ops, z, parameters)
        return float(problem.objective.loss(ops, log_p, problem.labels, weights))

    coordinates = [(name, index) for name in moving for index in np.ndindex(parameters[name].shape)]
    best, rounds = value_at(parameters), 0
    for step in steps:
        improved = True
        while improved and rounds < _MAX_ROUNDS * len(steps):
            improved, rounds = False, rounds + 1
            for name, index in coordinates:
                value = float(parameters[name][index])
                for candidate in candidates_of(step)(value, links[name]):
                    trial = {**parameters, name: _with(parameters[name], index, candidate)}
                    if links[name] == "simplex":
                        trial[name] /= trial[name].sum()
                    if (value_of_trial := value_at(trial)) < best:
                        best, parameters, improved = value_of_trial, trial, True
            problem.report(problem.map.name, rounds, best)
    return Solution(parameters, best, rounds, converged=not improved)


def _with(values: NDArray[np.float64], index: tuple[int, ...], value: float) -> NDArray[np.float64]:
    changed = values.copy()
    changed[index] = value
    return changed


def _value_of_temperature(problem: Problem) -> _Function:
    """Return the objective as a function of one temperature."""
    objective = cast("_OfConfidence", problem.objective)
    ops = NumpyOps()
    gaps, correct = _gaps(problem.logits), ops.is_top_label(problem.logits, problem.labels)
    weights = np.ones(len(gaps)) if problem.weights is None else problem.weights
    powers = np.empty_like(gaps)

    def value_at(temperature: float) -> float:
        np.exp(np.multiply(gaps, 1 / temperature, out=powers), out=powers)
        confidence = 1 / powers.sum(axis=1, dtype=np.float64)
        return float(objective.loss_of_confidences(ops, confidence, correct, weights))

    return value_at


def _gaps(logits: Floats) -> Floats:
    """Return each logit minus the largest of its row."""
    dtype = np.float64 if logits.size <= _MAX_VALUES else np.float32
    top = logits.max(axis=1, keepdims=True).astype(np.float64)
    gaps: Floats = np.subtract(logits, top, dtype=np.float64).astype(dtype, copy=False)
    return gaps


def _evaluate_points(
    value_at: _Function, points: NDArray[np.float64], problem: Problem
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points, which are log temperatures, and the objective at them."""
    values = np.empty(len(points))
    for i, point in enumerate(points):
        values[i] = value_at(float(np.exp(point)))
        problem.report("temperature", i + 1, float(values[: i + 1].min()))
    return points, values


def _minimum(points: NDArray[np.float64], values: NDArray[np.float64], near: float) -> float:
    """Return the point of the smallest value, the one nearest to `near` in a tie."""
    equals = points[values == values.min()]
    return float(equals[np.argmin(np.abs(equals - near))])


def _basins(points: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lowest few local minima."""
    padded = np.concatenate([[np.inf], values, [np.inf]])
    lowest = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]))
    return points[lowest[np.argsort(values[lowest], kind="stable")][:_BASINS]]


def _solution(
    temperature: float, value_at: _Function, nll: TemperatureFit, evaluations: int
) -> Solution:
    reached = f"temperature at its {nll.bound} bound {nll.temperature:.6g}"
    return Solution(
        {"temperature": np.array(temperature)},
        value_at(temperature),
        iterations=nll.iterations + evaluations,
        converged=nll.converged,
        bounds=[reached] if nll.bound else [],
        warnings=list(nll.warnings),
    )
