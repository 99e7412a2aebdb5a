"""Responses for events."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from recalib import registry
from service.times import iso

__all__ = ["Event", "EventOrder", "EventPage"]

EventOrder = Literal["newest", "oldest"]


class Event(BaseModel):
    """A change."""

    id: int = Field(description="Later events have larger ids.")
    at: str = Field(description="ISO 8601, UTC.")
    type: str = Field(
        description="`job.queued`, `job.started`, `job.requeued`, `job.succeeded`, `job.failed`, "
        "`job.cancelled`, `calibrator.published`, `alias.changed`, `monitoring.state_changed`, "
        "`candidate.promoted`, ...; later versions add types."
    )
    model: str | None = Field(description="The model concerned.")
    data: dict[str, Any] = Field(description="Details, which depend on the type.")

    @classmethod
    def of(cls, event: registry.Event) -> Event:
        """Return the wire form of an event."""
        return cls(
            id=event.id, at=iso(event.at), type=event.type, model=event.model, data=event.data
        )


class EventPage(BaseModel):
    """A page of events."""

    items: list[Event]
    next_cursor: str | None
