"""Minimise an objective by coordinate search: one parameter at a time, with decreasing steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.search import search_grid
from recalib.maps import Parameters
from recalib.objectives.ece_grid import EceGrid
from recalib.ops import NumpyOps

Numbers = NDArray[np.float64]

#: Returns the objective at each of some parameters.
ValuesAt = Callable[[Sequence[Parameters]], Numbers]
#: Returns the candidates of a coordinate for its value and link.
_Candidates = Callable[[float, str], Sequence[float]]

#: The largest number of parameters for a coordinate search of minutes.
_MAX_PARAMETERS = 200
#: Steps of a coordinate, as factors of positive parameters or summands of others.
_STEPS = (0.3, 0.1, 0.03, 0.01, 0.003)
_MAX_ROUNDS = 20


def search_coordinates(problem: Problem) -> Solution:
    """Return the parameters of a search from the best single temperature, or a warm start.

    Raises
    ------
    InputError: too many parameters for a coordinate search.
    """
    nll = fit_temperature(problem.logits, problem.labels, problem.weights)
    start = problem.start or problem.map.start(problem.classes, nll.temperature)
    return descend(problem, start, _values_in_memory(problem))


def search_class_grid(problem: Problem) -> Solution:
    """Return class temperatures from the objective's grid.

    The method of Frenkel & Goldberger, started at the best single temperature.
    """
    single = search_grid(problem)
    start = problem.map.start(problem.classes, float(single.parameters["temperature"]))
    return descend_on_grid(problem, problem.start or start, _values_in_memory(problem))


def descend(
    problem: Problem, start: Parameters, values_at: ValuesAt, *, max_trials: int = 1
) -> Solution:
    """Return what `search_coordinates` does, for an objective that is computed elsewhere.

    Parameters
    ----------
    problem: the map and the objective; its rows are not read.
    values_at: returns the objective at each of some parameters.
    max_trials: trials whose values are computed together. The next coordinates are then tried
        before it is known whether the first improves; the result is the same.
    """

    def around(step: float, value: float, link: str) -> list[float]:
        if link == "real":
            return [value + step, value - step]
        return [value * float(np.exp(change)) for change in (step, -step)]

    candidates = [partial(around, step) for step in _STEPS]
    return _search(problem, start, values_at, candidates, max_trials)


def descend_on_grid(
    problem: Problem, start: Parameters, values_at: ValuesAt, *, max_trials: int = 1
) -> Solution:
    """Return what `search_class_grid` does from a start; see `descend`."""
    grid = cast(EceGrid, problem.objective).grid().tolist()
    return _search(problem, start, values_at, [lambda value, link: grid], max_trials)


def _search(
    problem: Problem,
    start: Parameters,
    values_at: ValuesAt,
    stages: Sequence[_Candidates],
    max_trials: int,
) -> Solution:
    """Try candidates for each coordinate in turn until a round gives no improvement."""
    map, parameters = problem.map, dict(start)
    moving = [name for stage in map.stages(problem.classes) for name in stage]
    count = sum(parameters[name].size for name in moving)
    if count > _MAX_PARAMETERS:
        raise InputError(
            "objective",
            found=f"{problem.objective.name!r} for {count} parameters of {map.name}",
            accepted=f"a smooth objective, or a map of at most {_MAX_PARAMETERS} parameters",
        )
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


def _values_in_memory(problem: Problem) -> ValuesAt:
    ops = NumpyOps()
    z = problem.logits.astype(np.float64, copy=False)
    weights = problem.relative_weights
    weights = np.ones(len(z)) if weights is None else weights

    def value_at(parameters: Parameters) -> float:
        log_p = problem.map.log_probabilities(ops, z, parameters)
        return float(problem.objective.loss(ops, log_p, problem.labels, weights))

    return lambda trials: np.array([value_at(parameters) for parameters in trials])
