"""Minimise objectives without useful gradients by search, first coarse and then fine.

A calibration error has local minima in the temperature, and jumps if bins are hard. One parameter
is searched over its whole range; of several, one at a time, with decreasing steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.fitting.newton import best_temperature
from recalib.fitting.objective_sums import binned_errors, objectives_at
from recalib.fitting.problem import Bound, End, Problem, Solution, TemperatureFit
from recalib.maps import Map, Parameters
from recalib.objectives import Objective
from recalib.objectives.base import TopLabelObjective
from recalib.objectives.ece_grid import EceGrid

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
#: Returns the candidates of a coordinate for its value and link.
_Candidates = Callable[[float, str], Sequence[float]]

#: The largest number of parameters for a coordinate search of minutes.
_MAX_PARAMETERS = 200
#: Steps of a coordinate, as factors of positive parameters or summands of others.
_STEPS = (0.3, 0.1, 0.03, 0.01, 0.003)
_MAX_ROUNDS = 20
#: Parameters whose objectives one pass over files computes.
_MAX_TRIALS = 256


def search_temperature(problem: Problem) -> Solution:
    """Return the temperature that minimises the objective over its range.

    The range is a factor of 4 below and above the best temperature by NLL. If the minimum is at an
    end of the range, the best temperature by NLL is returned with a warning.
    """
    nll, values_at = best_temperature(problem.rows), partial(_values_at, problem)

    def solution(temperature: float, evaluations: int) -> Solution:
        value = float(values_at(np.log([temperature]))[0])
        return _solution(temperature, value, nll, evaluations)

    centre = float(np.log(nll.temperature))
    if nll.end or nll.is_constant:  # no centre of a range
        return solution(nll.temperature, 0)
    ends = centre + np.array([-1, 1]) * np.log(_FACTOR)
    count = _CLOSE if math.prod(problem.rows.shape) <= _GRID_ROWS else _WIDE
    points = np.linspace(ends[0], ends[1], count)
    values = values_at(points)
    best = _minimum(points, values, centre)
    if best in (points[0], points[-1]):
        end = "lower" if best == points[0] else "upper"
        at_nll = solution(nll.temperature, count)
        text = (
            f"{problem.objective.name} has no minimum between temperatures {np.exp(ends[0]):.4g} "
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
    nll = best_temperature(problem.rows)  # decides between equal errors
    grid = cast(EceGrid, problem.objective).grid()
    points = np.log(grid)
    values = _values_at(problem, points)
    best = int(np.flatnonzero(points == _minimum(points, values, np.log(nll.temperature)))[0])
    ends: dict[int, End] = {0: "lower", len(grid) - 1: "upper"}
    bounds = [Bound("temperature of the grid", ends[best], grid[best])] if best in ends else []
    solution = _solution(float(grid[best]), float(values[best]), nll, len(grid))
    return replace(solution, bounds=tuple(bounds))


def _values_at(problem: Problem, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the objective at log temperatures."""
    values = binned_errors(problem.rows, cast(TopLabelObjective, problem.objective), points)
    problem.report("temperature", len(points), float(values.min()))
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


def check_parameters(map: Map, objective: Objective, classes: int) -> None:
    """Raise `InputError` if the map has too many parameters for a coordinate search."""
    parameters, stages = map.parameters(classes), map.stages(classes)
    count = sum(math.prod(parameters[name].shape) for names in stages for name in names)
    if count > _MAX_PARAMETERS:
        raise InputError(
            "objective",
            found=f"{objective.name!r} for {count} parameters of {map.name}",
            accepted=f"a smooth objective, or a map of at most {_MAX_PARAMETERS} parameters",
        )


def search_coordinates(problem: Problem) -> Solution:
    """Return the parameters of a search from the best single temperature, or a warm start."""
    start = problem.start
    if start is None:
        start = problem.map.start(problem.classes, best_temperature(problem.rows).temperature)

    def around(step: float, value: float, link: str) -> list[float]:
        if link == "real":
            return [value + step, value - step]
        return [value * float(np.exp(change)) for change in (step, -step)]

    return _search(problem, start, [partial(around, step) for step in _STEPS])


def search_class_grid(problem: Problem) -> Solution:
    """Return class temperatures from the objective's grid.

    The method of Frenkel & Goldberger, started at the best single temperature.
    """
    grid, start = cast(EceGrid, problem.objective).grid().tolist(), problem.start
    if start is None:
        single = search_grid(problem).parameters["temperature"]
        start = problem.map.start(problem.classes, float(single))
    return _search(problem, start, [lambda value, link: grid])


def _search(problem: Problem, start: Parameters, stages: Sequence[_Candidates]) -> Solution:
    """Try candidates for each coordinate in turn until a round gives no improvement.

    Where a pass is long, the next coordinates are tried in it before it is known whether the first
    improves; the result is the same.
    """
    values_at = partial(objectives_at, problem.rows, problem.map, problem.objective)
    max_trials = _MAX_TRIALS if problem.rows.in_memory is None else 1
    map, parameters = problem.map, dict(start)
    moving = [name for stage in map.stages(problem.classes) for name in stage]
    links = {name: parameter.link for name, parameter in map.parameters(problem.classes).items()}
    coordinates = [(name, index) for name in moving for index in np.ndindex(parameters[name].shape)]

    def trials_of(name: str, index: tuple[int, ...], candidates: _Candidates) -> list[Parameters]:
        trials: list[Parameters] = []
        for value in candidates(float(parameters[name][index]), links[name]):
            changed = parameters[name].copy()
            changed[index] = value
            if links[name] == "simplex":
                changed /= changed.sum()
            trials.append({**parameters, name: changed})
        return trials

    best, rounds = float(values_at([parameters])[0]), 0
    for candidates in stages:
        improved = True
        while improved and rounds < _MAX_ROUNDS * len(stages):
            improved, rounds = False, rounds + 1
            done, ahead = 0, 1
            while done < len(coordinates):
                batch = [trials_of(*at, candidates) for at in coordinates[done : done + ahead]]
                values = values_at([trial for trials in batch for trial in trials])
                lower = np.where(values < best, values, np.inf).reshape(len(batch), -1)
                better = np.flatnonzero(np.isfinite(lower).any(axis=1))
                if len(better):
                    first = int(better[0])
                    best, improved = float(lower[first].min()), True
                    parameters = dict(batch[first][int(lower[first].argmin())])
                    done, ahead = done + first + 1, 1
                else:
                    done += len(batch)
                    ahead = max(1, min(2 * ahead, max_trials // lower.shape[1]))
            problem.report(map.name, rounds, best)
    return Solution(parameters, best, rounds, converged=not improved)
