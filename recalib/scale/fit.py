"""Fit calibrators to data in many files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from recalib.calibrator import Calibrator
from recalib.core.arrays import WeightKind, check_undeclared
from recalib.core.card import DataSummary, ReliabilityBins
from recalib.core.executors import Cluster, open_workers
from recalib.core.options import check_choice
from recalib.drift.reference_histogram import histogram_of_counts
from recalib.drift.target import target_of
from recalib.errors import InputError
from recalib.files import Input
from recalib.files.fragments import Source, check_unchanged, list_fragments, source_name
from recalib.fitting.fit import fit_rows
from recalib.fitting.fit_card import data_warnings, metric_values, reliability_bins
from recalib.fitting.problem import Progress
from recalib.fitting.request import check_request, resolve_fit
from recalib.fitting.solvers import check_summable
from recalib.fitting.thresholds import thresholds_of
from recalib.fitting.validation_error import error_of_sums
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.scale.rows import FragmentRows
from recalib.scale.sample_weights import check_weights_unchanged, list_weights, with_weights
from recalib.stats.sums import Bins


def fits_in_parts(map: str, objective: str, options: dict[str, Any]) -> bool:
    """Return whether `fit` takes a map and an objective; others need all rows in memory."""
    try:
        check_summable(resolve_fit(map, objective, options).objective)
    except InputError:
        return False
    return True


def fit(
    source: Source,
    map: str = "temperature",
    objective: str = "nll",
    *,
    input: Input | None = None,
    measure: bool = False,
    start: Calibrator | None = None,
    sample_weight: Source | None = None,
    weight_kind: WeightKind = "survey",
    class_labels: tuple[str, ...] | None = None,
    format: str | None = None,
    cluster: Cluster = None,
    progress: Progress = lambda stage, iteration, value: None,
    **options: Any,
) -> Calibrator:
    """Fit a map to all rows of a source, in bounded memory.

    A sample gives the start, and each further step is a pass over all rows. The optimum is that of
    `recalib.fit` on the same rows.

    Parameters
    ----------
    source, format: as in `recalib.files.fragments.list_fragments`; every file has labels.
    map, objective: names as in `recalib.fit`; the objective is a function of sums over rows. `auto`
        selects the map by cross-validation on the sample, and `choice` in the card names its rows.
    input: what the files hold, logits by default.
    measure: whether the card gets the metrics before and after the map, as `StreamingEvaluation`
        computes them.
    start: an earlier fit of the same map with the same options, used as the start in place of the
        sample's fit; a search for a single temperature starts from the sample.
    sample_weight: `.npy` files with a number of at least 0 for each row: one for each file of the
        source, with the same names before the suffix; a file, a folder, a glob, a URL or several.
        Equal by default.
    weight_kind: `survey` or `counts`, as in `recalib.fit`.
    class_labels: names of the classes, for the card, in the order of the columns.
    cluster: as in `recalib.core.executors`; None: this process.
    progress: called with the stage's name, the iteration and the objective's value.
    options: the map's options.

    Raises
    ------
    InputError: an objective that takes one file; a start of another map, of other options or
        classes, or with `auto`; a file cannot be read, changes during the fit, has no labels or
        invalid values; the message names the fragment. Weights are missing, invalid or zeros only.
    UnavailableError: the cluster cannot be reached, or its workers end.

    Examples
    --------
    >>> recalib.scale.fit(["val.npz", "test.npz"], "vector").card.data.rows
    800
    """
    request = resolve_fit(map, objective, options)
    check_summable(request.objective)
    check_request(request, start=start)
    check_choice("weight_kind", weight_kind, WeightKind)
    kind: Input = input or "logits"
    weight_files = list_weights(sample_weight)
    fragments = with_weights(list_fragments(source, format=format), weight_files)
    with open_workers(cluster) as workers:
        rows = FragmentRows(workers, fragments, kind)
        survey = rows.survey(weight_kind)
        is_small = survey.rows == len(survey.labels)
        undeclared = check_undeclared(survey.logits) if input is None else ""
        calibrator, _ = fit_rows(
            request,
            survey.sample,
            labels=class_labels,
            source=None if is_small else rows,
            start=start,
            progress=progress,
            warnings=data_warnings(survey.counts, undeclared, survey.mask),
            input=kind,
            mask=survey.mask,
            data=DataSummary(rows=survey.rows, name=source_name(source)),
        )
        calibrator = _describe(calibrator, rows, measure)
    # Passes over different rows have no common optimum.
    check_unchanged(source, fragments)
    check_weights_unchanged(sample_weight, weight_files)
    return calibrator


def _describe(calibrator: Calibrator, rows: FragmentRows, measure: bool) -> Calibrator:
    """Return the calibrator with its reference histogram, and metrics, in its card."""
    survey, description = rows.surveyed, rows.describe(calibrator, measure=measure)
    sums = description.monitored
    card = msgspec.structs.replace(
        calibrator.card,
        confidences=histogram_of_counts(sums.edges, sums.weight, target_of(survey.classes)),
        reliability=_reliability(description.metrics),
        calibration_error=error_of_sums(sums) if measure else None,
        thresholds=thresholds_of(calibrator, description.positives)
        if survey.classes == 2
        else None,
        metrics={
            stage: metric_values(evaluation.finish(0.95))
            for stage, evaluation in description.metrics.items()
        },
    )
    return Calibrator(calibrator.parameters, card)


def _reliability(metrics: Mapping[str, StreamingEvaluation]) -> dict[str, ReliabilityBins]:
    """Return what reliability diagrams show."""
    return {
        stage: reliability_bins(
            cast(Bins, evaluation.state("binary_ece" if evaluation.classes == 2 else "ece"))
        )
        for stage, evaluation in metrics.items()
    }
