"""Models: create, get and list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from recalib.client.drivers import Listing
from recalib.client.errors import ResourceConflictError
from recalib.client.operations import Flow, Session
from recalib.client.retry import fetch, path, without_none
from recalib.contract.base import Page
from recalib.contract.models import Model
from recalib.core.card import PredictionPolicy
from recalib.errors import InputError


def create_model(
    session: Session,
    name: str,
    classes: int | Sequence[str],
    *,
    monitoring: Mapping[str, Any] | None = None,
    task: Literal["multiclass", "multilabel"] = "multiclass",
    predictions: PredictionPolicy | None = None,
    serve_uncalibrated: bool | None = None,
    exist_ok: bool = False,
) -> Flow[Model]:
    """Create a model, which is a classifier to calibrate.

    Parameters
    ----------
    classes: the number of classes, or their labels in the order of the logits.
    monitoring: the monitoring settings, as for `set_monitoring`.
    task: `multilabel` if a row has any number of labels, each with its own probability.
        `add_observations` monitors such a model.
    predictions: which predictions the fits of `auto` without this option and automatic refits may
        change: `may_change`, the default, `keep_order` or `keep`, as in `recalib.fit`.
    serve_uncalibrated: whether the model answers with the classifier's own probabilities, marked
        as uncalibrated, while it has no champion; by default it does.
    exist_ok: return an existing model if it has the same classes and task, and `predictions` if
        that is given.

    Raises
    ------
    InvalidRequestError: the name is invalid, or labels repeat.
    ResourceConflictError: the name is taken.
    """
    if isinstance(classes, str):  # each letter would be a class
        accepted = "a number, or a label for each class"
        raise InputError("classes", found=repr(classes), accepted=accepted)
    requested = int(classes) if isinstance(classes, int | np.integer) else list(classes)
    body = without_none(
        name=name,
        classes=requested,
        task=None if task == "multiclass" else task,
        monitoring=None if monitoring is None else dict(monitoring),
        predictions=predictions,
        serve_uncalibrated=serve_uncalibrated,
    )
    try:
        return (yield from fetch(session, Model, "POST", path("models"), json=body))
    except ResourceConflictError:
        if not exist_ok:
            raise
        model = yield from get_model(session, name)
        labels = None if model.labels is None else list(model.labels)
        if (requested, task) != (model.classes if labels is None else labels, model.task):
            raise
        if predictions not in (None, model.predictions):
            raise
        return model


def get_model(session: Session, name: str) -> Flow[Model]:
    """Return a model.

    Raises
    ------
    ResourceNotFoundError: no model has this name.
    """
    return fetch(session, Model, "GET", path("models", name))


def list_models(
    *, name: str | None = None, tag: str | None = None, state: str | None = None
) -> Listing[Model]:
    """Iterate over models, by name; arguments filter them.

    Parameters
    ----------
    name: a part of the names, in any case.
    tag: a tag of the models.
    state: the monitoring state of their champions: fresh, unverified, suspect or stale.
    """
    query = without_none(name=name, tag=tag, model_state=state)
    return Listing(Page[Model], path("models"), query)
