"""What can be done with calibrators; no transport here."""

from __future__ import annotations

from typing import Any

from recalib.fitting.fit import wanted
from recalib.registry import Job, Model, Transaction

__all__ = ["FIT", "request_fit"]

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
    wanted(map, objective, options)
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
