"""Fit maps with scores linear in their parameters by negative log-likelihood.

The objective is convex, and Newton's method reaches its minimum in about ten steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from recalib.fitting.linear_form import LINEAR_MAPS, LinearForm
from recalib.fitting.linear_nll import LinearNll, Ridge, SummedNll
from recalib.fitting.newton import TemperatureFit, fit_temperature
from recalib.fitting.newton_cg import Box, Minimum, minimise
from recalib.fitting.problem import Problem, Solution

__all__ = ["TOLERANCE", "fit_linear", "linear_solution", "one_blas_thread"]

Numbers = NDArray[np.float64]

#: The search ends with a step whose predicted gain is below this, in nats per row.
TOLERANCE = 1e-14
#: The same in float32, a hundred times the rounding error.
_COARSE = 1e-5
#: Larger inputs take their first steps in float32, which is two to four times as fast.
_LARGE = 200_000


def fit_linear(problem: Problem) -> Solution:
    """Return the parameters of a linear map that minimise NLL and the map's penalty."""
    form = LINEAR_MAPS[problem.map.name]
    single = fit_temperature(problem.logits, problem.labels, problem.weights, device=problem.device)
    start = problem.map.start(problem.classes, single.temperature)
    stages = problem.map.stages(problem.classes)
    if problem.start is not None:
        # Parameters that no stage moves are fitted to these rows, not copied from the start.
        start |= {name: problem.start[name] for names in stages for name in names}
    unit = form.unit(single.temperature)
    ridge = form.ridge(problem.map, problem.classes, len(problem.labels), unit)
    theta = form.theta(start, unit)
    if problem.device is not None:
        summed = _nll_on_device(problem, form, single.temperature, ridge)
        minimum = _minimise(problem, summed, theta, form.box)
    else:
        x, masked = form.rows(problem.map, problem.logits, single.temperature)
        nll = LinearNll(form.design, x, masked, problem.labels, problem.weights, ridge)
        with one_blas_thread():
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
        iterations=minimum.steps + single.iterations,
        converged=minimum.converged and single.converged,
        bounds=form.bounds(single, minimum.x, natural),
        warnings=list(single.warnings),
    )


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread.

    Passes use their own threads, which sleep while waiting. BLAS threads spin: on a busy machine
    5,000 x 100 took 19 s instead of 1.
    """
    limits: AbstractContextManager[object] = _threads().limit(limits=1, user_api="blas")
    return limits


@cache
def _threads() -> ThreadpoolController:
    """Return the controller of BLAS threads; creating it takes 30 ms."""
    return ThreadpoolController()


def _minimise_array(problem: Problem, nll: LinearNll, theta: Numbers, box: Box) -> Minimum:
    """Return the minimum; large inputs are first minimised in float32."""
    steps = 0
    if nll.x.size > _LARGE:
        coarse = minimise(
            lambda point: nll.around(point, np.float32),
            theta,
            box,
            tolerance=_COARSE,
            report=lambda step, value: problem.report(problem.map.name, step, value),
        )
        theta, steps = coarse.x, coarse.steps
    return _minimise(problem, nll, theta, box, steps)


def _minimise(
    problem: Problem, nll: LinearNll | SummedNll, theta: Numbers, box: Box, steps: int = 0
) -> Minimum:
    """Return the minimum, by a search in float64 after some earlier steps."""
    fine = minimise(
        nll.around,
        theta,
        box,
        tolerance=TOLERANCE,
        report=lambda step, value: problem.report(problem.map.name, steps + step, value),
    )
    return Minimum(fine.x, fine.value, steps + fine.steps, fine.converged)


def _nll_on_device(
    problem: Problem, form: LinearForm, temperature: float, ridge: Ridge
) -> SummedNll:
    # Imported here because torch takes a second, and arrays in memory do not need it.
    from recalib.fitting.chunk_sums import LinearChunkSums
    from recalib.fitting.row_chunks import RowChunks

    chunks = RowChunks(problem.logits, problem.labels, problem.weights, str(problem.device))
    sums = LinearChunkSums(chunks, form, temperature, passes_masks=problem.map.passes_masks)
    return SummedNll(form.design, sums, ridge)
