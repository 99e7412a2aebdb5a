"""Fit a map of independent labels: a curve for each label, from its column alone.

Legend: N rows, K labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import msgspec
import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import (
    RESEMBLANCE_HINT,
    Floats,
    WeightKind,
    check_weights,
    drop_rows_without_weight,
)
from recalib.core.card import Card, DataSummary, FitSummary, MetricValue
from recalib.core.class_names import check_label_rows
from recalib.core.inputs import as_array
from recalib.core.label_arrays import label_log_odds, label_resemblance
from recalib.core.options import configure, options_of, unknown_name
from recalib.errors import InputError
from recalib.fitting.beta import beta_curve, platt_curve
from recalib.fitting.cross_validation import Candidate, Weights
from recalib.fitting.diagnostics import diagnose_labels, label_diagnostic_text
from recalib.fitting.isotonic import isotonic_blocks, merge_blocks
from recalib.fitting.log_odds import Groups, group_by_odds
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Progress, Solution, bound_texts
from recalib.maps.base import STEP
from recalib.maps.labels import LABEL_MAPS, LabelMap
from recalib.maps.lookup_table import next_power_of_two, pad_table
from recalib.metrics.multilabel import LabelPredictions, evaluate_labels
from recalib.objectives import OBJECTIVES

_Vector = NDArray[np.float64]
#: Rows with a label, and rows without it, that replace its curve in an earlier calibrator.
_LEAST_EACH = 10
#: The weight of a row of an earlier curve, against which priors of a fit vanish.
_CERTAIN = 1e6


@dataclass(frozen=True)
class LabelCandidate(Candidate):
    """A map of labels, which can be fitted by `nll` to any rows."""

    map: LabelMap

    @classmethod
    def from_options(cls, map: str, objective: str, options: Mapping[str, Any]) -> LabelCandidate:
        """Return the candidate for the given names and options.

        Raises
        ------
        InputError: an unknown map or option, or another objective than `nll`.
        """
        if map not in LABEL_MAPS:
            raise unknown_name("map", map, LABEL_MAPS)
        if objective != "nll":
            accepted = "nll for task='multilabel'"
            raise InputError("objective", found=repr(objective), accepted=accepted)
        label_map = configure(LABEL_MAPS, map, dict(options), field="map")
        return cls(label_map, OBJECTIVES[objective]())

    def fit(
        self,
        logits: Floats,
        labels: NDArray[Any],
        weights: Weights | None = None,
        progress: Progress | None = None,
        previous: Calibrator | None = None,
    ) -> Solution:
        """Return a fit to checked log-odds and labels (N, K), without its objective.

        A label without both values keeps its probability. With a `previous` calibrator of the same
        labels, a label with fewer than `_LEAST_EACH` rows of a value keeps its curve there.
        """
        w = np.ones(len(labels)) if weights is None else weights
        parameters, curves, rare = _fit_each(
            self.map, logits.astype(np.float64, copy=False), labels, w, progress, previous
        )
        names = ", ".join(str(k) for k in rare[:5]) + (", ..." if len(rare) > 5 else "")
        consequence = "are the same in all rows and keep their probability"
        if previous is not None:
            consequence = (
                f"have fewer than {_LEAST_EACH} rows of a value and keep their earlier curve"
            )
        messages = [f"{len(rare)} of {labels.shape[1]} labels {consequence}: {names}"]
        return Solution(
            parameters,
            converged=all(curve.converged for curve in curves.values()),
            bounds=tuple(
                replace(bound, parameter=f"label {k}: {bound.parameter}")
                for k, curve in curves.items()
                for bound in curve.bounds
            ),
            warnings=tuple(messages) if rare else (),
        )


def fit_multilabel(
    logits: ArrayLike,
    labels: ArrayLike,
    map: str,
    objective: str,
    *,
    input: Literal["logits", "probabilities"] | None,
    sample_weight: ArrayLike | None,
    weight_kind: WeightKind = "survey",
    measure: bool,
    class_labels: tuple[str, ...] | None,
    data: DataSummary | None,
    progress: Progress | None,
    options: Mapping[str, Any],
    previous: Calibrator | None = None,
) -> Calibrator:
    """Fit a label map and return it with its card; `recalib.fit` has the parameters.

    The objective in the card is the weighted mean NLL over rows and labels. A label that all rows
    or no row has keeps its probability. With a `previous` calibrator of the same labels, a label
    with fewer than ten rows of a value keeps its curve there.
    """
    candidate = LabelCandidate.from_options(map, objective, options)
    kind = input or "logits"
    scores, y, names = check_label_rows(labels, logits, kind, class_labels)
    z = scores if kind == "logits" else label_log_odds(scores)
    if sample_weight is not None:
        sample_weight = as_array(sample_weight, "sample_weight")
    weights = check_weights(sample_weight, rows=len(z), field="sample_weight", kind=weight_kind)
    weights, z, y, sample_weight = drop_rows_without_weight(weights, z, y, sample_weight)
    messages = []
    if input is None and (resemblance := label_resemblance(scores)):
        messages.append(f"logits: {resemblance}; {RESEMBLANCE_HINT}")
    started = time.perf_counter()
    solution = candidate.fit(z, y, weights, progress, previous)
    seconds = time.perf_counter() - started
    card = Card(
        task="multilabel",
        map=map,
        objective=objective,
        options=options_of(candidate.map),
        classes=z.shape[1],
        labels=names,
        input=kind,
        library=version("recalib"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        data=msgspec.structs.replace(data or DataSummary(0), rows=len(z)),
        fit=FitSummary(
            seconds=seconds,
            iterations=0,
            converged=solution.converged,
            objective=0.0,
            bounds_reached=bound_texts(solution.bounds),
            warnings=(*messages, *solution.warnings),
        ),
    )
    calibrator = Calibrator(solution.parameters, card)

    def refit(part: NDArray[np.bool_], factor: float, kept: NDArray[np.intp]) -> _Vector:
        w = factor * (np.ones(len(z)) if weights is None else weights)[part]
        solution = candidate.fit(z[part], y[part], w, None, previous)
        return Calibrator(solution.parameters, card).predict_float64(z[kept])

    return _describe(calibrator, z, y, weights, sample_weight, measure, refit)


def _fit_each(
    map: LabelMap,
    log_odds: _Vector,
    labels: NDArray[np.bool_],
    weights: _Vector,
    progress: Progress | None,
    previous: Calibrator | None,
) -> tuple[dict[str, _Vector], dict[int, Solution], list[int]]:
    """Return the parameters of all labels, the fitted curves, and the labels without one."""
    least = 1 if previous is None else _LEAST_EACH
    shapes = map.parameters(log_odds.shape[1])
    parameters = {name: np.empty(parameter.shape) for name, parameter in shapes.items()}
    curves: dict[int, Solution] = {}
    rare = []
    for k in range(log_odds.shape[1]):
        z, y = log_odds[:, k], labels[:, k]
        present = np.count_nonzero(y)
        if min(present, len(y) - present) < least:
            rare.append(k)
            curve = (
                _identity_parameters(map, z) if previous is None else _earlier(map, z, previous, k)
            )
        else:
            curves[k] = _CURVES[map.name](map, z, y, weights)
            curve = curves[k].parameters
        for name, value in curve.items():
            parameters[name][k] = value
        if progress is not None:
            progress(f"label {k}", 0, float(y.mean()))
    return parameters, curves, rare


def _temperature(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> Solution:
    # With the logits 0 and z, the softmax of two classes is σ(z).
    logit_pairs = np.stack([np.zeros_like(z), z], axis=1)
    return fit_temperature(logit_pairs, y.astype(np.int64), weights).solution


def _platt(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> Solution:
    (slope, bias), converged = platt_curve(group_by_odds(z, y, weights))
    return Solution({"slope": slope, "bias": bias}, converged=converged)


def _beta(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> Solution:
    (low, high, bias), converged = beta_curve(group_by_odds(z, y, weights))
    return Solution({"low": low, "high": high, "bias": bias}, converged=converged)


def _isotonic(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> Solution:
    groups: Groups = group_by_odds(z, y, weights)
    knots: int = options_of(map)["knots"]
    blocks = merge_blocks(isotonic_blocks(groups), knots)
    length = next_power_of_two(knots) + 1
    values = pad_table(scipy.special.logit(blocks.share), length)
    return Solution({"knots": pad_table(blocks.odds, length, 1.0), "values": values})


_CURVES: dict[str, Callable[[LabelMap, _Vector, NDArray[np.bool_], _Vector], Solution]] = {
    "identity": lambda map, z, y, weights: Solution({}),
    "temperature": _temperature,
    "platt": _platt,
    "beta": _beta,
    "isotonic": _isotonic,
}


def _identity_parameters(map: LabelMap, z: Floats) -> dict[str, Any]:
    """Return the parameters with which a label keeps its probability."""
    parameters = map.parameters(1)
    if "knots" in parameters:
        length = parameters["knots"].shape[1]
        low, high = float(z.min()), float(z.max())
        knots = np.linspace(low, max(high, low + 2 * STEP * length), length)
        return {"knots": knots, "values": knots}
    return {name: 0.0 if name == "bias" else 1.0 for name in parameters}


def _earlier(map: LabelMap, z: _Vector, previous: Calibrator, k: int) -> dict[str, Any]:
    """Return the curve of label k in another calibrator; another map is fitted to that curve."""
    earlier = LABEL_MAPS[previous.card.map]
    if map.name == earlier.name and options_of(map) == previous.card.options:
        return {name: values[k] for name, values in previous.parameters.items()}
    parameters = {name: values[k : k + 1] for name, values in previous.parameters.items()}
    card = msgspec.structs.replace(previous.card, classes=1, labels=None)
    p = Calibrator(parameters, card).predict_float64(z[:, np.newaxis])[:, 0]
    y = np.arange(2 * len(z)) < len(z)
    weights = _CERTAIN * np.concatenate([p, 1 - p])
    return _CURVES[map.name](map, np.tile(z, 2), y, weights).parameters


def _describe(
    calibrator: Calibrator,
    log_odds: Floats,
    labels: NDArray[np.bool_],
    weights: _Vector | None,
    sample_weight: ArrayLike | None,
    measure: bool,
    refit: Callable[[NDArray[np.bool_], float, NDArray[np.intp]], NDArray[np.float64]],
) -> Calibrator:
    """Return the calibrator with objective and diagnostics, and metrics on request, in its card.

    Metrics are means over labels, without intervals. There is no histogram of confidences, since a
    row has no confidence: `recalib.drift` monitors predictions of one class.
    """
    after = calibrator.predict_float64(log_odds)
    signs = np.where(labels, 1.0, -1.0)
    loss = -scipy.special.log_expit(signs * label_log_odds(after)).mean(axis=1)
    fit, names = calibrator.card.fit, calibrator.card.labels
    before = scipy.special.expit(log_odds.astype(np.float64, copy=False))
    estimates, found = diagnose_labels(labels, before, after, weights, refit)
    fit = msgspec.structs.replace(
        fit,
        objective=float(np.average(loss, weights=weights)),
        effective_rows=float(len(labels) if weights is None else weights.sum()),
        estimates=estimates,
        diagnostics=found,
        warnings=fit.warnings + tuple(label_diagnostic_text(item, names) for item in found),
    )
    metrics: dict[str, dict[str, MetricValue]] = {}
    if measure:
        metrics = measure_label_metrics(log_odds, after, labels, sample_weight)
    card = msgspec.structs.replace(calibrator.card, metrics=metrics, fit=fit)
    return Calibrator(calibrator.parameters, card)


def measure_label_metrics(
    log_odds: Floats,
    probabilities: NDArray[np.float64],
    labels: NDArray[np.bool_],
    sample_weight: ArrayLike | None = None,
) -> dict[str, dict[str, MetricValue]]:
    """Return the metrics of a card, means over labels `before` and `after` the map.

    Parameters
    ----------
    log_odds: (N, K), checked.
    probabilities: (N, K), of the calibrator.
    labels: (N, K), checked.
    sample_weight: (N,), as in `evaluate_labels`.
    """
    stages = {
        "before": LabelPredictions.from_scores(log_odds, labels, input="logits"),
        "after": LabelPredictions.from_scores(probabilities, labels, input="probabilities"),
    }
    return {
        stage: {
            name: MetricValue(estimate.value)
            for name, estimate in evaluate_labels(
                predictions, sample_weight=sample_weight
            ).average.items()
        }
        for stage, predictions in stages.items()
    }
