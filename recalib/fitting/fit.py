"""Fit a calibrator to logits and labels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import (
    Floats,
    Integers,
    Numbers,
    WeightKind,
    check_labels,
    check_logits,
    check_probabilities,
    check_undeclared,
    check_weights,
    drop_rows_without_weight,
)
from recalib.core.arrays import log_probabilities as as_logits
from recalib.core.blas_threads import one_blas_thread
from recalib.core.card import (
    DataSummary,
    RejectionOptions,
    SetMethod,
    SetOptions,
)
from recalib.core.class_names import check_label_rows, class_indices
from recalib.core.inputs import (
    CountedRows,
    as_array,
    check_index,
    counted_rows,
    frame_columns,
    score_matrix,
)
from recalib.core.label_arrays import label_log_odds, label_resemblance
from recalib.core.masks import mask_constants
from recalib.core.options import check_choice, options_of
from recalib.drift.reference_histogram import reference_histogram
from recalib.drift.target import monitored_probabilities, pairs_of_rows, target_of
from recalib.errors import InputError
from recalib.files import Input, Task
from recalib.fitting.cross_validation import Candidate
from recalib.fitting.diagnostics import Diagnosis, diagnose
from recalib.fitting.fit_card import (
    create_card,
    data_warnings,
    measure_metrics,
    measure_stages,
    reliability_of,
    stages_of,
    with_warning,
)
from recalib.fitting.multilabel import earlier_curves
from recalib.fitting.problem import Problem, Progress
from recalib.fitting.request import (
    AutoPolicy,
    check_request,
    check_resampled,
    resolve_fit,
    with_class_weights,
)
from recalib.fitting.rows import ArrayRows, Rows
from recalib.fitting.solvers import solve
from recalib.fitting.thresholds import measure_thresholds
from recalib.fitting.validation_error import calibration_error
from recalib.maps import Map, Parameters
from recalib.maps.labels import LabelMap
from recalib.metrics.predictions import Predictions
from recalib.sets.conformal import (
    check_exchangeable,
    conformal_sets,
    excess_text,
    resolve_sets,
)
from recalib.sets.rejection import check_not_folds, resolve_rejection
from recalib.sets.splits import check_folds, halves, out_of_fold
from recalib.shift.prior import Resampled, class_weights
from recalib.stats.column_order import column_order_doubt
from recalib.stats.groups import group_counts, group_sums

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
    resampled: Resampled | None = None,
    sets: SetMethod | SetOptions | None = None,
    coverage: float | None = None,
    sets_folds: int | None = None,
    max_risk: float | RejectionOptions | None = None,
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
        `recalib.maps.labels.LABEL_MAPS`, which calibrates each column by itself. A label that all
        rows have, or none, keeps its probability.
    input: the kind of values in `logits`; never guessed. By default they are logits, with a
        warning if they look like probabilities, and an error if they surely are.
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
    resampled: how the classes of the classifier's training were rebalanced, with `nll`:
        probabilities are then those of the rows that it is used on, and the map is a `stack` with
        `class_weight`, of one member, or of those that `auto` chooses; its `predictions` are then
        those before the correction. `{"class_weight": w}`, w (K,) or `balanced`: the
        loss was weighted, or the training rows of class k were drawn w_k times as often, and these
        rows are as in use. `{"rate": r}`: these rows were resampled like those of the training, a
        share r_k of class k was kept, (K,), or r of class 0 of 2. The map is fitted to rows as they
        were in the training, so an offset and the temperature do not mix.
    sets: `lac`, `aps` or `raps`: thresholds of prediction sets go into the card, for
        `Calibrator.predict_set`. The map is then fitted on one half of the rows, drawn at random,
        and the thresholds on the other, or the promise would not hold. `Calibrator.fit_sets` takes
        rows of your own. `recalib.sets.SetOptions` has further options, such as thresholds by class
        or by cluster of classes.
    coverage: the probability with which a set holds the label, by default 0.9.
    sets_folds: fit the map on all rows, and the thresholds on the probabilities that fits on the
        other folds give the rows of each fold, drawn at random. For few rows: the coverage is then
        approximate, and `card.sets.finite_sample` false.
    max_risk: the share of accepted rows that may be wrong: the threshold of confidence for
        `Calibrator.is_accepted` goes into the card. It is of the same half of the rows as those of
        `sets`, so without `sets_folds`. `RejectionOptions` has the probability of the promise, by
        default 0.9; see `recalib.sets.rejection`.
    start: an earlier fit of the same map with the same options, used as the start. For
        `multilabel` a fit of any map to the same labels: a label with fewer than ten rows of a
        value keeps its curve there.
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

    Examples
    --------
    >>> calibrator = recalib.fit(logits, labels, map="vector")
    >>> calibrator.predict(new_logits).shape
    (400, 3)
    >>> recalib.fit(logits, labels, "structured_matrix", strength=1.0).card.map
    'structured_matrix'
    """
    if sample_weight is not None and weights is not None:
        raise InputError("weights", found="sample_weight too", accepted="one of the two")
    field = "sample_weight" if weights is None else "weights"
    row_weights = sample_weight if weights is None else weights
    check_index(**{"logits": logits, "labels": labels, field: row_weights, "groups": groups})
    check_choice("task", task, Task)
    request = resolve_fit(map, objective, options, task)
    check_request(request, start=start, groups=groups, device=device, ignore_index=ignore_index)
    if resampled is not None:
        is_counts = weight_kind == "counts" and row_weights is not None
        check_resampled(request, task=task, device=device, weight_kind=is_counts and weight_kind)
    set_options = resolve_sets(sets, coverage)
    rejection = None if max_risk is None else resolve_rejection(max_risk)
    if set_options is not None or rejection is not None:
        other = {"task": task if task == "multilabel" else None, "groups": groups}
        rate = resampled.get("rate") if isinstance(resampled, Mapping) else None
        if np.ndim(logits) > 2:
            accepted = "(N, K) with sets or max_risk: pixels of an image are not exchangeable"
            raise InputError("logits", found=f"shape {np.shape(logits)}", accepted=accepted)
        check_exchangeable(
            **other, **{field: row_weights, "resampled.rate": rate}, ignore_index=ignore_index
        )
    kind = input or "logits"
    counted, names = _check_rows(task, logits, labels, kind, class_labels, ignore_index)
    z, y = counted.scores, counted.labels
    row_weights = counted.of_rows(row_weights, field)
    w = check_weights(row_weights, rows=len(z), field=field, kind=weight_kind)
    units = counted.groups(groups)
    if units is not None:
        units = _group_indices(units, len(z), w)
    if w is not None:
        w, z, y, row_weights = drop_rows_without_weight(w, z, y, row_weights)
    if sets_folds is not None:
        check_folds(sets_folds, set_options, len(y))
        check_not_folds(None if rejection is None else rejection.risk, sets_folds)
    mask = counts = held_out = None
    if task == "multiclass":
        z, mask = mask_constants(z, y)
        if resampled is not None:
            request, w, row_weights = _rebalance(request, resampled, z, y, w, row_weights)
        if (set_options or rejection) and sets_folds is None:
            if len(y) < 2:
                accepted = "at least 2, half of them for sets or max_risk"
                raise InputError("rows", found=f"{len(y)}", accepted=accepted)
            half, other_half = halves(len(y))
            held_out = z[other_half], y[other_half]
            z, y = z[half], y[half]
        counts = group_counts(y, z.shape[1])
    undeclared = ""
    if input is None:
        is_labels = task == "multilabel"
        undeclared = label_resemblance(z) if is_labels else check_undeclared(z)
    fit_part = partial(
        fit_rows, request, start=start, progress=progress, device=device, labels=names,
        task=task, input=kind, mask=mask,
    )  # fmt: skip
    calibrator, diagnosis = fit_part(
        ArrayRows(z, y, w),
        groups=units,
        warnings=data_warnings(counts, undeclared, mask),
        data=msgspec.structs.replace(data or DataSummary(0), rows=len(z)),
    )
    with one_blas_thread():
        calibrator = _describe(calibrator, z, y, w, row_weights, measure, diagnosis.confidences)
    if set_options is None and rejection is None:
        return calibrator
    if held_out is not None:
        p, y = calibrator.predict_float64(held_out[0]), held_out[1]
    else:

        def predict(others: Integers, fold: Integers) -> Numbers:
            part, _ = fit_part(ArrayRows(z[others], y[others], None), data=DataSummary(0))
            return part.predict_float64(z[fold])

        p = out_of_fold(predict, len(y), sets_folds or 0)
    if set_options is not None:
        found = conformal_sets(p, y, set_options, folds=sets_folds)
        calibrator = with_warning(calibrator.with_sets(found), excess_text(found, p, y))
    return calibrator if rejection is None else calibrator.with_rejection(p, y, rejection)


