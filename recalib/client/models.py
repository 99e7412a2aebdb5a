"""Classifiers to be calibrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recalib.client.drivers import Listing
from recalib.client.errors import ContradictionError
from recalib.client.operations import Plan, Session
from recalib.client.results import Model, Page
from recalib.client.retry import fetch, new_key, path
from recalib.errors import InputError

__all__ = ["create_model", "get_model", "list_models"]


def create_model(
    session: Session,
    name: str,
    classes: int | Sequence[str],
    *,
    monitoring: Mapping[str, Any] | None = None,
    exist_ok: bool = False,
) -> Plan[Model]:
    """Register a classifier.

    Parameters
    ----------
    classes: how many, or their labels in the order of the logits.
    monitoring: what is watched, as `set_monitoring` takes it.
    exist_ok: return the model that is there already, if it has the same classes.

    Raises
    ------
    RefusedError: a name that is not one, or labels that repeat.
    ContradictionError: the name is taken.
    """
    if isinstance(classes, str):  # whose letters would be as many classes
        accepted = "a number, or a label for each class"
        raise InputError("classes", found=repr(classes), accepted=accepted)
    wanted = int(classes) if isinstance(classes, int | np.integer) else list(classes)
    try:
        body: dict[str, Any] = {"name": name, "classes": wanted}
        if monitoring is not None:
            body["monitoring"] = dict(monitoring)
        return (
            yield from fetch(session, Model, "POST", path("models"), json=body, headers=new_key())
        )
    except ContradictionError:
        if not exist_ok:
            raise
        there = yield from get_model(session, name)
        labels = None if there.labels is None else list(there.labels)
        if wanted != (there.classes if labels is None else labels):
            raise
        return there


def get_model(session: Session, name: str) -> Plan[Model]:
    """Return a classifier.

    Raises
    ------
    MissingError: there is none of that name.
    """
    return fetch(session, Model, "GET", path("models", name))


def list_models() -> Listing[Model]:
    """Iterate over all classifiers, by name."""
    return Listing(Page[Model], path("models"))
