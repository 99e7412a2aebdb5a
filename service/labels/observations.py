"""Observations: predictions that another program made with a calibrator, with logits and labels.

They follow the path of served predictions: counted by confidence, labelled, captured for refitting,
and monitored with their cohort. Independent of the transport.

A row of a multilabel model is evidence about one of its labels, drawn by the digest of the row. The
labels of a row depend on each other, those of different rows do not. The draw does not depend on
the outcome, so each stored row is a prediction with a confidence, as of any other model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from recalib.contract.labels import LabelOutcome
from recalib.core.arrays import Floats
from recalib.core.group_numbers import group_number
from recalib.core.prediction_ids import Prediction, summarise_drawn_labels, summarise_predictions
from recalib.core.time_buckets import bucket_start
from recalib.core.watched_classes import watched_indices
from recalib.drift.calibration_sums import left_closed_bins
from recalib.drift.reference_histogram import reference_edges, reference_target
from recalib.drift.target import values_of_predicted_class
from recalib.errors import InputError
from recalib.registry import ClassTrafficCount, Model, TrafficCount, Transaction, merge_counts
from recalib.stats.logit_scale import compare_scales, scale_of
from service.access.authenticator import current_principal
from service.calibration import check_logits
from service.labels.handlers import counts_of, label_reader, store_labels
from service.labels.schemas import RowLabel
from service.serving.loaded_calibrators import LoadedCalibrator
from service.serving.traffic import Traffic
from service.state import State

log = logging.getLogger(__name__)

#: Maximum clock difference of sender and database, as for prediction ids.
_SKEW_SECONDS = 300.0
_DIGEST_BYTES = 16
_PURPOSE = b"observation"


class ObservedRows(NamedTuple):
    """Observed predictions with a calibrator.

    Parameters
    ----------
    logits: inputs of the calibrator, (N, K).
    labels, times: (N,); time of each prediction, in seconds since 1970. A label of a multilabel
        model is a list.
    segment: of all rows; undeclared segments are monitored together.
    counted: whether the predictions are in the counts of traffic already.
    groups: (N,), "" for none; empty for no groups.
    """

    logits: Floats
    labels: Sequence[RowLabel]
    times: Sequence[float]
    segment: str
    counted: bool
    groups: Sequence[str] = ()


def add_observations(
    state: State, loaded: LoadedCalibrator, observed: ObservedRows
) -> tuple[list[LabelOutcome], list[str]]:
    """Count and label observed predictions; return the outcome of each row, and warnings.

    A rejected row does not affect the others. Time, segment, logits and version identify a row: a
    repeat is a duplicate, and is counted once. One transaction writes counts and labels. Captured
    logits are written later, as for served rows.

    Raises
    ------
    LimitedError: the caller exceeds its rate of rows.
    InputError: the logits do not match the calibrator, the number of labels or times is not N, a
        time is not finite, or `counted` for a multilabel model, whose traffic is not counted.
    TooLargeError: more rows than the setting `max_labels`.
    """
    logits, labels, times, _, counted, groups = observed
    state.access.limiter.take_rows(current_principal(), len(logits))
    registry, traffic = state.registry, state.calibrators.traffic
    max_rows = state.settings.max_labels
    rows = check_logits(loaded, logits, "logits", max_rows)
    if rows.dtype != np.float32:
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
        rows = check_logits(loaded, rows, "logits", max_rows)  # a number may have become infinite
    _check_lengths(len(rows), labels, times, groups or [""] * len(rows))
    with registry.reading() as tx:
        model, now = tx.models.get(loaded.model), tx.clock()
        read = tx.monitors.through(model, [loaded.version]).get(loaded.version, 0.0)
        no_labels = np.zeros(rows.shape, bool) if model.is_multilabel else None
        findings = compare_scales(scale_of(rows, no_labels), tx.logit_scales.history(model))
    if counted and model.is_multilabel:
        accepted = "false: traffic of multilabel models is not counted"
        raise InputError("counted", found="true", accepted=accepted)
    results = _read_rows(model, loaded, rows, observed, now, read)

    # Programs that count their traffic send no counts by class: those are of the labelled rows.
    def count(tx: Transaction, new: list[Prediction]) -> None:
        if not counted:
            tx.traffic.add(_counts(loaded, model, new, traffic.bucket_seconds))
        tx.class_traffic.add(_class_counts(model, new, traffic.bucket_seconds))

    outcomes, new = store_labels(registry, model, labels, results, count)
    # Only logits of new rows are captured, so that no row is fitted on twice.
    _capture(traffic, model, rows, results, sorted(new))
    fields = {"action": "observed", "model": model.name, "version": loaded.version}
    of = model.name, current_principal().name, counts_of(outcomes)["accepted"]
    log.info("Observations of %s by %s: %d new.", *of, extra=fields)
    return outcomes, [finding.text for finding in findings]


def _read_rows(
    model: Model,
    loaded: LoadedCalibrator,
    rows: Floats,
    observed: ObservedRows,
    now: float,
    read: float,
) -> list[tuple[Prediction, int] | LabelOutcome]:
    """Return prediction and class of each row, or why it is rejected.

    A row of a multilabel model is a prediction of the label that its digest draws. Monitoring has
    read all cohorts up to the time `read`.
    """
    labels, times = observed.labels, observed.times
    groups = [group_number(name) for name in observed.groups or [""] * len(rows)]
    number = loaded.stream.segment_of(observed.segment)
    read_label, maturity = label_reader(model), model.monitoring.maturity_seconds
    digests = [_digest(loaded, number, *pair) for pair in zip(times, rows, strict=True)]
    offsets = loaded.offsets.get(observed.segment)
    probabilities = loaded.calibrator.predict_float32(rows, offsets)
    if model.is_multilabel:
        drawn = [int.from_bytes(digest[:8], "little") % model.classes for digest in digests]
        predictions = summarise_drawn_labels(rows, probabilities, np.array(drawn, np.int64))
    else:
        predictions = summarise_predictions(rows, probabilities)
    results: list[tuple[Prediction, int] | LabelOutcome] = []
    for row, label, made_at, digest, group, raw, confidence, best in zip(
        rows, labels, times, digests, groups, *predictions, strict=True
    ):
        true = _class_of(read_label(label, best), row, made_at, now, maturity, read)
        if isinstance(true, LabelOutcome):
            results.append(true)
            continue
        prediction = Prediction(
            model.id, loaded.version, made_at, raw, confidence, best, digest, number, group
        )
        results.append((prediction, true))
    return results


def _capture(
    traffic: Traffic,
    model: Model,
    rows: Floats,
    results: list[tuple[Prediction, int] | LabelOutcome],
    new: list[int],
) -> None:
    selected = map(results.__getitem__, new)
    predictions = [result[0] for result in selected if not isinstance(result, LabelOutcome)]
    if predictions and model.monitoring.capture > 0:
        traffic.captures.keep_observed(
            model.id,
            model.monitoring.capture,
            [prediction.digest for prediction in predictions],
            rows[new],
            [prediction.made_at for prediction in predictions],
        )


def _check_lengths(
    rows: int, labels: Sequence[Any], times: Sequence[float], groups: Sequence[str]
) -> None:
    for name, values in (("labels", labels), ("times", times), ("groups", groups)):
        if len(values) != rows:
            accepted = f"{rows}, one for each row of logits"
            raise InputError(name, found=f"{len(values)} {name}", accepted=accepted)
    finite = np.isfinite(np.asarray(times, np.float64))
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"times[{row}]", found=f"{times[row]}", accepted="a finite number of seconds since 1970"
        )


def _class_of(
    label: int | str, logits: Floats, made_at: float, now: float, maturity: float, read: float
) -> int | LabelOutcome:
    """Return the class of a label, or why the row is rejected."""
    if isinstance(label, str):
        return LabelOutcome("invalid", label)
    if np.isneginf(logits[label]):
        return LabelOutcome("invalid", f"class {label} is masked (-inf) in this row")
    if made_at > now + _SKEW_SECONDS:
        return LabelOutcome(
            "invalid", f"made {made_at - now:.0f} seconds from now: check the clock"
        )
    # Monitoring may have read the cohort of older rows, and reads no cohort twice.
    if made_at < now - maturity:
        return LabelOutcome(
            "expired",
            f"older than {maturity:g} seconds, the model's maturity_seconds, after which nothing "
            "more is read; `recalib replay` reads logs of the past",
        )
    # After a change of maturity_seconds, or after the clock has been set back.
    if made_at < read:
        until = f"{read - now:.0f} seconds from now: the clock was set back"
        return LabelOutcome(
            "expired",
            f"its cohort has been read already: predictions until {read:.0f} have"
            f"{f', {until}' if read > now else ''}, and nothing is read twice",
        )
    return label


def _digest(loaded: LoadedCalibrator, segment: int, made_at: float, logits: Floats) -> bytes:
    """Return the digest that identifies a row."""
    head = np.array([loaded.number, loaded.version, segment, made_at], "<f8").tobytes()
    body = np.ascontiguousarray(logits, "<f4").tobytes()
    return blake2b(head + body, digest_size=_DIGEST_BYTES, person=_PURPOSE).digest()


def _counts(
    loaded: LoadedCalibrator, model: Model, predictions: list[Prediction], bucket_seconds: int
) -> list[TrafficCount]:
    """Return counts by time bucket and bin, as for served rows."""
    card = loaded.calibrator.card
    confidences = np.array([prediction.confidence for prediction in predictions])
    predicted = np.array([prediction.predicted for prediction in predictions])
    probabilities = values_of_predicted_class(confidences, predicted, reference_target(card))
    bins = left_closed_bins(reference_edges(card), probabilities)
    return merge_counts(
        TrafficCount(
            prediction.model,
            prediction.version,
            bucket_start(prediction.made_at, bucket_seconds, model.monitoring.cohort_seconds),
            prediction.segment,
            bin,
            1,
            1,
            probability,
        )
        for prediction, bin, probability in zip(
            predictions, bins.tolist(), probabilities.tolist(), strict=True
        )
    )


def _class_counts(
    model: Model, predictions: list[Prediction], bucket_seconds: int
) -> list[ClassTrafficCount]:
    """Return counts by time bucket and predicted class, of the watched classes."""
    if not model.monitoring.classes:
        return []
    watched = set(watched_indices(model.monitoring.classes, model.classes, model.labels))
    return merge_counts(
        ClassTrafficCount(
            prediction.model,
            prediction.version,
            bucket_start(prediction.made_at, bucket_seconds, model.monitoring.cohort_seconds),
            prediction.predicted,
            1,
            max(prediction.confidence, 1 - prediction.confidence),
        )
        for prediction in predictions
        if prediction.predicted in watched
    )
