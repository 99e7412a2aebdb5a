"""The tables of solvers: which solver fits which map with which objective.

A map that is fitted by gradient needs no entry. A map with `fitted_by = "solver"` needs one in
`MAP_SOLVERS`. `PAIR_SOLVERS` names faster or more reliable solvers than the gradient method.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from recalib.core.arrays import centre_log_odds
from recalib.core.blas_threads import one_blas_thread
from recalib.core.packages import REQUIREMENTS, is_installed, optional_packages
from recalib.errors import InputError
from recalib.fitting.beta import fit_beta
from recalib.fitting.histogram_binning import fit_histogram_binning
from recalib.fitting.isotonic import fit_isotonic
from recalib.fitting.linear_maps import fit_linear
from recalib.fitting.meta_cal import fit_meta
from recalib.fitting.multilabel import fit_labels
from recalib.fitting.newton import best_temperature
from recalib.fitting.objective_sums import objective_at
from recalib.fitting.problem import Problem, Solution, Solver
from recalib.fitting.quadratic import fit_quadratic
from recalib.fitting.search import (
    check_parameters,
    search_class_grid,
    search_coordinates,
    search_grid,
    search_temperature,
)
from recalib.fitting.spline import fit_spline
from recalib.fitting.stack import fit_stack
from recalib.fitting.strength import with_strength
from recalib.fitting.venn_abers import fit_venn_abers
from recalib.maps import MAPS, Map
from recalib.maps.labels import LabelMap
from recalib.maps.temperature import Temperature
from recalib.objectives import OBJECTIVES, Objective
from recalib.objectives.nll import NegativeLogLikelihood

#: The largest loss of NLL, relative and in nats, that a fit by a calibration error may have. The
#: best temperatures by both differ by some percent, which costs much less.
_MAX_NLL_LOSS, _MAX_NLL_LOSS_NATS = 0.1, 0.01


@one_blas_thread()
def solve(problem: Problem) -> Solution:
    """Return the fitted parameters of a problem.

    A map of two classes that is not shift invariant is fitted to the log-odds alone: with two free
    slopes it would reverse rows that the classifier orders well.

    Raises
    ------
    InputError: more classes than the map takes.
    """
    map, objective, classes = problem.map, problem.objective, problem.classes
    if isinstance(map, LabelMap):
        return fit_labels(problem)
    check_size(map, objective, classes)
    if not map.parameters(classes):
        return Solution({}, objective_at(problem.rows, map, objective, {}))
    is_centred = classes == 2 and not map.shift_invariant
    if is_centred:
        problem = replace(problem, logits=centre_log_odds(problem.logits))
    if map.fitted_by == "solver":
        solution = MAP_SOLVERS[map.name](problem)
    else:
        problem, chosen = with_strength(problem)
        default = _by_gradient if objective.smooth else search_coordinates
        solution = PAIR_SOLVERS.get((map.name, objective.name), default)(problem)
        if objective.top_label_only:
            solution = _check_against_nll(problem, solution)
        solution = replace(solution, settled=solution.settled | chosen)
    if is_centred:
        solution = replace(solution, parameters=map.tie_classes(solution.parameters))
    return solution


def check_size(map: Map, objective: Objective, classes: int) -> None:
    """Raise `InputError` if a pair cannot be fitted to K = `classes`, or not without torch."""
    if map.max_classes is not None and classes > map.max_classes:
        raise InputError(
            "map",
            found=f"{map.name}, whose matrix for {classes} classes has {classes**2:,} numbers",
            accepted=f"at most {map.max_classes} classes; for more, structured_vector",
        )
    if missing := missing_torch(map, objective):
        accepted = f"pip install '{REQUIREMENTS['torch']}'"
        raise InputError("map", found=missing, accepted=accepted)
    if not objective.smooth and map.fitted_by == "gradient":
        check_parameters(map, objective, classes)


def pair_error(map: Map, objective: Objective) -> InputError:
    """Return the error of a map that cannot be fitted with the objective; see `fits_pair`."""
    found, accepted = f"{objective.name!r}", f"nll: {map.name} has its own solver"
    if map.fitted_by == "gradient":
        maps = ", ".join(name for name, of in PAIR_SOLVERS if of == objective.name)
        found = f"{objective.name!r} for the map {map.name}"
        accepted = f"a grid of temperatures for {maps}"
    return InputError("objective", found=found, accepted=accepted)


def check_summable(objective: Objective) -> None:
    """Raise `InputError` unless the objective can be computed from sums over several files."""
    if not objective.summable:
        raise InputError(
            "objective",
            found=f"{objective.name} with these options, on several files",
            accepted="the variant binned or order 2; other options take one file",
        )


def fits_pair(map: Map, objective: Objective) -> bool:
    """Return whether the map can be fitted with the objective."""
    if map.fitted_by == "solver":
        return objective.name == "nll"
    return objective.name != "ece_grid" or (map.name, objective.name) in PAIR_SOLVERS


def missing_torch(map: Map, objective: Objective) -> str:
    """Return what a fit misses if it differentiates by torch and that is not installed, or ""."""
    if map.fitted_by == "solver" or not objective.smooth or not map.parameters(2):
        return ""
    solver = PAIR_SOLVERS.get((map.name, objective.name), _by_gradient)
    if solver not in (_by_gradient, _ensemble) or is_installed("torch"):
        return ""
    return f"no torch, which fits {map.name} by {objective.name}"


def check_device_pair(map: Map, objective: Objective, device: str) -> None:
    """Raise `InputError` unless torch has the device and the pair can be fitted in chunks there.

    These are maps with parameters that have no solver of their own, with objectives that are means
    over rows.
    """
    names = [name for name, of in MAPS.items() if name not in MAP_SOLVERS and of().parameters(2)]
    if map.name not in names:
        accepted = f"no device, or a map of {', '.join(names)}"
        raise InputError("device", found=f"{device!r} with the map {map.name}", accepted=accepted)
    if not objective.by_row:
        sums = ", ".join(name for name, of in OBJECTIVES.items() if of.by_row)
        found = f"{device!r} with the objective {objective.name}"
        raise InputError("device", found=found, accepted=f"no device, or an objective of {sums}")
    with optional_packages("device"):
        from recalib.fitting.device_rows import check_device
    check_device(device)


def _check_against_nll(problem: Problem, solution: Solution) -> Solution:
    """Return the solution, or the solution by NLL if the first has a much larger NLL.

    A calibration error can be smallest if all confidences are 1 or all are equal.
    """
    nll = solve(replace(problem, objective=NegativeLogLikelihood()))
    limit = nll.objective + max(_MAX_NLL_LOSS * nll.objective, _MAX_NLL_LOSS_NATS)
    rows, map, objective = problem.rows, problem.map, problem.objective
    value = objective_at(rows, map, NegativeLogLikelihood(), solution.parameters)
    if value <= limit:
        return solution
    text = (
        f"{objective.name} is least where the negative log-likelihood is {value:.4g}, "
        f"{nll.objective:.4g} at its own best: the parameters by nll were taken instead"
    )
    at_nll = objective_at(rows, map, objective, nll.parameters)
    return replace(nll, objective=at_nll, warnings=(*nll.warnings, text))


def _newton(problem: Problem) -> Solution:
    single = best_temperature(problem.rows)
    problem.report("temperature", single.iterations, single.nll)
    return single.solution


def _by_gradient(problem: Problem) -> Solution:
    # Imported here because torch takes a second, and temperature scaling does not need it.
    from recalib.fitting.gradient import fit_by_gradient

    single = best_temperature(problem.rows)
    start = problem.start_from(single.temperature)
    return fit_by_gradient(problem, start).after(single.solution)


def _ensemble(problem: Problem) -> Solution:
    """Fit temperature scaling with the same objective, then the weights of the mixture."""
    single = solve(replace(problem, map=Temperature()))
    start = problem.map.start(problem.classes, float(single.parameters["temperature"]))
    if problem.objective.smooth:
        from recalib.fitting.gradient import fit_by_gradient

        return fit_by_gradient(problem, start).after(single)
    # The search changes weights by factors, so it cannot leave 0.
    mixed = {**start, "weights": np.array([0.98, 0.01, 0.01])}
    solution = search_coordinates(replace(problem, start=mixed))
    if single.objective <= solution.objective:
        solution = Solution(start, single.objective)
    return solution.after(single)


#: Solvers of pairs of map and objective that replace the gradient method.
PAIR_SOLVERS: dict[tuple[str, str], Solver] = {
    ("temperature", "nll"): _newton,
    ("temperature", "sb_ece"): search_temperature,
    ("temperature", "hb_ece"): search_temperature,
    ("temperature", "ece_grid"): search_grid,
    ("class_temperature", "ece_grid"): search_class_grid,
    **{("ensemble_temperature", name): _ensemble for name in OBJECTIVES if name != "ece_grid"},
    ("class_temperature", "nll"): fit_linear,
    ("vector", "nll"): fit_linear,
    ("matrix", "nll"): fit_linear,
    ("dirichlet", "nll"): fit_linear,
    ("structured_vector", "nll"): fit_linear,
    ("structured_matrix", "nll"): fit_linear,
}

#: Solvers of maps that are not fitted by gradient.
MAP_SOLVERS: dict[str, Solver] = {
    "histogram_binning": fit_histogram_binning,
    "isotonic": fit_isotonic,
    "venn_abers": fit_venn_abers,
    "beta": fit_beta,
    "spline": fit_spline,
    "quadratic": fit_quadratic,
    "meta_miscoverage": fit_meta,
    "meta_accuracy": fit_meta,
    "stack": partial(fit_stack, solve=solve),
}
