"""The true classes of predictions made earlier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recalib.client.asking import JSON, encoded, path, read, succeed
from recalib.client.errors import MalformedAnswerError, RefusedAsTooLargeError
from recalib.client.plans import Plan, Request, Session
from recalib.client.results import Labelled, LabelOutcome
from recalib.errors import InputError

__all__ = ["add_labels"]


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


def _part(
    session: Session, model: str, ids: list[str], labels: list[int | str]
) -> Plan[list[LabelOutcome]]:
    pairs = zip(ids, labels, strict=True)
    body = encoded([{"prediction_id": one, "label": label} for one, label in pairs])
    request = Request("POST", path("models", model, "labels"), headers=JSON, body=body)
    answer = yield from succeed(session, request)
    items = read(answer, Labelled).items
    if len(items) != len(ids):
        raise MalformedAnswerError(answer, f"is about {len(items)} labels of {len(ids)}")
    return items
