"""Tables of events and webhooks."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
)

from recalib.registry.tables.base import METADATA, Json, Key, Name

events = Table(
    "events",
    METADATA,
    # From `event_sequence`: `recalib.registry.events` says why it is not a sequence.
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False, index=True),
    Column("type", String(64), nullable=False),
    # A name, not a foreign key: an event outlives its model.
    Column("model", Name),
    Column("data", Json, nullable=False),
    Index("ix_events_model_id", "model", "id"),
)

# One row: the id of the newest event.
event_sequence = Table("event_sequence", METADATA, Column("last", Key, nullable=False))

webhooks = Table(
    "webhooks",
    METADATA,
    Column("id", String(32), primary_key=True),
    Column("url", Text, nullable=False),
    # Events of this model only; null for all.
    Column("model", Name),
    # Types of events, or their first words; empty for all.
    Column("types", Json, nullable=False),
    Column("format", String(16), nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("enabled", Boolean, nullable=False),
    # Why it is disabled.
    Column("reason", Text, nullable=False),
    # Events up to this id have deliveries.
    Column("position", Key, nullable=False),
    # Attempts in a row that got no answer, and when the next one may be made.
    Column("failures", Integer, nullable=False),
    Column("retry_at", Double),
    Column("lease_expires", Double),
    Column("fence", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    # Earlier secrets in hexadecimal, each with the time at which it ends; newest first.
    Column("previous_secrets", Json),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    METADATA,
    Column("webhook_id", String(32), ForeignKey("webhooks.id"), primary_key=True),
    # No foreign key: events are deleted by age.
    Column("event_id", Key, primary_key=True, autoincrement=False),
    # `pending`, `delivered` or `dead`.
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("attempted_at", Double),
    # The HTTP status of the last answer, and the reason of the last failure.
    Column("status", Integer),
    Column("error", Text, nullable=False),
    Index("ix_webhook_deliveries_state_next_attempt_at", "state", "next_attempt_at"),
)
