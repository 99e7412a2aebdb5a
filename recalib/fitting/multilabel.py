"""Fit a map of independent labels: a curve for each label, from its column alone.

Legend: N rows, K labels.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

import msgspec
import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.arrays import Floats, check_weights
from recalib.calibrator import Calibrator
from recalib.card import Card, DataSummary, FitSummary, MetricValue
from recalib.errors import InputError, RecalibWarning
from recalib.fitting.beta import beta_curve, platt_curve
from recalib.fitting.isotonic import isotonic_blocks, merge_blocks
from recalib.fitting.newton import fit_temperature
from recalib.fitting.problem import Progress
from recalib.fitting.temperature_preprocessing import Groups, group_by_odds
from recalib.inputs import as_array, column_names
from recalib.label_arrays import check_label_matrix, check_label_scores, label_log_odds
from recalib.maps.base import STEP
from recalib.maps.labels import LABEL_MAPS, LabelMap
from recalib.maps.lookup_table import next_power_of_two, pad_table
from recalib.metrics.multilabel import evaluate_labels
from recalib.options import configure, options_of, unknown_name

__all__ = ["configure_label_map", "fit_multilabel"]

_Vector = NDArray[np.float64]
#: The parameters of one label, and "" or a note that the search did not end or reached a bound.
_Curve = tuple[dict[str, Any], str]


def configure_label_map(map: str, objective: str, options: Mapping[str, Any]) -> LabelMap:
    """Return the map for the given name and options.

    Raises
    ------
    InputError: an unknown map or option, or another objective than `nll`.
    """
    if map not in LABEL_MAPS:
        raise unknown_name("map", map, LABEL_MAPS)
    if objective != "nll":
        raise InputError("objective", found=repr(objective), accepted="nll for task='multilabel'")
    return configure(LABEL_MAPS, map, dict(options), field="map")


def fit_multilabel(
    logits: ArrayLike,
    labels: ArrayLike,
    map: str,
    objective: str,
    *,
    input: Literal["logits", "probabilities"] | None,
    sample_weight: ArrayLike | None,
    measure: bool,
    class_labels: tuple[str, ...] | None,
    data: DataSummary | None,
    progress: Progress | None,
    options: Mapping[str, Any],
) -> Calibrator:
    """Fit a label map and return it with its card; `recalib.fit` has the parameters.

    The objective in the card is the weighted mean NLL over rows and labels. A label that all rows
    or no row has keeps its probability.
    """
    label_map = configure_label_map(map, objective, options)
    kind = input or "logits"
    scores = check_label_scores(as_array(logits, kind), input=kind)
    y = check_label_matrix(as_array(labels, "labels"), shape=scores.shape)
    z = scores if kind == "logits" else label_log_odds(scores)
    weights = check_weights(sample_weight, rows=len(z))
    w = np.ones(len(z)) if weights is None else weights
    messages = []
    if input is None and scores.min() >= 0 and scores.max() <= 1 and bool((scores % 1).any()):
        messages.append(
            "logits: all are between 0 and 1; if these are probabilities, write "
            'input="probabilities", otherwise input="logits"'
        )
        warnings.warn(messages[-1], RecalibWarning, stacklevel=3)
    started = time.perf_counter()
    parameters, notes, constant = _fit_each(label_map, z.astype(np.float64), y, w, progress)
    seconds = time.perf_counter() - started
    if constant:
        messages.append(
            f"{len(constant)} of {z.shape[1]} labels are the same in all rows and keep their "
            f"probability: {', '.join(str(k) for k in constant[:5])}"
            + (", ..." if len(constant) > 5 else "")
        )
    bounds = [f"label {k}: {note}" for k, note in notes.items() if "bound" in note]
    card = Card(
        task="multilabel",
        map=map,
        objective=objective,
        options=options_of(label_map),
        classes=z.shape[1],
        labels=class_labels or column_names(logits),
        input=kind,
        library=version("recalib"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        data=data or DataSummary(rows=len(z)),
        fit=FitSummary(
            seconds=seconds,
            iterations=0,
            converged=len(bounds) == len(notes),
            objective=0.0,
            bounds_reached=tuple(bounds[:10]),
            warnings=tuple(messages),
        ),
    )
    return _described(Calibrator(parameters, card), z, y, sample_weight, scores, measure)


def _fit_each(
    map: LabelMap,
    log_odds: _Vector,
    labels: NDArray[np.bool_],
    weights: _Vector,
    progress: Progress | None,
) -> tuple[dict[str, _Vector], dict[int, str], list[int]]:
    """Return the parameters of all labels, notes by label, and the labels without two values."""
    shapes = map.parameters(log_odds.shape[1])
    parameters = {name: np.empty(parameter.shape) for name, parameter in shapes.items()}
    notes: dict[int, str] = {}
    constant = []
    for k in range(log_odds.shape[1]):
        z, y = log_odds[:, k], labels[:, k]
        used = y[weights > 0]
        if used.all() or not used.any():
            constant.append(k)
            curve = _unchanged(map, z)
        else:
            curve, note = _CURVES[map.name](map, z, y, weights)
            if note:
                notes[k] = note
        for name, value in curve.items():
            parameters[name][k] = value
        if progress is not None:
            progress(f"label {k}", 0, float(y.mean()))
    return parameters, notes, constant


def _temperature(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> _Curve:
    # With the logits 0 and z, the softmax of two classes is σ(z).
    both = np.stack([np.zeros_like(z), z], axis=1)
    single = fit_temperature(both, y.astype(np.int64), weights)
    note = f"temperature at its {single.bound} bound {single.temperature:.6g}"
    return {"temperature": single.temperature}, note if single.bound else ""


def _platt(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> _Curve:
    (slope, bias), converged = platt_curve(group_by_odds(z, y, weights))
    return {"slope": slope, "bias": bias}, "" if converged else "the search did not converge"


def _beta(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> _Curve:
    (low, high, bias), converged = beta_curve(group_by_odds(z, y, weights))
    curve = {"low": low, "high": high, "bias": bias}
    return curve, "" if converged else "the search did not converge"


def _isotonic(map: LabelMap, z: _Vector, y: NDArray[np.bool_], weights: _Vector) -> _Curve:
    groups: Groups = group_by_odds(z, y, weights)
    knots: int = options_of(map)["knots"]
    blocks = merge_blocks(isotonic_blocks(groups), knots)
    length = next_power_of_two(knots) + 1
    values = pad_table(scipy.special.logit(blocks.share), length)
    return {"knots": pad_table(blocks.odds, length, 1.0), "values": values}, ""


_CURVES: dict[str, Callable[[LabelMap, _Vector, NDArray[np.bool_], _Vector], _Curve]] = {
    "identity": lambda map, z, y, weights: ({}, ""),
    "temperature": _temperature,
    "platt": _platt,
    "beta": _beta,
    "isotonic": _isotonic,
}


def _unchanged(map: LabelMap, z: Floats) -> dict[str, Any]:
    """Return the parameters with which a label keeps its probability."""
    parameters = map.parameters(1)
    if "knots" in parameters:
        length = parameters["knots"].shape[1]
        low, high = float(z.min()), float(z.max())
        knots = np.linspace(low, max(high, low + 2 * STEP * length), length)
        return {"knots": knots, "values": knots}
    return {name: 0.0 if name == "bias" else 1.0 for name in parameters}


def _described(
    calibrator: Calibrator,
    log_odds: Floats,
    labels: NDArray[np.bool_],
    sample_weight: ArrayLike | None,
    scores: Floats,
    measure: bool,
) -> Calibrator:
    """Return the calibrator with its objective, and metrics if asked for, in its card.

    Metrics are means over labels, without intervals. There is no histogram of confidences, since a
    row has no confidence: `recalib.drift` monitors predictions of one class.
    """
    after = calibrator.predict_float64(log_odds)
    odds = label_log_odds(after)
    signs = np.where(labels, 1.0, -1.0)
    loss = -scipy.special.log_expit(signs * odds).mean(axis=1)
    weights = check_weights(sample_weight, rows=len(labels))
    fit = msgspec.structs.replace(
        calibrator.card.fit, objective=float(np.average(loss, weights=weights))
    )
    metrics: dict[str, dict[str, MetricValue]] = {}
    if measure:
        before = scores if calibrator.card.input == "probabilities" else _expit(log_odds)
        stages = {"before": (log_odds, before), "after": (odds, after)}
        metrics = {
            stage: {
                name: MetricValue(estimate.value)
                for name, estimate in evaluate_labels(
                    labels, *values, sample_weight=sample_weight
                ).average.items()
            }
            for stage, values in stages.items()
        }
    card = msgspec.structs.replace(calibrator.card, metrics=metrics, fit=fit)
    return Calibrator(calibrator.parameters, card)


def _expit(log_odds: Floats) -> Floats:
    return np.asarray(scipy.special.expit(log_odds.astype(np.float64)))
