"""Models over REST."""

from __future__ import annotations

from fastapi import APIRouter, Response

from recalib import registry
from service.models import handlers
from service.models.schemas import Model, ModelCreate, ModelPage
from service.state import StateOf
from service.transport.description import problems
from service.transport.idempotency import IdempotencyKey, once
from service.transport.pages import Cursor, Limit, decode_cursor, encode_cursor
from service.transport.times import iso

__all__ = ["router"]

router = APIRouter(prefix="/v1/models", tags=["models"], responses=problems(500, 503))


@router.post(
    "",
    status_code=201,
    response_model=Model,
    responses=problems(409, 413, 415, 422),
    operation_id="create_model",
)
def create_model(
    body: ModelCreate, state: StateOf, idempotency_key: IdempotencyKey = None
) -> Response:
    """Register a classifier."""
    with state.registry.transaction() as tx:
        return once(
            tx,
            idempotency_key,
            "create_model",
            body,
            201,
            lambda: _wire(handlers.create_model(tx, body.name, body.classes, "anonymous")),
        )


@router.get("", responses=problems(422), operation_id="list_models")
def list_models(state: StateOf, limit: Limit = 100, cursor: Cursor = None) -> ModelPage:
    """List classifiers by name."""
    with state.registry.reading() as tx:
        models = tx.models.page(decode_cursor(cursor), limit + 1)
    more = models[limit - 1].name if len(models) > limit else None
    return ModelPage(items=[_wire(m) for m in models[:limit]], next_cursor=encode_cursor(more))


@router.get("/{model}", responses=problems(404), operation_id="get_model")
def get_model(model: str, state: StateOf) -> Model:
    """Return one classifier."""
    with state.registry.reading() as tx:
        return _wire(tx.models.get(model))


def _wire(model: registry.Model) -> Model:
    return Model(
        name=model.name,
        classes=model.classes,
        labels=list(model.labels) if model.labels is not None else None,
        created_at=iso(model.created_at),
    )
