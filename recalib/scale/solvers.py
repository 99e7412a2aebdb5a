"""Which solver fits which map to rows of many files; the solvers are those of one file."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from recalib.errors import InputError
from recalib.fitting.coordinate_search import descend, descend_on_grid
from recalib.fitting.linear_form import LINEAR_MAPS
from recalib.fitting.linear_maps import TOLERANCE, linear_solution
from recalib.fitting.linear_nll import SummedNll
from recalib.fitting.newton_cg import minimise
from recalib.fitting.problem import Problem, Solution, TemperatureFit
from recalib.fitting.search import search_grid_near, search_near
from recalib.fitting.solvers import (
    check_classes,
    ensemble_by_search,
    prefer_nll,
    solve,
)
from recalib.fitting.stack import fit_stack
from recalib.fitting.strength import with_strength
from recalib.maps import Parameters
from recalib.maps.stack import Stack
from recalib.maps.temperature import Temperature
from recalib.objectives import Objective
from recalib.objectives.base import TopLabelObjective
from recalib.objectives.ece_grid import EceGrid
from recalib.objectives.nll import NegativeLogLikelihood
from recalib.scale.class_sums import fit_unit
from recalib.scale.curves import fit_curves
from recalib.scale.objective_sums import binned_errors, objective_at, objectives_at
from recalib.scale.rows import FragmentRows, LinearMeans, RowSurvey
from recalib.scale.temperature import fit_temperature

#: Rows for each parameter that a sample needs to give the start of a map with many.
_ROWS_PER_PARAMETER = 10
#: Parameters whose objectives a coordinate search computes in one pass.
_MAX_TRIALS = 256


def check_summable(objective: Objective) -> None:
    """Raise `InputError` unless the objective can be computed from sums over several files."""
    if not objective.summable:
        raise InputError(
            "objective",
            found=f"{objective.name} with these options, on several files",
            accepted="the variant binned or order 2; other options take one file",
        )


def solve_over_fragments(rows: FragmentRows, survey: RowSurvey, problem: Problem) -> Solution:
    """Return the solution on all rows, of a pair that `check_summable` accepts.

    Parameters
    ----------
    problem: the map, the objective, and the rows of the sample.
    """
    map, objective = problem.map, problem.objective
    check_classes(map, survey.classes)
    value_at = partial(objective_at, rows, survey.weight, map, objective)
    if isinstance(map, Stack):
        if map.smoothing:
            found = f"{map.smoothing:g}, on several files"
            raise InputError("options.smoothing", found=found, accepted="0; others take one file")
        return fit_stack(problem, partial(solve_over_fragments, rows, survey), value_at)
    if not map.parameters(survey.classes):
        return Solution({}, value_at({}))
    single = fit_temperature(rows, survey)
    problem.report("temperature", single.iterations, single.nll)
    problem, chosen = with_strength(problem, survey.weight)
    solution = _solve(rows, survey, problem, single)
    if survey.classes == 2:
        solution = replace(solution, parameters=map.tie_classes(solution.parameters))
    return replace(solution, settled=solution.settled | chosen)


def _solve(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    map, objective = problem.map, problem.objective
    if map.fitted_by == "solver":
        return fit_curves(rows, survey, problem, single)
    if objective.name == "nll":
        if map.name == "temperature":
            return single.solution
        if map.name in LINEAR_MAPS:
            return _linear(rows, survey, problem, fit_unit(rows, survey, single))
    if map.name == "temperature" and isinstance(objective, TopLabelObjective):
        solution = _search_temperature(rows, survey, objective, single)
    elif map.name == "ensemble_temperature":
        solution = _ensemble(rows, survey, problem, single)
    elif objective.smooth:
        start = map.start(survey.classes, single.temperature)
        start |= _moved_parameters(problem, survey.classes)
        solution = _gradient(rows, survey, problem, start).after(single.solution)
    else:
        solution = _coordinates(rows, survey, problem, single)
    if not objective.top_label_only:
        return solution
    nll = NegativeLogLikelihood()
    return prefer_nll(
        objective.name,
        solution,
        _solve(rows, survey, replace(problem, objective=nll), single),
        partial(objective_at, rows, survey.weight, map, nll),
        partial(objective_at, rows, survey.weight, map, objective),
    )


def _search_temperature(
    rows: FragmentRows, survey: RowSurvey, objective: TopLabelObjective, single: TemperatureFit
) -> Solution:
    size = survey.rows * survey.classes
    errors = partial(binned_errors, rows, survey.weight, size, objective)
    if isinstance(objective, EceGrid):
        return search_grid_near(single, objective, errors)
    return search_near(single, objective.name, size, errors)


def _ensemble(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    """Fit temperature scaling with the same objective, then the weights of the mixture."""
    before = _solve(rows, survey, replace(problem, map=Temperature()), single)
    start = problem.map.start(survey.classes, float(before.parameters["temperature"]))
    if problem.objective.smooth:
        solution = _gradient(rows, survey, problem, start)
    else:
        descent = partial(_descend, rows, survey, problem)
        solution = ensemble_by_search(before, start, descent)
    return solution.after(before)


def _coordinates(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    """Return the solution by coordinate search; trials of many coordinates share a pass."""
    temperature = single.temperature
    if isinstance(problem.objective, EceGrid):
        by_grid = _search_temperature(rows, survey, problem.objective, single)
        temperature = float(by_grid.parameters["temperature"])
    start = problem.start or problem.map.start(survey.classes, temperature)
    return _descend(rows, survey, problem, start)


def _descend(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, start: Parameters
) -> Solution:
    values_at = partial(objectives_at, rows, survey.weight, problem.map, problem.objective)
    search = descend_on_grid if isinstance(problem.objective, EceGrid) else descend
    return search(problem, start, values_at, max_trials=_MAX_TRIALS)


def _moved_parameters(problem: Problem, classes: int) -> Parameters:
    """Return the start's parameters that a stage moves; the others are fitted to these rows."""
    start = problem.start or {}
    stages = problem.map.stages(classes)
    return {name: start[name] for names in stages for name in names if name in start}


def _gradient(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, start: Parameters
) -> Solution:
    # Imported here because torch takes a second, and other maps do not need it.
    from recalib.scale.gradient import fit_by_gradient

    return fit_by_gradient(rows, survey, problem, start)


def _linear(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    """Return the solution by NLL of a map that is linear in its parameters.

    Without a start, a sample gives it if it has enough rows, which saves passes over all rows.
    """
    map, classes = problem.map, survey.classes
    form = LINEAR_MAPS[map.name]
    start = map.start(classes, single.temperature)
    stages = map.stages(classes)
    count = sum(start[name].size for stage in stages for name in stage)
    if problem.start is not None:
        start |= _moved_parameters(problem, classes)
    elif len(survey.labels) >= _ROWS_PER_PARAMETER * count:
        sample = solve(problem).parameters
        start |= {name: sample[name] for stage in stages for name in stage}
    unit = form.unit(single.temperature)
    minimum = minimise(
        SummedNll(
            form.design,
            LinearMeans(rows, survey.weight, map, single.temperature),
            form.ridge(map, classes, survey.weight, unit),
        ).around,
        form.theta(start, unit),
        form.box,
        tolerance=TOLERANCE,
        report=lambda step, value: problem.report(map.name, step, value),
    )
    return linear_solution(form, single, start, minimum)
