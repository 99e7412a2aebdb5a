"""Minimise an objective by coordinate search: one parameter at a time, with decreasing steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np

from recalib.errors import InputError
from recalib.fitting.newton import best_temperature
from recalib.fitting.objective_sums import objectives_at
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.search import search_grid
from recalib.maps import Map, Parameters
from recalib.objectives import Objective
from recalib.objectives.ece_grid import EceGrid

#: Returns the candidates of a coordinate for its value and link.
_Candidates = Callable[[float, str], Sequence[float]]

#: The largest number of parameters for a coordinate search of minutes.
_MAX_PARAMETERS = 200
#: Steps of a coordinate, as factors of positive parameters or summands of others.
_STEPS = (0.3, 0.1, 0.03, 0.01, 0.003)
_MAX_ROUNDS = 20
#: Parameters whose objectives one pass over files computes.
_MAX_TRIALS = 256


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
