"""Models over REST."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from fastapi import Query

from recalib.contract.models import Deletion
from recalib.errors import InputError
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.deletion import delete_once
from service.http.parameters import Cursor, Force, IdempotencyKey, Limit
from service.http.routing import Router
from service.idempotency import run_once
from service.models.schemas import ModelCreate, ModelPage, ModelUpdate
from service.pagination import decode_cursor, page_of
from service.schemas import Model, Text
from service.state import StateDependency
from service.validation_warnings import warnings_of

MonitoringState = Literal["fresh", "unverified", "suspect", "stale"]

router = Router(prefix="/v1/models", tags=["models"])


@router.operation("POST", "", "admin", status_code=201)
def create_model(
    body: ModelCreate, state: StateDependency, idempotency_key: IdempotencyKey = None
) -> Model:
    """Register a classifier."""
    actor, predictions = current_principal().name, body.predictions
    labels = None if isinstance(body.classes, int) else tuple(body.classes)
    count = body.classes if isinstance(body.classes, int) else len(body.classes)
    if labels is not None:
        label, times = Counter(labels).most_common(1)[0]
        if times > 1:
            raise InputError(
                "classes", found=f"label {label!r} {times} times", accepted="labels that differ"
            )
    if predictions is None and body.task == "multiclass":
        predictions = "may_change"
    with state.registry.transaction() as tx:

        def act() -> Model:
            model = tx.models.create(
                body.name, labels, count, actor, body.monitoring, body.task, predictions,
                body.serve_uncalibrated,
            )  # fmt: skip
            columns = "classes" if model.task == "multiclass" else "independent labels"
            detail = f"{model.classes} {columns}"
            tx.audit.record(actor, "create_model", model.name, model.name, detail)
            return Model.of(model, warnings_of(tx, model, None))

        return run_once(tx, idempotency_key, "create_model", body, 201, Model, act)


@router.operation("GET", "", "fit")
def list_models(
    state: StateDependency,
    name: Annotated[
        Text | None, Query(max_length=128, description="A part of the name, in any case.")
    ] = None,
    tag: Annotated[Text | None, Query(max_length=100, description="A tag of the model.")] = None,
    model_state: Annotated[
        MonitoringState | None,
        Query(description="Monitoring state of the champion; `unverified` without one."),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> ModelPage:
    """List the classifiers that match all given parameters, ordered by name."""
    after = decode_cursor(cursor)
    with state.registry.reading() as tx:
        rows = tx.models.page(after, limit + 1, name=name, tag=tag, state=model_state)
    return page_of(ModelPage, rows, limit, lambda model: model.name, Model.of)


@router.operation("GET", "/{model}", "fit")
def get_model(model: str, state: StateDependency) -> Model:
    """Return one classifier."""
    with state.registry.reading() as tx:
        return Model.of(tx.models.get(model))


@router.operation("PATCH", "/{model}", "admin")
def update_model(
    model: str,
    body: ModelUpdate,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Model:
    """Change the name, description, tags or settings of a classifier.

    A model is renamed while it has no champion and no unfinished jobs. Its old name is free then.
    """
    with state.registry.transaction() as tx:

        def act() -> Model:
            row, actor = tx.models.get(model), current_principal().name
            return Model.of(tx.edits.model(row, actor, **dict(body)))

        answer = run_once(tx, idempotency_key, f"update_model {model}", body, 200, Model, act)
    if body.name is not None or body.serve_uncalibrated is not None:
        state.calibrators.refresh()
    return answer


@router.operation("DELETE", "/{model}", "admin")
def delete_model(
    model: str,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete a classifier with everything in it; its name is free again."""

    def delete(tx: Transaction, actor: str) -> None:
        tx.deletions.model(tx.models.get(model), actor, force=force)

    scope = f"delete_model {model}"
    answer = delete_once(state, scope, delete, force=force, key=idempotency_key)
    state.calibrators.refresh()
    return answer
