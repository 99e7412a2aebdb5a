"""Fit calibrators to data in many files."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

import msgspec

from recalib.calibrator import Calibrator
from recalib.card import Card, ConfidenceHistogram, DataSummary, FitSummary
from recalib.drift.reference_histogram import reference_histogram
from recalib.errors import InputError
from recalib.executors import open_workers
from recalib.files import Input
from recalib.fitting.fit import configure_pair, data_warnings, metric_values
from recalib.fitting.linear_form import LINEAR_MAPS
from recalib.fitting.linear_maps import TOLERANCE, linear_solution
from recalib.fitting.linear_nll import SummedNll
from recalib.fitting.newton import TemperatureFit, fit_temperature_by_sums
from recalib.fitting.newton_cg import minimise
from recalib.fitting.problem import Problem, Progress, Solution
from recalib.fitting.solvers import solve, temperature_solution
from recalib.fitting.validation_error import error_of_sums
from recalib.fragments import Source, list_fragments
from recalib.options import options_of
from recalib.scale.rows import FragmentRows, LinearMeans, Survey

__all__ = ["MAPS", "fit"]

#: Maps that are fitted by sums over rows, with the objective nll.
MAPS = ("temperature", *LINEAR_MAPS)

#: Rows for each parameter that a sample needs to give the start of a map with many.
_ROWS_PER_PARAMETER = 10


def fit(
    source: Source,
    map: str = "temperature",
    objective: str = "nll",
    *,
    input: Input | None = None,
    measure: bool = False,
    format: str | None = None,
    cluster: str | None = None,
    progress: Progress = lambda stage, iteration, value: None,
    **options: Any,
) -> Calibrator:
    """Fit a map to all rows of a source, in bounded memory.

    A sample gives the start, and each further step is a pass over all rows. The optimum is that of
    `recalib.fit` on the same rows.

    Parameters
    ----------
    source, format: as in `recalib.fragments.list_fragments`; every file has labels.
    map: one of `MAPS`; objective: nll.
    input: what the files hold, logits by default.
    measure: whether the card gets the metrics before and after the map, as `StreamingEvaluation`
        computes them.
    cluster: as in `recalib.executors`; None: this process.
    progress: called with the stage's name, the iteration and the objective's value.
    options: the map's options.

    Raises
    ------
    InputError: another map or objective; a file cannot be read, has no labels or invalid values;
        the message names the fragment.
    UnavailableError: the cluster cannot be reached, or its workers end.

    Examples
    --------
    >>> calibrator = fit("s3://bucket/validation/", "vector", cluster="local:4")  # doctest: +SKIP
    """
    the_map, the_objective = configure_pair(map, objective, options)
    if the_map.name not in MAPS or the_objective.name != "nll":
        raise InputError(
            "map",
            found=f"{map} by {objective}, on several files",
            accepted=f"{', '.join(MAPS)} by nll; other maps take one file",
        )
    kind: Input = input or "logits"
    fragments = list_fragments(source, format=format)
    started = time.perf_counter()
    with open_workers(cluster) as workers:
        rows = FragmentRows(workers, fragments, kind)
        survey = rows.survey()
        problem = Problem(the_map, the_objective, survey.logits, survey.labels, progress=progress)
        is_small = survey.rows == len(survey.labels)
        solution = solve(problem) if is_small else _fit(rows, survey, problem)
        resembles = input is None and survey.resembles_probabilities
        warnings = data_warnings(survey.counts, resembles_probabilities=resembles)
        card = Card(
            map=the_map.name,
            objective=the_objective.name,
            options=options_of(the_map),
            objective_options=options_of(the_objective),
            classes=survey.classes,
            input=kind,
            library=version("recalib"),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            data=DataSummary(rows=survey.rows, name=_name(source)),
            fit=FitSummary(
                seconds=time.perf_counter() - started,
                iterations=solution.iterations,
                converged=solution.converged,
                objective=solution.objective,
                bounds_reached=tuple(solution.bounds),
                warnings=(*solution.warnings, *warnings),
            ),
        )
        return _describe(Calibrator(solution.parameters, card), rows, survey, measure)


def _fit(rows: FragmentRows, survey: Survey, problem: Problem) -> Solution:
    """Return the solution on all rows, from one on the sample."""
    map, classes = problem.map, survey.classes
    single = _fit_temperature(rows, survey)
    problem.report("temperature", single.iterations, single.nll)
    if map.name == "temperature":
        return temperature_solution(single)
    form = LINEAR_MAPS[map.name]
    start = map.start(classes, single.temperature)
    stages = map.stages(classes)
    count = sum(start[name].size for stage in stages for name in stage)
    if len(survey.labels) >= _ROWS_PER_PARAMETER * count:
        sample = solve(problem).parameters
        start |= {name: sample[name] for stage in stages for name in stage}
    unit = form.unit(single.temperature)
    minimum = minimise(
        SummedNll(
            form.design,
            LinearMeans(rows, survey.rows, map, single.temperature),
            form.ridge(map, classes, survey.rows, unit),
        ).around,
        form.theta(start, unit),
        form.box,
        tolerance=TOLERANCE,
        report=lambda step, value: problem.report(map.name, step, value),
    )
    return linear_solution(form, single, start, minimum)


def _fit_temperature(rows: FragmentRows, survey: Survey) -> TemperatureFit:
    if survey.scale == 0:
        nll = float(rows.moments(1.0, 0.0)[0]) / survey.rows
        warning = "all logits of each row are equal: no temperature has any effect"
        return TemperatureFit(1.0, nll, 0, True, "", (warning,))
    sums = partial(rows.moments, survey.scale)
    return fit_temperature_by_sums(sums, survey.rows, survey.scale, survey.logits, survey.labels)


def _describe(
    calibrator: Calibrator, rows: FragmentRows, survey: Survey, measure: bool
) -> Calibrator:
    """Return the calibrator with the histogram of its confidences, and metrics, in its card.

    The bins are at the quantiles of the sample; their counts and the metrics are of all rows.
    """
    sample = calibrator.predict_float64(survey.logits).max(axis=1)
    edges = reference_histogram(sample).edges
    description = rows.describe(calibrator, edges, measure=measure)
    counts = tuple(description.confidences.labelled.tolist())
    card = msgspec.structs.replace(
        calibrator.card,
        confidences=ConfidenceHistogram(edges, counts),
        calibration_error=error_of_sums(description.confidences) if measure else None,
        metrics={
            stage: metric_values(evaluation.finish(0.95))
            for stage, evaluation in description.metrics.items()
        },
    )
    return Calibrator(calibrator.parameters, card)


def _name(source: Source) -> str:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return ", ".join(os.fspath(item) for item in source)[:200]
