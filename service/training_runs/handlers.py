"""Operations on training runs, independent of the transport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recalib import registry
from recalib.contract.jobs import Job
from recalib.errors import InputError, NotFoundError
from recalib.fitting.request import resolve_fit
from recalib.recipe import Recipe
from recalib.registry import Model, Registry, Transaction
from recalib.registry.job_kinds import TRAIN
from recalib.registry.server_recipe import check_server_recipe
from recalib.settings import Settings
from service.access.authenticator import current_principal
from service.access.caller_jobs import enqueue, visible_job
from service.idempotency import run_once

#: Maximum depth of tables in the free parts of a recipe.
_MAX_DEPTH = 20


def create_training_run(
    tx: Transaction, recipe: Recipe, key: str | None, settings: Settings
) -> Job:
    """Check the recipe as far as possible without torch and the data, and enqueue a training job.

    `settings` limit the packages and functions that it may name, its workers and its epochs.

    Raises
    ------
    InputError: an unknown map, objective or option of the calibrator; text that a database cannot
        store; a `tune` table, because tuning keeps its trials in a folder.
    NotFoundError: the model to calibrate does not exist.
    ConflictError: `key` was used with another request.
    """
    _check_storable(recipe)
    check_server_recipe(
        recipe, settings.allowed_imports, settings.training_workers, settings.max_epochs
    )
    if recipe.tune is not None:
        raise InputError("tune", found="a table", accepted="none: `recalib train` tunes")
    model = _model(tx, recipe)

    def act() -> Job:
        job = enqueue(tx, TRAIN, recipe.model_dump(mode="json"), model=model)
        of_model = None if model is None else model.name
        tx.audit.record(current_principal().name, "create_training_run", of_model, job.id)
        return Job.model_validate(job)

    return run_once(tx, key, "create_training_run", recipe, 202, Job, act)


def get_training_run_file(store: Registry, id: str, name: str) -> Iterator[bytes]:
    """Return a file of a training run, in chunks.

    Raises
    ------
    NotFoundError: the run does not exist, or does not have the file (yet).
    """
    with store.reading() as tx:
        job = run_of(tx, id)
    files = (job.result or {}).get("files", {})
    if name not in files:
        hint = f"it has {', '.join(files)}" if files else f"it is {job.state}"
        raise NotFoundError("file", name, hint=hint)
    return store.blobs.read_chunks(files[name]["digest"])


def run_of(tx: Transaction, id: str) -> registry.Job:
    """Return the job of a training run, or raise `NotFoundError`."""
    job = visible_job(tx, id)
    if job.kind != TRAIN:
        raise NotFoundError("training run", id, hint=f"it is a {job.kind} job")
    return job


def _model(tx: Transaction, recipe: Recipe) -> Model | None:
    part = recipe.calibrate
    current_principal().check_model(None if part is None else part.model)
    if part is None:
        return None
    resolve_fit(part.map, part.objective, part.options)
    if part.model is None:
        return None
    model = tx.models.get(part.model)
    model.check_multiclass("training runs")
    return model


def _check_storable(recipe: Recipe) -> None:
    """Raise `InputError` for text that a database cannot store."""
    free = recipe.model_dump(
        include={
            "data": True,
            "model": {"name", "options", "weights"},
            "loss": {"options", "secondary_options", "schedules"},
            "augmentation": True,
            "calibrate": {"options"},
        }
    )
    for field, value in free.items():
        _check_value(field, value, 0)


def _check_value(field: str, value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InputError(field, found="tables within tables", accepted=f"at most {_MAX_DEPTH} deep")
    if isinstance(value, str):
        # PostgreSQL has no NUL in its text, and half of a surrogate pair has no UTF-8.
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise InputError(field, found=repr(value)[:80], accepted="text without NUL")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_value(field, name, depth + 1)
            _check_value(field, item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_value(field, item, depth + 1)
