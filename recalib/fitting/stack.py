"""Fit a stack: each member by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import cast

import numpy as np

from recalib.core.arrays import Integers, Numbers, check_weights
from recalib.errors import InputError
from recalib.fitting.objective_sums import objective_at
from recalib.fitting.problem import Problem, Solution, Solver
from recalib.maps.stack import Stack
from recalib.ops import NumpyOps


def fit_stack(problem: Problem, solve: Solver) -> Solution:
    """Return the solutions of the members as one.

    Parameters
    ----------
    problem: its map is a `Stack`.
    solve: fits a member to the rows of the problem.

    Raises
    ------
    InputError: uniform probabilities or weights of classes, and the rows are in files.
    """
    stack = cast(Stack, problem.map)
    if stack.smoothing and problem.source is not None:
        found = f"{stack.smoothing:g}, on several files"
        raise InputError("options.smoothing", found=found, accepted="0; others take one file")
    if stack.class_weight and problem.source is not None:
        found = "weights, on several files"
        raise InputError("options.class_weight", found=found, accepted="none; or one file")
    starts = [None] * len(stack.maps) if problem.start is None else stack.split(problem.start)
    logits = stack.smooth(NumpyOps(), problem.logits)
    weights = weigh_classes(stack.class_weight, problem.labels, problem.weights)
    of_members = replace(problem, logits=logits, weights=weights)
    solutions = [
        solve(replace(of_members, map=map, start=start))
        for map, start in zip(stack.maps, starts, strict=True)
    ]
    parameters = stack.join([solution.parameters for solution in solutions])
    return Solution(
        parameters,
        objective_at(problem.rows, stack, problem.objective, parameters),
        iterations=sum(solution.iterations for solution in solutions),
        converged=all(solution.converged for solution in solutions),
        bounds=tuple(dict.fromkeys(chain(*(solution.bounds for solution in solutions)))),
        warnings=tuple(dict.fromkeys(chain(*(solution.warnings for solution in solutions)))),
    )


def weigh_classes(
    class_weight: tuple[float, ...], labels: Integers, weights: Numbers | None
) -> Numbers | None:
    """Return weights of rows (N,), multiplied by those of their classes, if there are some."""
    if not class_weight:
        return weights
    of_rows = np.array(class_weight)[labels]
    of_rows *= 1.0 if weights is None else weights
    return check_weights(of_rows, rows=len(of_rows))
