"""Requests and responses for webhooks."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from recalib import registry
from recalib.registry import DeliveryState
from recalib.webhooks import Format
from service.schemas.field_types import Text, Time
from service.times import iso


class WebhookCreate(BaseModel):
    """A request for a webhook."""

    model_config = ConfigDict(extra="forbid")

    url: Text = Field(max_length=2_000, description="An http or https URL with a public address.")
    model: Text | None = Field(
        None, description="Events of this model only; by default of all, and of no model."
    )
    types: list[Text] = Field(
        [], description="Types of events, or their first words: `job` for `job.failed`."
    )
    format: Format = Field(
        "recalib",
        description="`recalib`: the event as in the API; `slack`: a line of text; "
        "`alertmanager`: as Alertmanager's webhooks, for changes of a monitoring state.",
    )


class WebhookChange(BaseModel):
    """A change of a webhook; a field that is absent or null keeps its value."""

    model_config = ConfigDict(extra="forbid")

    url: Text | None = Field(None, max_length=2_000)
    enabled: bool | None = Field(
        None, description="An enabled webhook continues after the last event that it was sent."
    )


class SecretRotation(BaseModel):
    """A request to replace the secret."""

    model_config = ConfigDict(extra="forbid")

    overlap_seconds: float = Field(
        86_400.0,
        ge=0,
        le=2_592_000,
        allow_inf_nan=False,
        description="How long the present secret signs messages too. 0 ends all previous secrets, "
        "for a secret that others know.",
    )


class Webhook(BaseModel):
    """A receiver of events."""

    id: str
    url: str
    model: str | None
    types: list[str]
    format: Format
    enabled: bool
    reason: str = Field(description="Why it is disabled; empty if it is enabled.")
    created_by: str
    created_at: Time
    secret: str | None = Field(
        None,
        description="Signs messages; only the answers to its creation and rotation have it.",
    )
    previous_secrets_until: Time | None = Field(
        None,
        description="When the last of the previous secrets ends or has ended; null without any.",
    )

    @classmethod
    def of(cls, webhook: registry.Webhook, secret: str | None = None) -> Webhook:
        """Return the wire form of a webhook."""
        until = webhook.previous_secrets_until
        return cls(
            id=webhook.id,
            url=webhook.url,
            model=webhook.model,
            types=webhook.types,
            format=webhook.format,
            enabled=webhook.enabled,
            reason=webhook.reason,
            created_by=webhook.created_by,
            created_at=iso(webhook.created_at),
            secret=secret,
            previous_secrets_until=None if until is None else iso(until),
        )


class WebhookPage(BaseModel):
    """A page of webhooks, by id."""

    items: list[Webhook]
    next_cursor: str | None


class Delivery(BaseModel):
    """An event that a webhook gets."""

    event_id: int
    type: str | None = Field(description="Type of the event; null if the event was deleted.")
    state: DeliveryState = Field(
        description="`pending`: it is sent at `next_attempt_at`; `delivered`: the receiver has "
        "accepted it; `dead`: the last attempt has failed."
    )
    attempts: int
    created_at: Time
    attempted_at: Time | None
    next_attempt_at: Time | None
    status: int | None = Field(description="HTTP status of the last answer.")
    error: str = Field(description="Why the last attempt has failed.")

    @classmethod
    def of(cls, delivery: registry.Delivery) -> Delivery:
        """Return the wire form of a delivery."""
        attempted_at, is_pending = delivery.attempted_at, delivery.state == "pending"
        return cls(
            event_id=delivery.event_id,
            type=delivery.type,
            state=delivery.state,
            attempts=delivery.attempts,
            created_at=iso(delivery.created_at),
            attempted_at=None if attempted_at is None else iso(attempted_at),
            next_attempt_at=iso(delivery.next_attempt_at) if is_pending else None,
            status=delivery.status,
            error=delivery.error,
        )


class DeliveryPage(BaseModel):
    """A page of deliveries, newest events first."""

    items: list[Delivery]
    next_cursor: str | None
