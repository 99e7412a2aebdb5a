"""Events, their receivers, and the audit trail."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from recalib.contract.base import Page, Resource, Time, one_of

DeliveryState = Literal["pending", "delivered", "dead"]


class Event(Resource):
    """A change."""

    #: Later events have larger ids.
    id: int
    #: When.
    at: Time
    #: `job.queued`, `job.started`, `job.requeued`, `job.succeeded`, `job.failed`, `job.cancelled`,
    #: `calibrator.published`, `alias.changed`, `monitoring.state_changed`, `monitoring.warned`,
    #: `candidate.promoted`, ...; later versions add types. `gap`: events before `data.first` that
    #: were not received are no longer held.
    type: str
    #: The model concerned.
    model: str | None
    #: Details, which depend on the type.
    data: dict[str, Any]


class EventPage(Page[Event]):
    """A page of events."""

    #: An event of the type `gap` if events after `after` are no longer held: `data` has `after` and
    #: `first`, the first id that is.
    gap: Event | None = None


class Webhook(Resource):
    """A receiver of events."""

    #: Id of the webhook.
    id: str
    #: Where events are sent.
    url: str
    #: Events of this model only; null for all.
    model: str | None
    #: Types of events, or their first words; empty for all.
    types: tuple[str, ...]
    #: Format of the messages.
    format: Annotated[str, one_of(Literal["recalib", "slack", "alertmanager"])]
    #: Whether events are sent.
    enabled: bool
    #: Why it is disabled; empty if it is enabled.
    reason: str
    #: Who created it.
    created_by: str
    #: When it was created.
    created_at: Time
    #: Signs messages; only the answers to its creation and rotation have it.
    secret: str | None = None
    #: When the last of the previous secrets ends or has ended; null without any.
    previous_secrets_until: Time | None = None


class WebhookPage(Page[Webhook]):
    """A page of webhooks, by id."""


class Delivery(Resource):
    """An event that a webhook gets."""

    #: Id of the event.
    event_id: int
    #: Type of the event; null if the event was deleted.
    type: str | None
    #: `pending`: it is sent at `next_attempt_at`; `delivered`: the receiver has accepted it;
    #: `dead`: the last attempt has failed.
    state: Annotated[str, one_of(DeliveryState)]
    #: Number of attempts.
    attempts: int
    #: When it was created.
    created_at: Time
    #: When the last attempt was made; null before the first.
    attempted_at: Time | None
    #: When the next attempt is made; null if there is none.
    next_attempt_at: Time | None
    #: HTTP status of the last answer.
    status: int | None
    #: Why the last attempt has failed.
    error: str


class DeliveryPage(Page[Delivery]):
    """A page of deliveries, newest events first."""


class AuditEntry(Resource):
    """An operation that was performed or refused."""

    #: Id of the entry.
    id: int
    #: When.
    at: Time
    #: An API key's name, a token's subject after `oidc` and a colon, a user after `cli` and a
    #: colon, `monitor`, or `anonymous` if no key is required.
    actor: str
    #: The operation id, or a similar name.
    action: str
    #: The model concerned.
    model: str | None
    #: The object: an alias, a data set, a job, a key.
    target: str
    #: Details in words, with the reason if there is one.
    detail: str
    #: Whether the operation was performed.
    result: Annotated[str, one_of(Literal["done", "refused"])]


class AuditPage(Page[AuditEntry]):
    """A page of entries, newest first."""
