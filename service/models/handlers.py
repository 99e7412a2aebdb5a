"""Operations on models, independent of the transport."""

from __future__ import annotations

from collections import Counter

from recalib.contract.models import Deletion
from recalib.errors import InputError
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.deletion import delete_once
from service.idempotency import run_once
from service.models.schemas import ModelCreate, ModelPage, ModelUpdate
from service.pagination import decode_cursor, next_cursor
from service.schemas.model import Model
from service.validation_warnings import warnings_of


def create_model(tx: Transaction, request: ModelCreate, key: str | None, actor: str) -> Model:
    """Register a classifier with the number of its classes, or with their labels.

    Raises
    ------
    InputError: the name is not valid, labels repeat, or the model cannot have `predictions`.
    ConflictError: the name is taken, or `key` was used for another request.
    """

    def act() -> Model:
        model = _create(tx, request, actor)
        columns = "classes" if model.task == "multiclass" else "independent labels"
        detail = f"{model.classes} {columns}"
        tx.audit.record(actor, "create_model", model.name, model.name, detail)
        return model

    return run_once(tx, key, "create_model", request, 201, Model, act)


def list_models(
    tx: Transaction,
    limit: int,
    cursor: str | None,
    *,
    name: str | None = None,
    tag: str | None = None,
    state: str | None = None,
) -> ModelPage:
    """Return a page of the classifiers with a part of a name, a tag and a state, by name."""
    rows = tx.models.page(decode_cursor(cursor), limit + 1, name=name, tag=tag, state=state)
    following = next_cursor(rows, limit, lambda model: model.name)
    return ModelPage(items=[Model.of(row) for row in rows[:limit]], next_cursor=following)


def get_model(tx: Transaction, name: str) -> Model:
    """Return one classifier, or raise `NotFoundError`."""
    return Model.of(tx.models.get(name))


def update_model(tx: Transaction, name: str, change: ModelUpdate, key: str | None) -> Model:
    """Change the name, the description, the tags or the settings of a model.

    Raises
    ------
    NotFoundError: the model does not exist.
    InputError: a value is not valid.
    ConflictError: a new name is taken, or the model has a champion or unfinished jobs.
    """

    def act() -> Model:
        model = tx.edits.model(
            tx.models.get(name),
            current_principal().name,
            name=change.name,
            description=change.description,
            tags=change.tags,
            retention=change.retention,
            predictions=change.predictions,
        )
        return Model.of(model)

    return run_once(tx, key, f"update_model {name}", change, 200, Model, act)


def delete_model(
    tx: Transaction, name: str, *, force: bool, key: str | None, deleted_seconds: float
) -> Deletion:
    """Delete a model with everything in it.

    Raises
    ------
    NotFoundError: the model does not exist, or was deleted.
    ConflictError: it has a champion or unfinished jobs, and `force` is not set.
    ForbiddenError: `force`, without the scope `admin`.
    """

    def delete(actor: str) -> None:
        tx.deletions.model(tx.models.get(name), actor, force=force)

    scope = f"delete_model {name}"
    return delete_once(tx, scope, delete, force=force, key=key, deleted_seconds=deleted_seconds)


def _create(tx: Transaction, request: ModelCreate, actor: str) -> Model:
    labels = None if isinstance(request.classes, int) else tuple(request.classes)
    if labels is not None:
        label, times = Counter(labels).most_common(1)[0]
        if times > 1:
            raise InputError(
                "classes", found=f"label {label!r} {times} times", accepted="labels that differ"
            )
    count = request.classes if isinstance(request.classes, int) else len(request.classes)
    predictions = request.predictions
    if predictions is None and request.task == "multiclass":
        predictions = "may_change"
    model = tx.models.create(
        request.name, labels, count, actor, request.monitoring, request.task, predictions
    )
    return Model.of(model, warnings_of(tx, model, None))
