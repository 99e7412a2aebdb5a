"""Responses for events."""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import BaseModel, Field

from recalib import registry
from service.schemas.field_types import Time
from service.times import iso

EventOrder = Literal["newest", "oldest"]


class Event(BaseModel):
    """A change."""

    id: int = Field(description="Later events have larger ids.")
    at: Time
    type: str = Field(
        description="`job.queued`, `job.started`, `job.requeued`, `job.succeeded`, `job.failed`, "
        "`job.cancelled`, `calibrator.published`, `alias.changed`, `monitoring.state_changed`, "
        "`candidate.promoted`, ...; later versions add types. `gap`: events before `data.first` "
        "that were not received are no longer held."
    )
    model: str | None = Field(description="The model concerned.")
    data: dict[str, Any] = Field(description="Details, which depend on the type.")

    @classmethod
    def gap(cls, after: int, first: int) -> Event:
        """Return the message that events between two ids are no longer held.

        Parameters
        ----------
        after: the last event that the consumer has.
        first: the first event that it can read.
        """
        reason = f"events {after + 1} to {first - 1} are no longer held"
        if after >= first:
            reason = f"the newest event is {first - 1}; a restored backup has fewer events"
        data = {"after": after, "first": first, "reason": reason}
        return cls(id=first - 1, at=iso(time.time()), type="gap", model=None, data=data)

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
    gap: Event | None = Field(
        None,
        description="An event of the type `gap` if events after `after` are no longer held: `data` "
        "has `after` and `first`, the first id that is.",
    )
