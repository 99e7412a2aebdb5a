"""Maps with their own solvers on the rows of many files: curves of log-odds, and thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from recalib.fitting.beta import BETA, beta_solution, fit_beta, minimise_curves
from recalib.fitting.histogram_binning import absent_class_steps, class_steps, histogram_steps
from recalib.fitting.isotonic import absent_class_curve, class_curve, isotonic_curve
from recalib.fitting.meta_cal import meta_solution, meta_threshold
from recalib.fitting.problem import Problem, Solution, TemperatureFit
from recalib.fitting.quadratic import quadratic_solution
from recalib.fitting.spline import spline_curve
from recalib.fitting.temperature_preprocessing import absence_warnings
from recalib.maps.isotonic import Isotonic
from recalib.maps.meta_accuracy import MetaAccuracy
from recalib.maps.meta_miscoverage import MetaMiscoverage
from recalib.maps.spline import Spline
from recalib.objectives.nll import NegativeLogLikelihood
from recalib.scale.class_sums import beta_losses, class_odds_sums, fit_unit
from recalib.scale.objective_sums import objective_at, odds_sums
from recalib.scale.rows import FragmentRows, RowSurvey
from recalib.scale.temperature import Acceptance, accepted_survey, fit_temperature
from recalib.stats.groups import group_counts

Numbers = NDArray[np.float64]

#: Labels of a class that the sample needs to give the start of its three numbers.
_MIN_HITS = 30


def fit_curves(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    """Return the solution of a map with its own solver.

    Parameters
    ----------
    problem: the map, and the rows of the sample.
    single: the best temperature by NLL of all rows.
    """
    is_one_vs_rest = getattr(problem.map, "target", None) == "one_vs_rest"
    by_target = _of_classes if is_one_vs_rest else _of_one_curve
    solver = _SOLVERS.get(problem.map.name, by_target)
    if not problem.map.preserves_accuracy and solver != _meta:
        single = fit_unit(rows, survey, single)
    solution = solver(rows, survey, problem, single)
    nll = NegativeLogLikelihood()
    value = objective_at(rows, survey.weight, problem.map, nll, solution.parameters)
    return replace(solution, objective=value)


def _of_one_curve(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    map: Any = problem.map
    sums = odds_sums(rows, single.temperature, positive_class=map.target == "positive_class")
    groups = sums.groups()
    if isinstance(map, Spline):
        return single.before(spline_curve(groups, map))
    if isinstance(map, Isotonic):
        return single.before(isotonic_curve(groups, map))
    return single.before(histogram_steps(groups, map))


def _of_classes(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    """Return the solution of a map with a table for each class."""
    fit: Callable[..., tuple[Numbers, Numbers]]
    fit_absent: Callable[..., tuple[Numbers, Numbers]]
    if isinstance(problem.map, Isotonic):
        names, fit, fit_absent = ("knots", "values"), class_curve, absent_class_curve
    else:
        names, fit, fit_absent = ("edges", "values"), class_steps, absent_class_steps
    map: Any = problem.map
    tables = []
    of_classes = class_odds_sums(rows, survey.rows, survey.classes, single.temperature)
    for hits, sums in zip(survey.counts, of_classes, strict=True):
        if hits:
            tables.append(fit(sums.groups(), map))
        else:
            tables.append(fit_absent(float(sums.odds[0]), float(sums.odds[-1]), map))
    parameters = {
        name: np.stack(table) for name, table in zip(names, zip(*tables, strict=True), strict=True)
    }
    absent = int((survey.counts == 0).sum())
    warnings = absence_warnings(absent, survey.classes)
    return single.before(Solution(parameters, warnings=warnings))


def _quadratic(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    of_classes = class_odds_sums(rows, survey.rows, survey.classes, single.temperature)
    counted = zip(survey.counts, of_classes, strict=True)
    groups = (sums.groups() if hits else None for hits, sums in counted)
    return single.before(quadratic_solution(groups))


def _beta(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    """Return the curves of a `Beta`; a step of Newton's method of all classes is one pass."""
    present = np.flatnonzero(survey.counts)
    curves = np.tile(BETA.centre, (survey.classes, 1))
    sample = fit_beta(problem).parameters
    enough = group_counts(survey.labels, survey.classes) >= _MIN_HITS
    of_sample = np.stack([sample[name] for name in ("low", "high", "bias")], axis=1)
    curves[enough] = of_sample[enough]

    def losses_at(indices: NDArray[np.intp], trial: Numbers) -> Any:
        return beta_losses(rows, single.temperature, present[indices], trial)

    curves[present], converged = minimise_curves(losses_at, curves[present], BETA)
    absent = survey.classes - len(present)
    return single.before(beta_solution(curves, absent, converged=bool(converged.all())))


def _meta(
    rows: FragmentRows, survey: RowSurvey, problem: Problem, single: TemperatureFit
) -> Solution:
    """Return the threshold of a Meta-Cal map, and the temperatures of all and accepted rows."""
    sums = odds_sums(rows, single.temperature)
    map = cast(MetaMiscoverage | MetaAccuracy, problem.map)
    between, warnings = meta_threshold(sums.groups(), map)
    threshold = sums.start_of_cell(between)
    acceptance = Acceptance(single.temperature, threshold)
    accepted = accepted_survey(rows, survey, acceptance)
    of_accepted = single
    if 0 < accepted.rows < survey.rows:
        of_accepted = fit_temperature(rows, accepted, acceptance)
    return meta_solution(of_accepted, single, threshold, warnings)


_SOLVERS = {
    "beta": _beta,
    "quadratic": _quadratic,
    "meta_miscoverage": _meta,
    "meta_accuracy": _meta,
}
