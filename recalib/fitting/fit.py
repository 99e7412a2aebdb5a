"""Fit a calibrator to logits and labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import (
    RESEMBLANCE_HINT,
    Floats,
    Integers,
    WeightKind,
    check_labels,
    check_logits,
    check_probabilities,
    check_weights,
    drop_rows_without_weight,
    probability_resemblance,
)
from recalib.core.arrays import log_probabilities as as_logits
from recalib.core.blas_threads import one_blas_thread
from recalib.core.card import Card, DataSummary, FitSummary, MetricValue
from recalib.core.class_names import class_indices
from recalib.core.inputs import as_array, check_index, counted_rows, frame_columns, score_matrix
from recalib.core.masks import Mask, mask_constants
from recalib.core.options import options_of
from recalib.drift.reference_histogram import reference_histogram
from recalib.drift.target import monitored_probabilities, pairs_of_rows, target_of
from recalib.errors import InputError
from recalib.files import Task
from recalib.fitting.auto import AUTO
from recalib.fitting.cross_validation import Candidate
from recalib.fitting.diagnostics import Diagnosis, diagnose, diagnostic_text
from recalib.fitting.multilabel import fit_multilabel, measure_label_metrics
from recalib.fitting.problem import Problem, Progress, Solution, bound_texts
from recalib.fitting.request import (
    AutoPolicy,
    check_request_device,
    resolve_fit,
)
from recalib.fitting.rows import ArrayRows, Rows
from recalib.fitting.solvers import solve
from recalib.fitting.thresholds import measure_thresholds
from recalib.fitting.validation_error import calibration_error
from recalib.maps import Map, Parameters
from recalib.metrics.base import Estimate
from recalib.metrics.evaluate import measure_all
from recalib.metrics.evaluation import Evaluation
from recalib.metrics.predictions import Predictions
from recalib.stats.groups import group_counts

#: Up to this size NumPy computes confidences and metrics in float64. Larger ones have float32
#: probabilities, as they are served; a session of onnxruntime takes 90 ms to create.
_MAX_EXACT_SIZE = 1_000_000


def fit(
    logits: ArrayLike,
    labels: ArrayLike,
    map: str = "temperature",
    objective: str = "nll",
    *,
    task: Task = "multiclass",
    input: Literal["logits", "probabilities"] | None = None,
    sample_weight: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    weight_kind: WeightKind = "survey",
    groups: ArrayLike | None = None,
    ignore_index: int | None = None,
    measure: bool = False,
    start: Calibrator | None = None,
    class_labels: tuple[str, ...] | None = None,
    data: DataSummary | None = None,
    progress: Progress | None = None,
    device: str | None = None,
    **options: Any,
) -> Calibrator:
    """Fit a post-hoc map and return it with its card.

    Parameters
    ----------
    logits: (N, K), or (N,): the log-odds of class 1 of 2; −inf masks a class. If `input` is
        `probabilities`, their logarithms are used, clipped at 1e-38. Arrays, tensors on any device
        and data frames are accepted.
        Dense predictions are (N, K, ...), such as (N, K, H, W): each pixel is a row. The fit copies
        the pixels that count once, and takes the memory of a fit with that number of rows.
    labels: (N,), integers in [0, K), truth values for two classes, or names of classes. Names are
        those of `class_labels`, of the columns, or K different texts in sorted order. For dense
        predictions (N, ...), such as (N, H, W).
    map: a name in `recalib.maps.MAPS`, or `auto` for selection by cross-validation, see
        `recalib.fitting.auto.Auto`. The card then has the reason in `choice`.
    objective: a name in `recalib.objectives.OBJECTIVES`.
    task: `multilabel` if a row may have any number of labels: `logits` are then log-odds (N, K), or
        probabilities of each label, `labels` zeros and ones (N, K), and `map` a name in
        `recalib.maps.labels.LABEL_MAPS`, which calibrates each column by itself.
    input: the kind of values in `logits`; never guessed. By default they are logits, with a
        warning if they look like probabilities.
    sample_weight: (N,), weights of rows: non-negative; equal by default. A row of weight 0 is as
        if it were not there.
    weights: the same as `sample_weight`.
    weight_kind: `survey` if a weight is how many rows of the population a row stands for, on any
        scale: penalties and smoothing see Kish's effective number of rows, (Σw)² / Σw². `counts` if
        it is how many equal rows a row replaces: the fit is that of the repeated rows. `auto` has a
        row with its count in one fold.
    groups: (N,), for `auto`: numbers or texts, such as the patient or the question of a row. Rows
        of a group are in the same fold of the cross-validation and are compared as one. For dense
        predictions they are of images, by default different, because pixels of an image are alike.
    ignore_index: the label of rows that do not count, such as 255 for void pixels; none by default.
    measure: whether the card gets the metrics of these rows before and after the map, with 95%
        intervals and with the weights, as `survey` weights. They take much longer than most fits;
        `Calibrator.evaluate` measures other rows.
    start: an earlier fit of the same map with the same options, used as the start.
    class_labels: names of the classes, for the card, in the order of the columns.
    data: the source of the rows, for the card.
    progress: called with the stage's name, the iteration and the objective's value.
    device: `cuda`, `cuda:1` or `cpu`: torch sums over the rows there, in chunks that bound its
        memory, and the optimum is the same. For maps with parameters but no solver of their own, by
        `nll`, `brier`, `focal` or `label_smoothing`; by default NumPy sums where it is faster.
    options: the map's and the objective's own options; of `auto`, `preserve_accuracy`.

    Warnings, such as classes without labels or a parameter at its bound, are in `card.fit`;
    `recalib.fit` shows each as a `RecalibWarning`.

    Raises
    ------
    InputError: invalid input, or an unknown name or option.
    """
    if sample_weight is not None and weights is not None:
        raise InputError("weights", found="sample_weight too", accepted="one of the two")
    field = "sample_weight" if weights is None else "weights"
    row_weights = sample_weight if weights is None else weights
    check_index(**{"logits": logits, "labels": labels, field: row_weights, "groups": groups})
    if task == "multilabel":
        multiclass = {
            "device": device, "start": start, "groups": groups, "ignore_index": ignore_index,
        }  # fmt: skip
        for name, value in multiclass.items():
            if value is not None:
                raise InputError(name, found="task multilabel", accepted="none for multilabel")
        return fit_multilabel(
            logits,
            labels,
            map,
            objective,
            input=input,
            sample_weight=row_weights,
            weight_kind=weight_kind,
            measure=measure,
            class_labels=class_labels,
            data=data,
            progress=progress,
            options=options,
        )
    if task != "multiclass":
        raise InputError("task", found=repr(task), accepted="multiclass or multilabel")
    request = resolve_fit(map, objective, options)
    check_start(start, request)
    if groups is not None and isinstance(request, Candidate):
        raise InputError("groups", found=f"map {map}", accepted=f"map {AUTO}: others need no folds")
    check_request_device(request, device)
    kind = input or "logits"
    counted = counted_rows(score_matrix(logits, kind, kind), labels, ignore_index, kind)
    classes = counted.scores.shape[1] if counted.scores.ndim == 2 else 0
    columns = frame_columns(logits)
    indices, class_labels = class_indices(counted.labels, classes, class_labels, columns)
    z, y = check_data(counted.scores, indices, kind)
    row_weights = counted.of_rows(row_weights, field)
    w = check_weights(row_weights, rows=len(z), field=field, kind=weight_kind)
    units = _group_indices(counted.groups(groups), len(z), w)
    w, z, y, row_weights = drop_rows_without_weight(w, z, y, row_weights)
    z, mask = mask_constants(z, y)
    resemblance = probability_resemblance(z) if input is None else ""
    calibrator, diagnosis = fit_rows(
        request,
        ArrayRows(z, y, w),
        groups=units,
        start=start,
        progress=progress,
        device=device,
        warnings=data_warnings(group_counts(y, z.shape[1]), resemblance, mask),
        labels=class_labels,
        input=kind,
        mask=mask,
        data=msgspec.structs.replace(data or DataSummary(0), rows=len(z)),
    )
    with one_blas_thread():
        return _describe(calibrator, z, y, w, row_weights, measure, diagnosis.confidences)


def fit_rows(
    request: Candidate | AutoPolicy,
    rows: ArrayRows,
    *,
    source: Rows | None = None,
    groups: NDArray[np.intp] | None = None,
    start: Calibrator | None = None,
    progress: Progress | None = None,
    device: str | None = None,
    warnings: Sequence[str] = (),
    labels: tuple[str, ...] | None = None,
    **fields: Any,
) -> tuple[Calibrator, Diagnosis]:
    """Return a calibrator with its card, and what the card says about the fit.

    Parameters
    ----------
    rows: checked; a sample of the rows if these are elsewhere.
    source: all rows if they are elsewhere.
    groups, start, progress, device: as in `fit`, checked.
    warnings: about the rows.
    labels: names of the classes, if they are known.
    fields: further fields of the card.
    """
    if isinstance(request, Candidate):
        candidate, choice = request, None
    else:
        candidate, choice = request.choose(
            rows.logits, rows.labels, rows.weights, groups, progress, smooths=source is None
        )
    classes = rows.shape[1]
    candidate = candidate.for_classes(classes)
    warm = None if start is None else start_parameters(start, candidate.map, classes)
    problem = Problem(
        candidate.map, candidate.objective, rows.logits, rows.labels, rows.weights,
        warm, progress, device, source,
    )  # fmt: skip
    started = time.perf_counter()
    solution = solve(problem)
    seconds = time.perf_counter() - started
    with one_blas_thread():
        diagnosis = diagnose(
            problem.sample,
            solution,
            groups=groups,
            rows=None if source is None else source.shape[0],
            refit=choice is None,
        )
    card = create_card(
        problem,
        solution,
        diagnosis,
        seconds=seconds,
        warnings=warnings,
        labels=labels,
        choice=choice,
        **fields,
    )
    return Calibrator(solution.parameters, card), diagnosis


def create_card(
    problem: Problem,
    solution: Solution,
    diagnosis: Diagnosis,
    *,
    seconds: float,
    warnings: Sequence[str],
    labels: tuple[str, ...] | None = None,
    **fields: Any,
) -> Card:
    """Return the card of a fit.

    Parameters
    ----------
    problem: with the map and the objective of the fit.
    seconds: the time of the fit.
    warnings: about the rows.
    labels: names of the classes, if they are known.
    fields: further fields of the card.
    """
    texts = [diagnostic_text(item, problem, labels) for item in diagnosis.diagnostics]
    return Card(
        map=problem.map.name,
        objective=problem.objective.name,
        options=options_of(problem.map),
        objective_options=options_of(problem.objective),
        classes=problem.classes,
        labels=labels,
        library=version("recalib"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        fit=FitSummary(
            seconds=seconds,
            iterations=solution.iterations,
            converged=solution.converged,
            objective=solution.objective,
            bounds_reached=bound_texts(solution.bounds),
            settled=solution.settled,
            warnings=(*solution.warnings, *warnings, *texts),
            effective_rows=diagnosis.effective_rows,
            estimates=diagnosis.estimates,
            diagnostics=diagnosis.diagnostics,
        ),
        **fields,
    )


def check_data(
    logits: ArrayLike,
    labels: ArrayLike,
    input: str,
) -> tuple[Floats, Integers]:
    """Return checked logits and labels; `input` is the kind of values in `logits`."""
    if input == "logits":
        z = check_logits(logits)
    elif input == "probabilities":
        z = as_logits(check_probabilities(logits))
    else:
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    return z, check_labels(labels, logits=z)


def check_start(start: Calibrator | None, request: Candidate | AutoPolicy) -> None:
    """Raise `InputError` if a fit that selects its map is to start from an earlier one."""
    if start is not None and not isinstance(request, Candidate):
        raise InputError("start", found="a fit to begin from", accepted=f"none: {AUTO} may choose")


def start_parameters(earlier: Calibrator, map: Map, classes: int) -> Parameters:
    """Return the parameters of an earlier calibrator as the start of a fit of `map`."""
    if earlier.map != map or earlier.card.classes != classes:
        raise InputError(
            "start",
            found=f"{earlier.card.map} {earlier.card.options} of {earlier.card.classes} classes",
            accepted=f"{map.name} {options_of(map)} of {classes} classes",
        )
    return earlier.parameters


def _group_indices(
    groups: ArrayLike | None, rows: int, weights: NDArray[np.float64] | None
) -> NDArray[np.intp] | None:
    """Return the number of the group, from 0, of each row with weight."""
    if groups is None:
        return None
    values = as_array(groups, "groups")
    if values.shape != (rows,):
        raise InputError("groups", found=f"shape {values.shape}", accepted=f"shape ({rows},)")
    _, values = drop_rows_without_weight(weights, values)
    names, indices = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise InputError("groups", found=f"{len(names)} group", accepted="at least 2")
    return indices


def data_warnings(counts: Integers, resemblance: str, mask: Mask | None) -> list[str]:
    """Return warnings about rows, independent of the map.

    Parameters
    ----------
    counts: (K,), the rows with each label.
    resemblance: why the logits look like probabilities, "" if they do not; the last warning.
    mask: the rule of logits that stand for −inf, if there is one.
    """
    rows, classes = int(counts.sum()), len(counts)
    absent = np.flatnonzero(counts == 0)
    messages = []
    if rows < classes:
        messages.append(f"{rows} rows for {classes} classes: too few to trust the result")
    if len(absent) > 0:
        names = ", ".join(str(k) for k in absent[:5]) + (", ..." if len(absent) > 5 else "")
        messages.append(f"{len(absent)} of {classes} classes never occur in the labels: {names}")
    if mask is not None:
        messages.append(mask.warning)
    if resemblance:
        messages.append(f"logits: {resemblance}; {RESEMBLANCE_HINT}")
    return messages


def measure_metrics(
    logits: Floats,
    probabilities: NDArray[np.float64],
    labels: NDArray[Any],
    sample_weight: ArrayLike | None = None,
) -> dict[str, dict[str, MetricValue]]:
    """Return the metrics of a card, `before` and `after` the map, with 95% intervals.

    Those of labels (N, K) are means over labels, without intervals.

    Parameters
    ----------
    logits: (N, K), checked.
    probabilities: (N, K), of the calibrator.
    labels: (N,), or (N, K) of independent labels, checked.
    sample_weight: (N,), as in `evaluate`.
    """
    if labels.ndim == 2:
        return measure_label_metrics(logits, probabilities, labels, sample_weight)
    after = Predictions.from_probabilities(probabilities, labels)
    return _measure_stages(logits, after, sample_weight)


def _measure_stages(
    logits: Floats, after: Predictions, sample_weight: ArrayLike | None
) -> dict[str, dict[str, MetricValue]]:
    """Return the metrics of checked logits and of the predictions after the map."""
    is_rounded = after.probabilities.dtype == np.float32
    before = Predictions.from_logits(logits, after.labels, is_rounded=is_rounded)
    stages = {"before": before, "after": after}
    return {
        stage: metric_values(measure_all(predictions, sample_weight, level=0.95))
        for stage, predictions in stages.items()
    }


def metric_values(evaluation: Evaluation[Estimate]) -> dict[str, MetricValue]:
    """Return an evaluation in the form of a card."""
    return {
        name: MetricValue(estimate.value, estimate.low, estimate.high, estimate.floor)
        for name, estimate in evaluation.items()
    }


def _describe(
    calibrator: Calibrator,
    logits: Floats,
    labels: Integers,
    weights: NDArray[np.float64] | None,
    sample_weight: ArrayLike | None,
    measure: bool,
    confidences: NDArray[np.float64] | None,
) -> Calibrator:
    """Return the calibrator with the reference histogram, and metrics on request, in its card.

    `weights` are `sample_weight` in effective rows.
    """
    target = target_of(calibrator.card.classes)
    metrics: dict[str, dict[str, MetricValue]] = {}
    error = None
    if measure:
        is_exact = logits.size <= _MAX_EXACT_SIZE
        p = calibrator.predict_float64(logits) if is_exact else calibrator.predict_rounded(logits)
        after = Predictions.from_probabilities(p, labels)
        confidences, outcomes = pairs_of_rows(p, labels)
        error = calibration_error(confidences, outcomes, weights)
        metrics = _measure_stages(logits, after, sample_weight)
    elif confidences is None or target != "top_label":
        confidences = _monitored(calibrator, logits)
    histogram = reference_histogram(confidences, target, weights)
    thresholds = None
    if target == "positive_class":
        thresholds = measure_thresholds(calibrator, confidences, labels, sample_weight)
    card = msgspec.structs.replace(
        calibrator.card,
        metrics=metrics,
        calibration_error=error,
        confidences=histogram,
        thresholds=thresholds,
    )
    return Calibrator(calibrator.parameters, card)


def _monitored(calibrator: Calibrator, logits: Floats) -> NDArray[np.float64]:
    """Return the probabilities of rows (N,) that monitoring compares with outcomes."""
    target = target_of(calibrator.card.classes)
    if logits.size <= _MAX_EXACT_SIZE:
        return monitored_probabilities(calibrator.predict_float64(logits), target)
    step = max(1, _MAX_EXACT_SIZE // logits.shape[1])
    blocks = (logits[i : i + step] for i in range(0, len(logits), step))
    parts = (monitored_probabilities(calibrator.predict_float32(z), target) for z in blocks)
    return np.concatenate(list(parts))
