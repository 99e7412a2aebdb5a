"""Webhooks: create, list, change and delete them, and read what they were sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from recalib.client.drivers import Listing
from recalib.client.operations import Flow, Session
from recalib.client.retry import fetch, path, without_none
from recalib.contract.base import Page
from recalib.contract.events import Delivery, Webhook


def create_webhook(
    session: Session,
    url: str,
    *,
    model: str | None = None,
    types: Sequence[str] | str = (),
    format: Literal["recalib", "slack", "alertmanager"] = "recalib",
) -> Flow[Webhook]:
    """Send later events to a URL; only this result has the `secret` that signs the messages.

    Parameters
    ----------
    model: send events of this model only; by default of all.
    types: types of events, or their first words; by default all.
    format: of the messages.

    Raises
    ------
    InvalidRequestError: the URL is not a public address, and the server's settings do not list it.
    ResourceNotFoundError: no such model.
    """
    types = [types] if isinstance(types, str) else list(types)
    json = {"url": url, "model": model, "types": types, "format": format}
    return fetch(session, Webhook, "POST", path("webhooks"), json=json)


def list_webhooks(*, model: str | None = None) -> Listing[Webhook]:
    """Iterate over webhooks, or over those of a model."""
    return Listing(Page[Webhook], path("webhooks"), without_none(model=model))


def get_webhook(session: Session, webhook: str) -> Flow[Webhook]:
    """Return a webhook by its id.

    Raises
    ------
    ResourceNotFoundError: no such webhook.
    """
    return fetch(session, Webhook, "GET", path("webhooks", webhook))


def update_webhook(
    session: Session, webhook: str, *, url: str | None = None, enabled: bool | None = None
) -> Flow[Webhook]:
    """Change the URL of a webhook, or enable or disable it; None keeps a value.

    An enabled webhook continues after the last event that it was sent.
    """
    json = {"url": url, "enabled": enabled}
    return fetch(session, Webhook, "PATCH", path("webhooks", webhook), json=json)


def rotate_webhook_secret(
    session: Session, webhook: str, *, overlap_seconds: float = 86_400.0
) -> Flow[Webhook]:
    """Replace the secret of a webhook; only this result has the new `secret`.

    Parameters
    ----------
    overlap_seconds: how long the present secret signs messages too, up to 30 days; the receiver
        changes its secret in this time. 0 ends all previous secrets.

    Raises
    ------
    ResourceNotFoundError: no such webhook.
    ResourceConflictError: too many previous secrets have not ended.
    """
    where, json = path("webhooks", webhook, "secret"), {"overlap_seconds": overlap_seconds}
    return fetch(session, Webhook, "POST", where, json=json)


def delete_webhook(session: Session, webhook: str) -> Flow[Webhook]:
    """Remove a webhook and its delivery log; return the webhook as it was."""
    return fetch(session, Webhook, "DELETE", path("webhooks", webhook))


def list_deliveries(
    webhook: str, *, state: Literal["pending", "delivered", "dead"] | None = None
) -> Listing[Delivery]:
    """Iterate over what a webhook was sent, those of the newest events first."""
    query = without_none(delivery_state=state)
    return Listing(Page[Delivery], path("webhooks", webhook, "deliveries"), query)


def redeliver(session: Session, webhook: str, event: int) -> Flow[Webhook]:
    """Send an event to a webhook again; return the webhook.

    Raises
    ------
    ResourceNotFoundError: no such webhook, or it was never sent this event.
    """
    where = path("webhooks", webhook, "deliveries", str(event))
    return fetch(session, Webhook, "POST", where)
