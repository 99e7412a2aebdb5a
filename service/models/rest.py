"""Models over REST."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

from recalib.contract.models import Deletion
from service.access.authenticator import current_principal
from service.http.force_parameter import Force
from service.http.idempotency_key import IdempotencyKey
from service.http.openapi import problems
from service.http.page_parameters import Cursor, Limit
from service.http.routing import Router
from service.models import handlers
from service.models.schemas import ModelCreate, ModelPage, ModelUpdate
from service.schemas.field_types import Text
from service.schemas.model import Model
from service.state import StateDependency

MonitoringState = Literal["fresh", "unverified", "suspect", "stale"]

router = Router(prefix="/v1/models", tags=["models"], responses=problems(500, 503))


@router.operation("POST", "", "admin", status_code=201, responses=problems(409, 413, 415, 422))
def create_model(
    body: ModelCreate, state: StateDependency, idempotency_key: IdempotencyKey = None
) -> Model:
    """Register a classifier."""
    with state.registry.transaction() as tx:
        return handlers.create_model(tx, body, idempotency_key, current_principal().name)


@router.operation("GET", "", "fit", responses=problems(422))
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
    with state.registry.reading() as tx:
        return handlers.list_models(tx, limit, cursor, name=name, tag=tag, state=model_state)


@router.operation("GET", "/{model}", "fit", responses=problems(404))
def get_model(model: str, state: StateDependency) -> Model:
    """Return one classifier."""
    with state.registry.reading() as tx:
        return handlers.get_model(tx, model)


@router.operation("PATCH", "/{model}", "admin", responses=problems(404, 409, 413, 415, 422))
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
        answer = handlers.update_model(tx, model, body, idempotency_key)
    if body.name is not None:
        state.calibrators.refresh()
    return answer


@router.operation("DELETE", "/{model}", "admin", responses=problems(404, 409, 422))
def delete_model(
    model: str,
    state: StateDependency,
    force: Force = False,
    idempotency_key: IdempotencyKey = None,
) -> Deletion:
    """Delete a classifier with everything in it; its name is free again."""
    with state.registry.transaction() as tx:
        answer = handlers.delete_model(
            tx,
            model,
            force=force,
            key=idempotency_key,
            deleted_seconds=state.settings.deleted_seconds,
        )
    state.calibrators.refresh()
    return answer
