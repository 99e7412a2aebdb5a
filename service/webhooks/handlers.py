"""Operations on webhooks, independent of the transport."""

from __future__ import annotations

from urllib.parse import urlsplit

from recalib import registry
from recalib.contract.events import Webhook
from recalib.errors import ForbiddenError, InputError, NotFoundError
from recalib.registry import Transaction
from recalib.registry import Webhook as WebhookRow
from recalib.settings import Settings
from recalib.webhooks import AllowedTargets, check_url, encode_secret
from recalib.webhooks.formats import STATE_CHANGED
from service.access.authenticator import current_principal
from service.idempotency import EmptyRequest, run_once
from service.schemas.event_types import check_event_types
from service.webhooks.schemas import SecretRotation, WebhookChange, WebhookCreate


def create_webhook(
    tx: Transaction, settings: Settings, create: WebhookCreate, key: str | None
) -> Webhook:
    """Add a webhook; only this answer has its secret.

    Raises
    ------
    NotFoundError: the model does not exist.
    ForbiddenError: the principal is restricted to other models.
    InputError: the URL or a type is not accepted.
    ConflictError: there are too many webhooks.
    """
    principal = current_principal()
    principal.check_model(create.model)
    if create.model is not None:
        # Held: a new name of the model reaches the webhooks that exist.
        tx.models.hold(tx.models.get(create.model))
    check_event_types("types", create.types)
    types = create.types
    if create.format == "alertmanager":
        if types not in ([], [STATE_CHANGED]):
            accepted = f"{STATE_CHANGED}, the only events of the format alertmanager"
            raise InputError("types", found=", ".join(types), accepted=accepted)
        types = [STATE_CHANGED]
    _check_url(create.url, settings)

    def act() -> Webhook:
        row, secret = tx.webhooks.create(
            create.url, create.model, types, create.format, principal.name
        )
        _audit(tx, "create_webhook", row)
        return _with_secret(row, secret)

    return run_once(tx, key, "create_webhook", create, 201, Webhook, act)


def update_webhook(
    tx: Transaction, settings: Settings, id: str, change: WebhookChange, key: str | None
) -> Webhook:
    """Change a webhook's URL, or enable or disable it.

    Raises
    ------
    NotFoundError: it does not exist.
    InputError: the URL is not accepted.
    """
    visible_webhook(tx, id)
    if change.url is not None:
        _check_url(change.url, settings)

    def act() -> Webhook:
        row = tx.webhooks.change(id, change.url, change.enabled)
        _audit(tx, "update_webhook", row)
        return Webhook.model_validate(row)

    return run_once(tx, key, f"update_webhook {id}", change, 200, Webhook, act)


def rotate_webhook_secret(
    tx: Transaction, id: str, rotation: SecretRotation, key: str | None
) -> Webhook:
    """Replace the secret of a webhook; only this answer has the new one.

    Raises
    ------
    NotFoundError: the webhook does not exist.
    ConflictError: too many previous secrets have not ended.
    """
    visible_webhook(tx, id)

    def act() -> Webhook:
        row, secret = tx.webhooks.rotate_secret(id, rotation.overlap_seconds)
        _audit(tx, "rotate_webhook_secret", row)
        return _with_secret(row, secret)

    return run_once(tx, key, f"rotate_webhook_secret {id}", rotation, 200, Webhook, act)


def delete_webhook(tx: Transaction, id: str, key: str | None) -> Webhook:
    """Remove a webhook and its delivery log; return it as it was."""

    def act() -> Webhook:
        row = visible_webhook(tx, id)
        tx.webhooks.delete(id)
        _audit(tx, "delete_webhook", row)
        return Webhook.model_validate(row)

    return run_once(tx, key, "delete_webhook", EmptyRequest(of=id), 200, Webhook, act)


def redeliver(tx: Transaction, id: str, event_id: int, key: str | None) -> Webhook:
    """Send an event to a webhook again, also a delivered one; return the webhook.

    A disabled webhook gets it when it is enabled.

    Raises
    ------
    NotFoundError: the webhook does not exist, or was never sent the event.
    """
    webhook = visible_webhook(tx, id)

    def act() -> Webhook:
        tx.webhooks.redeliver(webhook.id, event_id)
        tx.audit.record(
            current_principal().name, "redeliver", webhook.model, webhook.id, f"event {event_id}"
        )
        return Webhook.model_validate(webhook)

    request = EmptyRequest(of=str(event_id))
    return run_once(tx, key, f"redeliver {id}", request, 202, Webhook, act)


def visible_webhook(tx: Transaction, id: str) -> WebhookRow:
    """Return a webhook; for a principal of other models it does not exist."""
    webhook = tx.webhooks.get(id)
    try:
        current_principal().check_model(webhook.model)
    except ForbiddenError:
        raise NotFoundError("webhook", id) from None
    return webhook


def _check_url(url: str, settings: Settings) -> None:
    check_url(url, AllowedTargets(settings.webhook_targets))


def _audit(tx: Transaction, action: str, webhook: WebhookRow) -> None:
    # The path may contain a secret, as Slack's does.
    detail = f"{urlsplit(webhook.url).hostname}; {'enabled' if webhook.enabled else 'disabled'}"
    tx.audit.record(current_principal().name, action, webhook.model, webhook.id, detail)


def _with_secret(row: registry.Webhook, secret: bytes) -> Webhook:
    return Webhook.model_validate({**vars(row), "secret": encode_secret(secret)})
