"""Fit maps with scores linear in their parameters by negative log-likelihood.

The objective is convex, and Newton's method reaches its minimum in about ten steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recalib.fitting.linear_form import LINEAR_MAPS, LinearForm
from recalib.fitting.linear_nll import LinearNll, RidgePenalty, SummedNll
from recalib.fitting.newton_cg import Box, Minimum, minimise
from recalib.fitting.problem import Problem, Solution, TemperatureFit
from recalib.fitting.temperature_preprocessing import fit_unit

Numbers = NDArray[np.float64]

#: The search ends with a step whose predicted gain is below this, in nats per row.
TOLERANCE = 1e-14
#: The same in float32, a hundred times the rounding error.
_COARSE = 1e-5
#: A preconditioner of arrays takes as long as one or two products: it is kept after a smaller step.
#: That of rows elsewhere comes with each gradient.
_SMALL_STEP = 1e-2
#: Larger inputs take their first steps in float32, which is two to four times as fast.
_LARGE = 200_000


def fit_linear(problem: Problem) -> Solution:
    """Return the parameters of a linear map that minimise NLL and the map's penalty."""
    form = LINEAR_MAPS[problem.map.name]
    single = fit_unit(problem)
    start = problem.map.start(problem.classes, single.temperature)
    stages = problem.map.stages(problem.classes)
    if problem.start is not None:
        # Parameters that no stage moves are fitted to these rows, not copied from the start.
        start |= {name: problem.start[name] for names in stages for name in names}
    unit = form.unit(single.temperature)
    ridge = form.ridge(problem.map, problem.classes, problem.effective_rows, unit)
    theta = form.theta(start, unit)
    if problem.device is not None:
        summed = _nll_on_device(problem, form, single.temperature, ridge)
        minimum = _minimise(problem, summed, theta, form.box)
    else:
        x, masked = form.rows(problem.map, problem.logits, single.temperature)
        weights = problem.relative_weights
        nll = LinearNll(form.design, x, masked, problem.labels, weights, ridge)
        minimum = _minimise_array(problem, nll, theta, form.box)
    return linear_solution(form, single, start, minimum)


def linear_solution(
    form: LinearForm, single: TemperatureFit, start: Mapping[str, Numbers], minimum: Minimum
) -> Solution:
    """Return the solution that a minimum in (K, D) stands for.

    Parameters
    ----------
    start: the map's parameters; those that the fit does not move stay.
    """
    natural = form.natural(minimum.x, form.unit(single.temperature))
    return Solution(
        {**start, **natural},
        objective=minimum.value,
        iterations=minimum.steps,
        converged=minimum.converged,
        bounds=form.bounds(minimum.x, natural),
    ).after(single.solution)


def _minimise_array(problem: Problem, nll: LinearNll, theta: Numbers, box: Box) -> Minimum:
    """Return the minimum; large inputs are first minimised in float32."""
    if nll.x.size <= _LARGE:
        return _minimise(problem, nll, theta, box)
    coarse = minimise(
        lambda point: nll.around(point, np.float32),
        theta,
        box,
        tolerance=_COARSE,
        small_step=_SMALL_STEP,
        report=lambda step, value: problem.report(problem.map.name, step, value),
    )
    return _minimise(problem, nll, coarse.x, box, coarse)


def _minimise(
    problem: Problem,
    nll: LinearNll | SummedNll,
    theta: Numbers,
    box: Box,
    coarse: Minimum | None = None,
) -> Minimum:
    """Return the minimum, by a search in float64 after a coarse one."""
    steps = 0 if coarse is None else coarse.steps
    fine = minimise(
        nll.around,
        theta,
        box,
        tolerance=TOLERANCE,
        promised=np.inf if coarse is None else coarse.promised,
        small_step=_SMALL_STEP if isinstance(nll, LinearNll) else 0.0,
        report=lambda step, value: problem.report(problem.map.name, steps + step, value),
    )
    return replace(fine, steps=steps + fine.steps)


def _nll_on_device(
    problem: Problem, form: LinearForm, temperature: float, ridge: RidgePenalty
) -> SummedNll:
    # Imported here because torch takes a second, and arrays in memory do not need it.
    from recalib.fitting.chunk_sums import LinearChunkSums
    from recalib.fitting.row_chunks import RowChunks

    chunks = RowChunks(
        problem.logits, problem.labels, problem.relative_weights, str(problem.device)
    )
    sums = LinearChunkSums(chunks, form, temperature, passes_masks=problem.map.passes_masks)
    return SummedNll(form.design, sums, ridge)