def _rebalance(
    request: Candidate | AutoPolicy,
    resampled: Resampled,
    logits: Floats,
    labels: Integers,
    weights: Numbers | None,
    sample_weight: ArrayLike | None,
) -> tuple[Candidate | AutoPolicy, Numbers | None, ArrayLike | None]:
    """Return the request with weights of classes, and weights of rows as they are in use."""
    counts = group_sums(labels, weights, logits.shape[1])
    of_classes, of_rows = class_weights(resampled, counts)
    if isinstance(request, AutoPolicy):
        request = replace(request, class_weight=of_classes)
    else:
        request = with_class_weights(request, of_classes)
    if of_rows is None:
        return request, weights, sample_weight
    factors = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight)
    factors = factors * of_rows[labels]
    return request, check_weights(factors, rows=len(labels)), factors


def _check_rows(
    task: Task,
    logits: ArrayLike,
    labels: ArrayLike,
    kind: str,
    class_labels: tuple[str, ...] | None,
    ignore_index: int | None,
) -> tuple[CountedRows, tuple[str, ...] | None]:
    """Return checked logits and labels of the rows that count, and the names of the columns."""
    if task == "multilabel":
        scores, y, names = check_label_rows(labels, logits, kind, class_labels)
        z = scores if kind == "logits" else label_log_odds(scores)
        return CountedRows(z, y, z.shape[:1]), names
    array = score_matrix(logits, kind, kind, class_labels)
    counted = counted_rows(array, labels, ignore_index, kind)
    classes = counted.scores.shape[1] if counted.scores.ndim == 2 else 0
    columns = frame_columns(logits, class_labels)
    indices, names = class_indices(counted.labels, classes, class_labels, columns)
    z, indices = check_data(counted.scores, indices, kind)
    return replace(counted, scores=z, labels=indices), names


