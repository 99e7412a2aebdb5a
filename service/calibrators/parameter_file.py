"""Check an uploaded parameter file. Runs in the reader process."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from recalib.calibrator import Calibrator
from recalib.contract.models import Task
from recalib.core.card import Card, Claims
from recalib.core.options import options_of
from recalib.drift.reference_histogram import unmeasured_histogram
from recalib.errors import CorruptError, InputError
from recalib.fitting.request import candidate_of

#: The longest card in bytes, besides the names of classes. A page of versions has 1,000 cards.
_MAX_CARD_BYTES = 2**16
_ACCEPTED = "a .calib file, as `recalib fit` writes it"
#: Rows of the probe, and the largest deviation of a sum of probabilities from 1.
_PROBE_ROWS, _TOLERANCE = 8, 1e-3


def read_parameter_file(
    content: str, classes: int, labels: list[str] | None, task: Task
) -> dict[str, Any]:
    """Return `check_parameter_file` in base64, with its map and its rows; `content` is base64."""
    names = None if labels is None else tuple(labels)
    calibrator = check_parameter_file(base64.b64decode(content), classes, names, task)
    parameters = base64.b64encode(calibrator.to_bytes()).decode()
    card = calibrator.card
    return {"parameters": parameters, "map": card.map, "rows": card.data.rows}


def check_parameter_file(
    content: bytes, classes: int, labels: tuple[str, ...] | None, task: Task = "multiclass"
) -> Calibrator:
    """Return the calibrator in a file, with the metrics of its card as claims.

    It is applied to a few rows, in float64 and in float32: legal parameters can be so large that
    the result overflows.

    Parameters
    ----------
    classes, labels, task: those of the model.

    Raises
    ------
    InputError: the file is damaged, is of another task, number of classes or class names, has an
        unknown map, objective or option, a card that is too long, or parameters that overflow.
    """
    try:
        calibrator = Calibrator.from_bytes(content)
    except CorruptError as error:
        raise _file_error(str(error)[:300]) from None
    card = calibrator.card
    if card.task != task:
        raise _file_error(f"a {card.task} calibrator", f"one of task {task}, as the model has")
    if card.classes != classes:
        raise _file_error(f"a card of {card.classes} classes", f"{classes}, as the model has")
    if card.labels is not None and labels is not None and card.labels != labels:
        raise _file_error("a card with other names of classes", "those of the model, in its order")
    if card.segments is not None and len(card.segments.columns) > 1:
        found = f"segments of {len(card.segments.columns)} columns"
        raise _file_error(found, "of one column, whose value a request names as `segment`")
    claimed = Calibrator(calibrator.parameters, _with_claims(card, labels))
    _probe(claimed)
    return claimed


def _with_claims(card: Card, labels: tuple[str, ...] | None) -> Card:
    """Return the card with what the server has not measured as claims."""
    try:
        options, objective_options = _options(card)
        datetime.fromisoformat(card.created_at)
    except InputError as error:
        raise _file_error(
            f"a card with {error.field} {error.found}"[:300], error.accepted
        ) from None
    except ValueError:
        raise _file_error(f"a card with created_at {card.created_at[:80]!r}", "ISO 8601") from None
    if card.data.rows < 1:
        raise _file_error(f"a card with data.rows {card.data.rows}", "at least 1")
    unlabelled = msgspec.structs.replace(card, labels=None)
    if len(unlabelled.to_json()) > _MAX_CARD_BYTES:
        found = f"a card of {len(unlabelled.to_json())} bytes"
        raise _file_error(found, f"at most {_MAX_CARD_BYTES}, besides the names of classes")
    return msgspec.structs.replace(
        unlabelled,
        options=options,
        objective_options=objective_options,
        labels=labels,
        claimed=Claims(card.metrics, card.calibration_error, card.choice),
        metrics={},
        reliability={},
        calibration_error=None,
        choice=None,
        # The baseline of monitoring, which the server measures.
        confidences=unmeasured_histogram(card),
        thresholds=None,
        selection=None,
    )


def _options(card: Card) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all options of the map and of the objective; `InputError` if one is unknown."""
    candidate = candidate_of(card)
    return options_of(candidate.map), options_of(candidate.objective)


def _probe(calibrator: Calibrator) -> None:
    """Raise `InputError` unless the results for a few rows are probabilities."""
    shape = _PROBE_ROWS, calibrator.card.classes
    logits = np.random.default_rng(0).normal(0, 5, shape).astype(np.float32)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))  # legal as log-probabilities too
    calibrator.configure_session(1)
    feed = {"logits": logits}
    with np.errstate(all="ignore"):
        results = (
            calibrator.predict_float64(logits),
            calibrator.session.run(("probabilities",), feed)[0],
            *(
                calibrator.predict_float64(logits, of)
                for of in calibrator.offsets_by_value().values()
            ),
        )
    for probabilities in results:
        sums = probabilities.sum(axis=1, dtype=np.float64)
        error = 0.0 if calibrator.is_multilabel else np.abs(sums - 1).max()
        is_legal = probabilities.min() >= 0 and probabilities.max() <= 1 + _TOLERANCE
        if not (is_legal and error <= _TOLERANCE):  # comparisons with NaN are false
            raise _file_error(f"parameters of {calibrator.card.map} that overflow")


def _file_error(found: str, accepted: str = _ACCEPTED) -> InputError:
    return InputError("parameters", found=found, accepted=accepted)
