"""Fit maps with scores linear in their parameters by negative log-likelihood.

The objective is convex, and Newton's method reaches its minimum in about ten steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from recalib.core.arrays import Numbers
from recalib.fitting.linear_form import LINEAR_MAPS, LinearForm
from recalib.fitting.linear_nll import LinearNll, RidgePenalty, SummedAround
from recalib.fitting.newton_cg import Box, Local, Minimum, minimise
from recalib.fitting.problem import Problem, Solution
from recalib.fitting.rows import Block
from recalib.fitting.temperature_preprocessing import best_unit
from recalib.maps import Map

#: The search ends with a step whose predicted gain is below this, in nats per row.
_TOLERANCE = 1e-14
#: The same in float32, a hundred times the rounding error.
_COARSE = 1e-5
#: A preconditioner of arrays takes as long as one or two products: it is kept after a smaller step.
#: That of rows elsewhere comes with each gradient.
_SMALL_STEP = 1e-2
#: Larger inputs take their first steps in float32, which is two to four times as fast.
_LARGE = 200_000
#: Rows for each parameter that a sample needs to give the start of a map with many.
_ROWS_PER_PARAMETER = 10


def fit_linear(problem: Problem) -> Solution:
    """Return the parameters of a linear map that minimise NLL and the map's penalty."""
    form, rows = LINEAR_MAPS[problem.map.name], problem.rows
    single = best_unit(rows)
    problem, unit = _with_start(problem, single.temperature), form.unit(single.temperature)
    start = problem.start_from(single.temperature)
    theta = form.theta(start, unit)
    ridge = form.ridge(problem.map, problem.classes, rows.weight, unit)
    nll_of = partial(_nll_of, form, problem.map, single.temperature)
    if rows.in_memory is not None:
        block = rows.in_memory.block._replace(weights=problem.relative_weights)
        minimum = _minimise_array(problem, nll_of(block, ridge), theta, form.box)
    else:
        around = partial(SummedAround, rows, nll_of, form.design, ridge)
        minimum = _minimise(problem, around, theta, form.box)
    natural = form.natural(minimum.x, unit)
    return Solution(
        {**start, **natural},
        objective=minimum.value,
        iterations=minimum.steps,
        converged=minimum.converged,
        bounds=form.bounds(minimum.x, natural),
    ).after(single.solution)


def _nll_of(
    form: LinearForm,
    map: Map,
    temperature: float,
    block: Block,
    ridge: RidgePenalty = RidgePenalty(),
) -> LinearNll:
    x, masked = form.rows(map, block.logits, temperature)
    return LinearNll(form.design, x, masked, block.labels, block.weights, ridge)


def _with_start(problem: Problem, temperature: float) -> Problem:
    """Return the problem of rows in files with the start of a sample, which saves passes.

    The sample has enough rows for each parameter, or the problem stays as it is.
    """
    if problem.source is None or problem.start is not None:
        return problem
    start = problem.map.start(problem.classes, temperature)
    moved = [name for names in problem.map.stages(problem.classes) for name in names]
    if len(problem.labels) < _ROWS_PER_PARAMETER * sum(start[name].size for name in moved):
        return problem
    return replace(problem, start=fit_linear(problem.sample).parameters)


def _minimise_array(problem: Problem, nll: LinearNll, theta: Numbers, box: Box) -> Minimum:
    """Return the minimum; large inputs are first minimised in float32."""
    coarse = None
    if nll.x.size > _LARGE:
        coarse = minimise(
            partial(nll.around, dtype="float32"),
            theta,
            box,
            tolerance=_COARSE,
            small_step=_SMALL_STEP,
            report=partial(problem.report, problem.map.name),
        )
    return _minimise(problem, nll.around, theta, box, coarse, _SMALL_STEP)


def _minimise(
    problem: Problem,
    around: Callable[[Numbers], Local],
    theta: Numbers,
    box: Box,
    coarse: Minimum | None = None,
    small_step: float = 0.0,
) -> Minimum:
    """Return the minimum, by a search in float64 after a coarse one."""
    steps = 0 if coarse is None else coarse.steps
    fine = minimise(
        around,
        theta if coarse is None else coarse.x,
        box,
        tolerance=max(_TOLERANCE, problem.tolerance),
        promised=np.inf if coarse is None else coarse.promised,
        small_step=small_step,
        report=lambda step, value: problem.report(problem.map.name, steps + step, value),
    )
    return replace(fine, steps=steps + fine.steps)
