"""Webhooks over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from recalib import registry
from recalib.contract.events import Delivery, DeliveryPage, DeliveryState, Webhook, WebhookPage
from recalib.registry import check_name
from service.access.authenticator import current_principal
from service.http.idempotency_key import IdempotencyKey
from service.http.openapi import problems
from service.http.page_parameters import Cursor, Limit
from service.http.routing import Router
from service.pagination import decode_cursor, decode_number, page_of
from service.state import StateDependency
from service.webhooks import handlers
from service.webhooks.schemas import SecretRotation, WebhookChange, WebhookCreate

router = Router(prefix="/v1/webhooks", tags=["events"], responses=problems(500, 503))


@router.operation(
    "POST",
    "",
    "admin",
    finds_model=True,
    status_code=201,
    responses=problems(404, 409, 413, 415, 422),
)
def create_webhook(
    body: WebhookCreate, state: StateDependency, idempotency_key: IdempotencyKey = None
) -> Webhook:
    """Send events to a URL from now on; only this answer has the secret that signs them."""
    with state.registry.transaction() as tx:
        return handlers.create_webhook(tx, state.settings, body, idempotency_key)


@router.operation("GET", "", "admin", finds_model=True, responses=problems(422))
def list_webhooks(
    state: StateDependency, model: str | None = None, limit: Limit = 100, cursor: Cursor = None
) -> WebhookPage:
    """List webhooks."""
    current_principal().check_model(model)
    if model is not None:
        check_name("model", model)
    with state.registry.reading() as tx:
        rows = tx.webhooks.page(model, decode_cursor(cursor), limit + 1)
    return page_of(WebhookPage, rows, limit, lambda row: row.id, Webhook.model_validate)


@router.operation("GET", "/{webhook_id}", "admin", finds_model=True, responses=problems(404))
def get_webhook(webhook_id: str, state: StateDependency) -> Webhook:
    """Return a webhook, with the reason if it is disabled."""
    with state.registry.reading() as tx:
        return Webhook.model_validate(handlers.visible_webhook(tx, webhook_id))


@router.operation(
    "PATCH", "/{webhook_id}", "admin", finds_model=True, responses=problems(404, 409, 413, 415, 422)
)
def update_webhook(
    webhook_id: str,
    body: WebhookChange,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Webhook:
    """Change the URL, or enable or disable a webhook."""
    with state.registry.transaction() as tx:
        return handlers.update_webhook(tx, state.settings, webhook_id, body, idempotency_key)


@router.operation(
    "POST",
    "/{webhook_id}/secret",
    "admin",
    finds_model=True,
    responses=problems(404, 409, 413, 415, 422),
)
def rotate_webhook_secret(
    webhook_id: str,
    body: SecretRotation,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Webhook:
    """Replace the secret; only this answer has the new one.

    The previous secret signs messages too, so that the receiver can change its secret meanwhile.
    """
    with state.registry.transaction() as tx:
        return handlers.rotate_webhook_secret(tx, webhook_id, body, idempotency_key)


@router.operation(
    "DELETE", "/{webhook_id}", "admin", finds_model=True, responses=problems(404, 409, 422)
)
def delete_webhook(
    webhook_id: str, state: StateDependency, idempotency_key: IdempotencyKey = None
) -> Webhook:
    """Remove a webhook and its delivery log; the answer is the webhook as it was."""
    with state.registry.transaction() as tx:
        return handlers.delete_webhook(tx, webhook_id, idempotency_key)


@router.operation(
    "GET", "/{webhook_id}/deliveries", "admin", finds_model=True, responses=problems(404, 422)
)
def list_deliveries(
    webhook_id: str,
    state: StateDependency,
    delivery_state: DeliveryState | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> DeliveryPage:
    """List the deliveries of a webhook, newest events first."""
    before = decode_number(cursor)
    with state.registry.reading() as tx:
        id = handlers.visible_webhook(tx, webhook_id).id
        rows = tx.webhooks.deliveries(id, delivery_state, before, limit + 1)
    return page_of(DeliveryPage, rows, limit, lambda row: str(row.event_id), _delivery)


@router.operation(
    "POST",
    "/{webhook_id}/deliveries/{event_id}",
    "admin",
    finds_model=True,
    status_code=202,
    responses=problems(404, 409, 422),
)
def redeliver(
    webhook_id: str,
    event_id: Annotated[int, Path(ge=1, le=2**63 - 1)],
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Webhook:
    """Send an event to a webhook again."""
    with state.registry.transaction() as tx:
        return handlers.redeliver(tx, webhook_id, event_id, idempotency_key)


def _delivery(row: registry.Delivery) -> Delivery:
    next_attempt_at = row.next_attempt_at if row.state == "pending" else None
    return Delivery.model_validate({**vars(row), "next_attempt_at": next_attempt_at})
