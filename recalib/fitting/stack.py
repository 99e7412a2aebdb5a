"""Fit a stack: each member by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import cast

from recalib.fitting.problem import Problem, Solution, Solver
from recalib.maps import Parameters
from recalib.maps.stack import Stack
from recalib.ops import NumpyOps


def fit_stack(
    problem: Problem, solve: Solver, objective_at: Callable[[Parameters], float]
) -> Solution:
    """Return the solutions of the members as one.

    Parameters
    ----------
    problem: its map is a `Stack`.
    solve: fits a member to the rows of the problem.
    objective_at: the objective of the stack at given parameters.
    """
    stack = cast(Stack, problem.map)
    starts = [None] * len(stack.maps) if problem.start is None else stack.split(problem.start)
    logits = stack.smooth(NumpyOps(), problem.logits)
    solutions = [
        solve(replace(problem, map=map, logits=logits, start=start))
        for map, start in zip(stack.maps, starts, strict=True)
    ]
    parameters = stack.join([solution.parameters for solution in solutions])
    return Solution(
        parameters,
        objective_at(parameters),
        iterations=sum(solution.iterations for solution in solutions),
        converged=all(solution.converged for solution in solutions),
        bounds=tuple(dict.fromkeys(chain(*(solution.bounds for solution in solutions)))),
        warnings=tuple(dict.fromkeys(chain(*(solution.warnings for solution in solutions)))),
    )
