"""The true classes of predictions made earlier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.arrays import Floats, check_logits
from recalib.client.calibrators import CHAMPION
from recalib.client.errors import MalformedAnswerError, RefusedAsTooLargeError
from recalib.client.operations import Answer, Plan, Request, Session
from recalib.client.results import Labelled, LabelOutcome
from recalib.client.retry import JSON, encoded, path, read, succeed
from recalib.errors import InputError

__all__ = ["add_labels", "add_observations"]


def add_labels(
    session: Session,
    model: str,
    prediction_ids: Sequence[str],
    labels: Sequence[int | str] | NDArray[np.integer],
) -> Plan[Labelled]:
    """Say what the true class of predictions was; return what became of each label.

    More than a request may carry go in several. One that is refused keeps none of the others back.
    After a connection that broke, labels of that very call may come back as duplicates.

    Parameters
    ----------
    prediction_ids: (N,), as answers to calibrate have them.
    labels: (N,), indices of classes, or their labels where the model has labels.

    Raises
    ------
    MissingError: no such model.
    """
    ids = list(prediction_ids)
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    if len(ids) != len(given):
        accepted = f"{len(ids)}, one for each prediction"
        raise InputError("labels", found=f"{len(given)} labels", accepted=accepted)
    outcomes: list[LabelOutcome] = []
    while len(outcomes) < len(ids):
        part = slice(len(outcomes), len(outcomes) + session.most_labels)
        try:
            outcomes += yield from _part(session, model, ids[part], given[part])
        except RefusedAsTooLargeError:
            if len(ids[part]) == 1:
                raise
            session.most_labels = min(session.most_labels, len(ids[part]) // 2)
    return Labelled(dict(Counter(one.status for one in outcomes)), outcomes)


def add_observations(
    session: Session,
    model: str,
    logits: ArrayLike,
    labels: Sequence[int | str] | NDArray[np.integer],
    times: Sequence[float] | NDArray[np.floating],
    *,
    segment: str = "",
    calibrator: int | str = CHAMPION,
) -> Plan[Labelled]:
    """Tell of predictions that were made elsewhere with a calibrator; return what became of each.

    They are watched as those that the server makes, where they are no older than the model's
    `maturity_seconds`. A row is known by its time, segment and logits, and counted once. More than
    a request may carry go in several.

    Parameters
    ----------
    logits: what the calibrator was given, (N, K).
    labels: (N,), indices of classes, or their labels where the model has labels.
    times: (N,), when each prediction was made, in seconds since 1970.
    calibrator: the version that made them, or an alias.

    Raises
    ------
    MissingError: no such model or version.
    ContradictionError: the model has no champion.
    RefusedError: logits of other classes than the model's.
    """
    rows = check_logits(logits)
    given = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    made = np.asarray(times, np.float64)
    for name, many in (("labels", len(given)), ("times", len(made) if made.ndim == 1 else -1)):
        if many != len(rows):
            accepted = f"{len(rows)}, one for each row"
            found = f"{many} {name}" if many >= 0 else f"shape {made.shape}"
            raise InputError(name, found=found, accepted=accepted)
    outcomes: list[LabelOutcome] = []
    query = {"calibrator": str(calibrator)}
    while len(outcomes) < len(rows):
        part = slice(len(outcomes), len(outcomes) + session.most_labels)
        body = encoded(
            {
                "logits": _nullable(rows[part]),
                "labels": given[part],
                "times": made[part].tolist(),
                "segment": segment,
            }
        )
        where = path("models", model, "observations")
        try:
            request = Request("POST", where, query, JSON, body)
            outcomes += _items((yield from succeed(session, request)), len(given[part]))
        except RefusedAsTooLargeError:
            if len(given[part]) == 1:
                raise
            session.most_labels = min(session.most_labels, len(given[part]) // 2)
    return Labelled(dict(Counter(one.status for one in outcomes)), outcomes)


def _nullable(rows: Floats) -> list[list[float | None]]:
    """Return rows as JSON has them, in which −inf, a masked class, is null."""
    values: list[list[float | None]] = rows.tolist()
    for row, column in np.argwhere(np.isneginf(rows)):
        values[row][column] = None
    return values


def _items(answer: Answer, wanted: int) -> list[LabelOutcome]:
    items = read(answer, Labelled).items
    if len(items) != wanted:
        raise MalformedAnswerError(answer, f"is about {len(items)} labels of {wanted}")
    return items


def _part(
    session: Session, model: str, ids: list[str], labels: list[int | str]
) -> Plan[list[LabelOutcome]]:
    pairs = zip(ids, labels, strict=True)
    body = encoded([{"prediction_id": one, "label": label} for one, label in pairs])
    request = Request("POST", path("models", model, "labels"), headers=JSON, body=body)
    answer = yield from succeed(session, request)
    return _items(answer, len(ids))
