"""Predictions that another program made with a calibrator, told with their logits and labels.

They go the way of predictions that are served here: counted by confidence, labelled, kept to fit
anew on in the share that the model declares, and looked at with their cohort. No transport here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from recalib.arrays import Floats
from recalib.drift.calibration_sums import bin_indices
from recalib.drift.reference_histogram import reference_edges
from recalib.errors import InputError
from recalib.prediction_ids import Prediction, summarise_predictions
from recalib.registry import Model, Registry, TrafficCount
from service.access.authenticator import current_principal
from service.labels.handlers import class_reader, counts_of, note_labels, outcome_of
from service.labels.schemas import Outcome
from service.monitoring.traffic import Traffic
from service.predict.handlers import checked
from service.predict.loaded_calibrators import LoadedCalibrator

__all__ = ["add_observations"]

log = logging.getLogger(__name__)

#: How far the sender's clock and the database's may differ, as with prediction ids.
_SKEW_SECONDS = 300.0
_DIGEST_BYTES = 16
_PURPOSE = b"observation"


def add_observations(
    registry: Registry,
    traffic: Traffic,
    loaded: LoadedCalibrator,
    logits: Floats,
    labels: Sequence[int | str],
    times: Sequence[float],
    segment: str,
    *,
    most: int,
) -> list[Outcome]:
    """Count and label predictions that were made elsewhere; return what became of each.

    One that is refused keeps none of the others back. A row is known by its time, segment, logits
    and version: the same again is a duplicate, and counted once. Counts and labels are written in
    one transaction; logits to be kept follow as those of served rows do.

    Parameters
    ----------
    logits: what the calibrator was given, (N, K).
    labels, times: (N,); when each prediction was made, in seconds since 1970.
    segment: of all of them; one that the model does not declare is watched with the rest.
    most: rows in one batch.

    Raises
    ------
    InputError: logits that are none of the calibrator's, or labels or times that are not one for
        each row, or a time that is not finite.
    TooLargeError: more than `most` rows.
    """
    rows = checked(loaded, logits, "logits", most).astype(np.float32, copy=False)
    _check_lengths(len(rows), labels, times)
    with registry.reading() as tx:
        model, now = tx.models.get(loaded.model), tx.labels.clock()
        read = tx.monitors.through(model, [loaded.version]).get(loaded.version, 0.0)
    found = _looked_at(model, loaded, rows, labels, times, segment, now, read)
    good = [(place, one) for place, one in enumerate(found) if not isinstance(one, Outcome)]
    stood = _stored(registry, model, loaded, [one for _, one in good], traffic.bucket_seconds)
    # Logits are kept of what is new, so that none is fitted on twice.
    new = [place for (place, _), before in zip(good, stood, strict=True) if before is None]
    _keep(traffic, model, rows, found, new)
    before_of = iter(stood)
    outcomes = [
        one if isinstance(one, Outcome) else outcome_of(model, one[1], next(before_of))
        for one in found
    ]
    _tell(model, loaded, outcomes)
    return outcomes


def _looked_at(
    model: Model,
    loaded: LoadedCalibrator,
    rows: Floats,
    labels: Sequence[int | str],
    times: Sequence[float],
    segment: str,
    now: float,
    read: float,
) -> list[tuple[Prediction, int] | Outcome]:
    """Return what each row says, or why it cannot be taken; until `read` all is looked at."""
    number = loaded.stream.segment_of(segment)
    class_of, maturity = class_reader(model), model.monitoring.maturity_seconds
    said = summarise_predictions(rows, loaded.calibrator.predict_float32(rows))
    found: list[tuple[Prediction, int] | Outcome] = []
    for row, label, made_at, raw, sure, best in zip(rows, labels, times, *said, strict=True):
        true = _class_of(class_of(label), row, made_at, now, maturity, read)
        if isinstance(true, Outcome):
            found.append(true)
            continue
        digest = _digest(loaded, number, made_at, row)
        made = Prediction(model.id, loaded.version, made_at, raw, sure, best, digest, number)
        found.append((made, true))
    return found


def _stored(
    registry: Registry,
    model: Model,
    loaded: LoadedCalibrator,
    good: list[tuple[Prediction, int]],
    bucket_seconds: int,
) -> list[int | None]:
    """Write labels, and counts of those that are new; return the labels that stood before."""
    if not good:
        return []
    with registry.transaction() as tx:
        stood = tx.labels.add(model, good)
        new = [made for (made, _), before in zip(good, stood, strict=True) if before is None]
        tx.traffic.add(_counted(loaded, new, bucket_seconds))
    return stood


def _keep(
    traffic: Traffic,
    model: Model,
    rows: Floats,
    found: list[tuple[Prediction, int] | Outcome],
    new: list[int],
) -> None:
    made = [one[0] for one in map(found.__getitem__, new) if not isinstance(one, Outcome)]
    if made and model.monitoring.capture > 0:
        traffic.captures.keep_observed(
            model.id,
            model.monitoring.capture,
            [one.digest for one in made],
            rows[new],
            [one.made_at for one in made],
        )


def _tell(model: Model, loaded: LoadedCalibrator, outcomes: list[Outcome]) -> None:
    note_labels(model, outcomes)
    fields = {"action": "observed", "model": model.name, "version": loaded.version}
    taken = counts_of(outcomes)["accepted"]
    log.info(
        "Observations of %s by %s: %d new.",
        model.name,
        current_principal().name,
        taken,
        extra=fields,
    )


def _check_lengths(rows: int, labels: Sequence[Any], times: Sequence[float]) -> None:
    for name, given in (("labels", labels), ("times", times)):
        if len(given) != rows:
            accepted = f"{rows}, one for each row of logits"
            raise InputError(name, found=f"{len(given)} {name}", accepted=accepted)
    finite = np.isfinite(np.asarray(times, np.float64))
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(
            f"times[{row}]", found=f"{times[row]}", accepted="a finite number of seconds since 1970"
        )


def _class_of(
    label: int | str, logits: Floats, made_at: float, now: float, maturity: float, read: float
) -> int | Outcome:
    """Return the class of a label, or why the row cannot be taken."""
    if isinstance(label, str):
        return Outcome("invalid", label)
    if np.isneginf(logits[label]):
        return Outcome("invalid", f"class {label} is masked (-inf) in this row")
    if made_at > now + _SKEW_SECONDS:
        return Outcome("invalid", f"made {made_at - now:.0f} seconds from now: check the clock")
    # From then on its cohort may have been read, and nothing is read twice.
    if made_at < now - maturity:
        return Outcome(
            "expired",
            f"older than {maturity:g} seconds, the model's maturity_seconds, after which nothing "
            "more is read; `recalib replay` reads logs of the past",
        )
    # As when maturity_seconds was shorter, or the clock has been set back.
    if made_at < read:
        until = f"{read - now:.0f} seconds from now: the clock was set back"
        return Outcome(
            "expired",
            f"its cohort has been read already: predictions until {read:.0f} have"
            f"{f', {until}' if read > now else ''}, and nothing is read twice",
        )
    return label


def _digest(loaded: LoadedCalibrator, segment: int, made_at: float, logits: Floats) -> bytes:
    """Return what a row is known by."""
    head = np.array([loaded.number, loaded.version, segment, made_at], "<f8").tobytes()
    body = np.ascontiguousarray(logits, "<f4").tobytes()
    return blake2b(head + body, digest_size=_DIGEST_BYTES, person=_PURPOSE).digest()


def _counted(
    loaded: LoadedCalibrator, made: list[Prediction], bucket_seconds: int
) -> list[TrafficCount]:
    """Return counts by bucket of time and bin of confidence, as served rows are counted."""
    places = bin_indices(
        reference_edges(loaded.calibrator.card), np.array([one.confidence for one in made])
    )
    cells = Counter(
        TrafficCount(
            one.model,
            one.version,
            int(one.made_at // bucket_seconds) * bucket_seconds,
            one.segment,
            place,
            0,
        )
        for one, place in zip(made, places.tolist(), strict=True)
    )
    return [cell._replace(predictions=count) for cell, count in cells.items()]
