"""What can be done with training runs; no transport here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recalib.errors import InputError, NotFoundError
from recalib.fitting.fit import resolve_fit
from recalib.recipe import Recipe
from recalib.registry import Model, Registry, Transaction
from service.access.authenticator import current_principal
from service.idempotency import once
from service.jobs.schemas import Job

__all__ = ["TRAIN", "create_training_run", "get_training_run_file"]

#: The kind of job that trains.
TRAIN = "train"
_CHUNK = 1 << 20
#: How deep tables may lie in a recipe's free parts.
_DEEPEST = 20


def create_training_run(tx: Transaction, recipe: Recipe, key: str | None) -> Job:
    """Ask for a run; what can be checked without torch and the data now is.

    Raises
    ------
    InputError: an unknown map, objective or option of the calibrator; text that cannot be kept; a
        wish to tune, whose record of trials is a folder's.
    NotFoundError: no such model to calibrate.
    ConflictError: `key` came with another request.
    """
    _check_kept(recipe)
    if recipe.tune is not None:
        raise InputError("tune", found="a table", accepted="none: `recalib train` tunes")
    model = _model(tx, recipe)

    def act() -> Job:
        job = tx.jobs.enqueue(TRAIN, recipe.model_dump(mode="json"), model=model)
        of_model = None if model is None else model.name
        tx.audit.record(current_principal().name, "create_training_run", of_model, job.id)
        return Job.of(job)

    return once(tx, key, "create_training_run", recipe, 202, Job, act)


def get_training_run_file(registry: Registry, id: str, name: str) -> Iterator[bytes]:
    """Return a file that a run delivered, in pieces.

    Raises
    ------
    NotFoundError: no such run, or it has no such file, or none yet.
    """
    with registry.reading() as tx:
        job = tx.jobs.get(id)
    current_principal().check_model(job.model)
    if job.kind != TRAIN:
        raise NotFoundError("training run", id, hint=f"it is a {job.kind} job")
    files = (job.result or {}).get("files", {})
    if name not in files:
        hint = f"it has {', '.join(files)}" if files else f"it is {job.state}"
        raise NotFoundError("file", name, hint=hint)
    file = registry.blobs.open(files[name]["digest"])

    def pieces() -> Iterator[bytes]:
        with file:
            while piece := file.read(_CHUNK):
                yield piece

    return pieces()


def _model(tx: Transaction, recipe: Recipe) -> Model | None:
    part = recipe.calibrate
    current_principal().check_model(None if part is None else part.model)
    if part is None:
        return None
    resolve_fit(part.map, part.objective, part.options)
    return None if part.model is None else tx.models.get(part.model)


def _check_kept(recipe: Recipe) -> None:
    """Raise `InputError` for what neither database could keep."""
    free = {name: getattr(recipe, name) for name in ("data",)}
    free |= {"model": [recipe.model.name, recipe.model.options, recipe.model.weights]}
    free |= {"loss": [recipe.loss.options, recipe.loss.secondary_options, *recipe.loss.schedules]}
    free |= {"augmentation": recipe.augmentation}
    if recipe.calibrate is not None:
        free |= {"calibrate": [recipe.calibrate.options]}
    for field, value in free.items():
        _check_value(field, value, 0)


def _check_value(field: str, value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError(field, found="tables within tables", accepted=f"at most {_DEEPEST} deep")
    if isinstance(value, str):
        # PostgreSQL has no NUL in its text, and half of a surrogate pair has no UTF-8.
        if "\0" in value or any("\ud800" <= one <= "\udfff" for one in value):
            raise InputError(field, found=repr(value)[:80], accepted="text without NUL")
    elif isinstance(value, dict):
        for name, one in value.items():
            _check_value(field, name, depth + 1)
            _check_value(field, one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check_value(field, one, depth + 1)
