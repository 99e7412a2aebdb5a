"""What can be done with calibrators; no transport here."""

from __future__ import annotations

from typing import Any

from recalib.errors import InputError
from recalib.fitting.fit import configured
from recalib.registry import Alias, Job, Model, Transaction

__all__ = ["FIT", "request_fit", "set_alias"]

#: The kind of job that fits a calibrator.
FIT = "fit"


def request_fit(
    tx: Transaction,
    model: Model,
    *,
    dataset: str,
    map: str,
    objective: str,
    options: dict[str, Any],
    promote: bool | str,
) -> Job:
    """Enqueue a fit; what can be checked now is, so that a typo does not wait in a queue.

    Raises
    ------
    InputError: an unknown map, objective or option.
    NotFoundError: no such data set.
    """
    configured(map, objective, options)
    tx.datasets.get(model, dataset)
    payload = {
        "model": model.name,
        "dataset": dataset,
        "map": map,
        "objective": objective,
        "options": options,
        "promote": promote,
    }
    return tx.jobs.enqueue(FIT, payload, model=model)


def set_alias(
    tx: Transaction, model: Model, alias: str, version: int, actor: str, reason: str
) -> Alias:
    """Point an alias to a version, at once for every reader.

    Raises
    ------
    InputError: a name that is not one; a number, which would read as a version.
    NotFoundError: no such version.
    """
    if alias.isdigit():
        raise InputError("alias", found=repr(alias), accepted="a name; numbers stand for versions")
    return tx.aliases.set(model, alias, version, actor, reason)