@one_blas_thread()
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
    map = candidate.map.for_classes(rows.shape[1])
    doubt = column_order_doubt(rows.logits, rows.labels) if rows.labels.ndim == 1 else ""
    warm = None if start is None else start_parameters(start, map, rows)
    problem = Problem(
        map, candidate.objective, rows.logits, rows.labels, rows.weights,
        warm, progress, device, source,
    )  # fmt: skip
    started = time.perf_counter()
    solution = solve(problem)
    seconds = time.perf_counter() - started
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
        warnings=[*warnings, doubt] if doubt else warnings,
        labels=labels,
        choice=choice,
        **fields,
    )
    return Calibrator(solution.parameters, card), diagnosis


def check_data(
    logits: ArrayLike,
    labels: ArrayLike,
    input: str,
) -> tuple[Floats, Integers]:
    """Return checked logits and labels; `input` is the kind of values in `logits`."""
    check_choice("input", input, Input)
    is_logits = input == "logits"
    z = check_logits(logits) if is_logits else as_logits(check_probabilities(logits))
    return z, check_labels(labels, logits=z)


def start_parameters(earlier: Calibrator, map: Map, rows: ArrayRows) -> Parameters:
    """Return the parameters of an earlier calibrator as the start of a fit of `map`."""
    card, classes = earlier.card, rows.shape[1]
    of_labels = isinstance(map, LabelMap)
    fits = earlier.is_multilabel if of_labels else earlier.map == map
    if not fits or card.classes != classes:
        name = "a multilabel map" if of_labels else f"{map.name} {options_of(map)}"
        raise InputError(
            "start",
            found=f"{card.map} {card.options} of {card.classes} classes, {card.task}",
            accepted=f"{name} of {classes} classes",
        )
    return earlier_curves(map, earlier, rows) if of_labels else earlier.parameters


def _group_indices(groups: ArrayLike, rows: int, weights: Numbers | None) -> NDArray[np.intp]:
    """Return the number of the group, from 0, of each row with weight."""
    values = as_array(groups, "groups")
    if values.shape != (rows,):
        raise InputError("groups", found=f"shape {values.shape}", accepted=f"shape ({rows},)")
    _, values = drop_rows_without_weight(weights, values)
    names, indices = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise InputError("groups", found=f"{len(names)} group", accepted="at least 2")
    return indices


def _describe(
    calibrator: Calibrator,
    logits: Floats,
    labels: Integers,
    weights: Numbers | None,
    sample_weight: ArrayLike | None,
    measure: bool,
    confidences: Numbers | None,
) -> Calibrator:
    """Return the calibrator with the reference histogram, and metrics on request, in its card.

    `weights` are `sample_weight` in effective rows. Rows of independent labels have no confidence.
    """
    target = target_of(calibrator.card.classes)
    fields: dict[str, Any] = {}
    if calibrator.is_multilabel:
        if measure:
            calibrated = calibrator.predict_float64(logits)
            fields["metrics"] = measure_metrics(logits, calibrated, labels, sample_weight)
        card = msgspec.structs.replace(calibrator.card, **fields)
        return Calibrator(calibrator.parameters, card)
    if measure:
        is_exact = logits.size <= _MAX_EXACT_SIZE
        p = calibrator.predict_float64(logits) if is_exact else calibrator.predict_rounded(logits)
        after = Predictions.from_probabilities(p, labels)
        confidences, outcomes = pairs_of_rows(p, labels)
        fields["calibration_error"] = calibration_error(confidences, outcomes, weights)
        stages = stages_of(logits, after)
        fields["metrics"] = measure_stages(stages, sample_weight)
        fields["reliability"] = reliability_of(stages, weights)
    elif confidences is None or target != "top_label":
        confidences = _monitored(calibrator, logits)
    fields["confidences"] = reference_histogram(confidences, target, weights)
    if target == "positive_class":
        thresholds = measure_thresholds(calibrator, confidences, labels, sample_weight)
        fields["thresholds"] = thresholds
    card = msgspec.structs.replace(calibrator.card, **fields)
    return Calibrator(calibrator.parameters, card)


def _monitored(calibrator: Calibrator, logits: Floats) -> Numbers:
    """Return the probabilities of rows (N,) that monitoring compares with outcomes."""
    target = target_of(calibrator.card.classes)
    if logits.size <= _MAX_EXACT_SIZE:
        return monitored_probabilities(calibrator.predict_float64(logits), target)
    step = max(1, _MAX_EXACT_SIZE // logits.shape[1])
    blocks = (logits[i : i + step] for i in range(0, len(logits), step))
    parts = (monitored_probabilities(calibrator.predict_float32(z), target) for z in blocks)
    return np.concatenate(list(parts))
