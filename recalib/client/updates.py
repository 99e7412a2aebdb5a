"""Changes of names, descriptions, tags and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from recalib.client.operations import Flow, Session
from recalib.client.retry import fetch, path, without_none
from recalib.contract.calibrators import Calibrator
from recalib.contract.datasets import Dataset
from recalib.contract.models import Model
from recalib.core.card import PredictionPolicy
from recalib.errors import InputError


def update_model(
    session: Session,
    name: str,
    *,
    rename: str | None = None,
    description: str | None = None,
    tags: Sequence[str] | None = None,
    retention: Mapping[str, float | None] | None = None,
    predictions: PredictionPolicy | None = None,
    serve_uncalibrated: bool | None = None,
) -> Flow[Model]:
    """Change a model; what is None stays as it is.

    Parameters
    ----------
    rename: a new name. The old one is free then, and nothing redirects to it.
    tags: they replace the tags.
    retention: `dataset_seconds`, `version_seconds` and `label_seconds`; a setting that is left out
        keeps the resources.
    predictions: which predictions later fits of `auto` and automatic refits may change, as in
        `recalib.fit`.
    serve_uncalibrated: whether requests are answered while the model has no champion.

    Raises
    ------
    InputError: a setting is infinite or NaN.
    ResourceNotFoundError: no such model.
    InvalidRequestError: a value is not valid.
    ResourceConflictError: the new name is taken, or the model has a champion or unfinished jobs.
    """
    for field, seconds in (retention or {}).items():
        # JSON has no such number: null would arrive, which keeps the resources for ever.
        if seconds is not None and not math.isfinite(seconds):
            accepted = "a number of seconds, or None to keep them"
            raise InputError(f"retention.{field}", found=f"{seconds}", accepted=accepted)
    changes = without_none(
        name=rename,
        description=description,
        tags=tags,
        retention=retention,
        predictions=predictions,
        serve_uncalibrated=serve_uncalibrated,
    )
    return fetch(session, Model, "PATCH", path("models", name), json=changes)


def update_dataset(
    session: Session,
    model: str,
    name: str,
    *,
    description: str | None = None,
    tags: Sequence[str] | None = None,
) -> Flow[Dataset]:
    """Change the description or the tags of a data set; what is None stays as it is.

    Raises
    ------
    ResourceNotFoundError: no such model or data set.
    InvalidRequestError: a value is not valid.
    """
    changes = without_none(description=description, tags=tags)
    return fetch(session, Dataset, "PATCH", path("models", model, "datasets", name), json=changes)


def update_calibrator(
    session: Session,
    model: str,
    version: int,
    *,
    description: str | None = None,
    tags: Sequence[str] | None = None,
) -> Flow[Calibrator]:
    """Change the description or the tags of a version; what is None stays as it is.

    Raises
    ------
    ResourceNotFoundError: no such model or version.
    InvalidRequestError: a value is not valid.
    """
    changes = without_none(description=description, tags=tags)
    place = path("models", model, "calibrators", str(version))
    return fetch(session, Calibrator, "PATCH", place, json=changes)
