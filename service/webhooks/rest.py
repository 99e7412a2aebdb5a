"""Webhooks over REST."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Path

from recalib.contract.events import DeliveryPage, DeliveryState, Webhook, WebhookPage
from recalib.errors import ForbiddenError, InputError, NotFoundError
from recalib.registry import Transaction, check_name
from recalib.settings import Settings
from recalib.webhooks import AllowedTargets, check_url, encode_secret
from recalib.webhooks.formats import STATE_CHANGED
from service.access.authenticator import current_principal
from service.http.openapi import problems
from service.http.parameters import Cursor, IdempotencyKey, Limit
from service.http.routing import Router
from service.idempotency import EmptyRequest, run_once
from service.pagination import decode_cursor, decode_number, page_of
from service.schemas import check_event_types
from service.state import StateDependency
from service.webhooks.schemas import SecretRotation, WebhookChange, WebhookCreate

router = Router(prefix="/v1/webhooks", tags=["events"])


@router.operation(
    "POST",
    "",
    "admin",
    finds_model=True,
    status_code=201,
    responses=problems(404),
)
def create_webhook(
    body: WebhookCreate, state: StateDependency, idempotency_key: IdempotencyKey = None
) -> Webhook:
    """Send events to a URL from now on; only this answer has the secret that signs them."""
    principal = current_principal()
    principal.check_model(body.model)
    types = _event_types(body)
    with state.registry.transaction() as tx:
        if body.model is not None:
            # Held: a new name of the model reaches the webhooks that exist.
            tx.models.hold(tx.models.get(body.model))
        _check_url(body.url, state.settings)

        def act() -> Webhook:
            row, secret = tx.webhooks.create(
                body.url, body.model, types, body.format, principal.name
            )
            _audit(tx, "create_webhook", row)
            return _with_secret(row, secret)

        return run_once(tx, idempotency_key, "create_webhook", body, 201, Webhook, act)


@router.operation("GET", "", "admin", finds_model=True)
def list_webhooks(
    state: StateDependency, model: str | None = None, limit: Limit = 100, cursor: Cursor = None
) -> WebhookPage:
    """List webhooks."""
    current_principal().check_model(model)
    if model is not None:
        check_name("model", model)
    with state.registry.reading() as tx:
        rows = tx.webhooks.page(model, decode_cursor(cursor), limit + 1)
    return page_of(WebhookPage, rows, limit, lambda row: row.id)


@router.operation("GET", "/{webhook_id}", "admin", finds_model=True)
def get_webhook(webhook_id: str, state: StateDependency) -> Webhook:
    """Return a webhook, with the reason if it is disabled."""
    with state.registry.reading() as tx:
        return _visible(tx, webhook_id)


@router.operation("PATCH", "/{webhook_id}", "admin", finds_model=True)
def update_webhook(
    webhook_id: str,
    body: WebhookChange,
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Webhook:
    """Change the URL, or enable or disable a webhook."""
    with state.registry.transaction() as tx:
        _visible(tx, webhook_id)
        if body.url is not None:
            _check_url(body.url, state.settings)

        def act() -> Webhook:
            row = tx.webhooks.change(webhook_id, body.url, body.enabled)
            _audit(tx, "update_webhook", row)
            return row

        scope = f"update_webhook {webhook_id}"
        return run_once(tx, idempotency_key, scope, body, 200, Webhook, act)


@router.operation("POST", "/{webhook_id}/secret", "admin", finds_model=True)
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
        _visible(tx, webhook_id)

        def act() -> Webhook:
            row, secret = tx.webhooks.rotate_secret(webhook_id, body.overlap_seconds)
            _audit(tx, "rotate_webhook_secret", row)
            return _with_secret(row, secret)

        scope = f"rotate_webhook_secret {webhook_id}"
        return run_once(tx, idempotency_key, scope, body, 200, Webhook, act)


@router.operation("DELETE", "/{webhook_id}", "admin", finds_model=True)
def delete_webhook(
    webhook_id: str, state: StateDependency, idempotency_key: IdempotencyKey = None
) -> Webhook:
    """Remove a webhook and its delivery log; the answer is the webhook as it was."""
    with state.registry.transaction() as tx:

        def act() -> Webhook:
            row = _visible(tx, webhook_id)
            tx.webhooks.delete(webhook_id)
            _audit(tx, "delete_webhook", row)
            return row

        request = EmptyRequest(of=webhook_id)
        return run_once(tx, idempotency_key, "delete_webhook", request, 200, Webhook, act)


@router.operation("GET", "/{webhook_id}/deliveries", "admin", finds_model=True)
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
        id = _visible(tx, webhook_id).id
        rows = tx.webhooks.deliveries(id, delivery_state, before, limit + 1)
    return page_of(DeliveryPage, rows, limit, lambda row: str(row.event_id))


@router.operation(
    "POST", "/{webhook_id}/deliveries/{event_id}", "admin", finds_model=True, status_code=202
)
def redeliver(
    webhook_id: str,
    event_id: Annotated[int, Path(ge=1, le=2**63 - 1)],
    state: StateDependency,
    idempotency_key: IdempotencyKey = None,
) -> Webhook:
    """Send an event to a webhook again."""
    with state.registry.transaction() as tx:
        webhook, actor = _visible(tx, webhook_id), current_principal().name

        def act() -> Webhook:
            tx.webhooks.redeliver(webhook.id, event_id)
            detail = f"event {event_id}"
            tx.audit.record(actor, "redeliver", webhook.model, webhook.id, detail)
            return webhook

        request = EmptyRequest(of=str(event_id))
        scope = f"redeliver {webhook_id}"
        return run_once(tx, idempotency_key, scope, request, 202, Webhook, act)


def _visible(tx: Transaction, id: str) -> Webhook:
    """Return a webhook; for a principal of other models it does not exist."""
    webhook = tx.webhooks.get(id)
    try:
        current_principal().check_model(webhook.model)
    except ForbiddenError:
        raise NotFoundError("webhook", id) from None
    return webhook


def _check_url(url: str, settings: Settings) -> None:
    check_url(url, AllowedTargets(settings.webhook_targets))


def _audit(tx: Transaction, action: str, webhook: Webhook) -> None:
    # The path may contain a secret, as Slack's does.
    detail = f"{urlsplit(webhook.url).hostname}; {'enabled' if webhook.enabled else 'disabled'}"
    tx.audit.record(current_principal().name, action, webhook.model, webhook.id, detail)


def _with_secret(row: Webhook, secret: bytes) -> Webhook:
    return row.model_copy(update={"secret": encode_secret(secret)})


def _event_types(body: WebhookCreate) -> list[str]:
    check_event_types("types", body.types)
    if body.format != "alertmanager":
        return body.types
    if body.types not in ([], [STATE_CHANGED]):
        accepted = f"{STATE_CHANGED}, the only events of the format alertmanager"
        raise InputError("types", found=", ".join(body.types), accepted=accepted)
    return [STATE_CHANGED]
