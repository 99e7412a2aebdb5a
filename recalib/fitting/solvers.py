"""Which solver fits which map with which objective: a visible table."""

from __future__ import annotations

import numpy as np

from recalib.errors import InputError
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Problem, Solution, Solver
from recalib.maps import Map
from recalib.objectives import Objective
from recalib.ops import NumpyOps

__all__ = ["check_pair", "solve"]


def solve(problem: Problem) -> Solution:
    """Return the fitted parameters of a problem."""
    if not problem.map.parameters(problem.classes):
        return _nothing_to_fit(problem)
    if problem.map.fitted_by == "solver":
        return OWN_SOLVERS[problem.map.name](problem)
    solver = SOLVERS.get((problem.map.name, problem.objective.name), _by_gradient)
    return solver(problem)


def check_pair(map: Map, objective: Objective) -> None:
    """Raise `InputError` for an objective that the map cannot be fitted with."""
    if map.fitted_by == "solver" and objective.name != "nll":
        raise InputError(
            "objective",
            found=f"{objective.name!r}",
            accepted=f"nll: {map.name} is fitted in a way of its own",
        )


def _newton(problem: Problem) -> Solution:
    found = fit_temperature(problem.logits, problem.labels, problem.weights)
    problem.report("temperature", found.iterations, found.nll)
    reached = f"temperature at its {found.bound} bound {found.temperature:.6g}"
    return Solution(
        {"temperature": np.array(found.temperature)},
        objective=found.nll,
        iterations=found.iterations,
        converged=found.converged,
        bounds=[reached] if found.bound else [],
        warnings=list(found.warnings),
    )


def _by_gradient(problem: Problem) -> Solution:
    # Here and not above: torch takes a second to import, and temperature scaling needs none.
    from recalib.fitting.gradient import fit_by_gradient

    single = fit_temperature(problem.logits, problem.labels, problem.weights)
    start = problem.start or problem.map.start(problem.classes, single.temperature)
    solution = fit_by_gradient(problem, start)
    solution.iterations += single.iterations
    solution.converged &= single.converged
    solution.warnings[:0] = single.warnings
    return solution


def _nothing_to_fit(problem: Problem) -> Solution:
    ops = NumpyOps()
    log_p = problem.map.log_probabilities(ops, problem.logits.astype(np.float64, copy=False), {})
    weights = np.ones(len(log_p)) if problem.weights is None else problem.weights
    return Solution({}, float(problem.objective.loss(ops, log_p, problem.labels, weights)))


#: Where something faster or surer than the general gradient method exists.
SOLVERS: dict[tuple[str, str], Solver] = {
    ("temperature", "nll"): _newton,
}

#: How maps are fitted that do not minimise an objective by its gradient.
OWN_SOLVERS: dict[str, Solver] = {}
