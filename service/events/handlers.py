"""Operations on events, independent of the transport."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from anyio import to_thread

from recalib.contract.events import Event, EventPage
from recalib.errors import InputError, UnavailableError
from recalib.registry import Registry, Transaction, check_name
from service.access.authenticator import current_principal
from service.event_feed import EventFeed
from service.pagination import decode_number, next_cursor
from service.schemas import check_event_types

EventOrder = Literal["newest", "oldest"]

#: Largest id of the database.
MAX_EVENT_ID = 2**63 - 1
_MAX_MODELS = 100
#: Events that a stream reads at once.
_PAGE_EVENTS = 100
#: Pause of a stream while the registry is unreachable.
_RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class EventFilter:
    """Names of models and types of events; empty for all."""

    models: Sequence[str] = ()
    types: Sequence[str] = ()

    def check(self) -> None:
        """Raise unless the caller may see these events.

        Raises
        ------
        InputError: a name or a type has no valid form, or there are too many of them.
        ForbiddenError: the caller may not see one of the models, or no model is named.
        """
        if len(self.models) > _MAX_MODELS:
            found, accepted = f"{len(self.models)} models", f"at most {_MAX_MODELS}"
            raise InputError("model", found=found, accepted=accepted)
        check_event_types("type", self.types)
        principal = current_principal()
        for model in self.models:
            principal.check_model(check_name("model", model))
        if not self.models:
            principal.check_model(None)

    def page(
        self,
        tx: Transaction,
        limit: int,
        after: int,
        before: int | None = None,
        *,
        newest_first: bool = False,
    ) -> list[Event]:
        """Return up to `limit` events with ids between `after` and `before`."""
        return tx.events.page(
            limit,
            after=after,
            before=before,
            models=self.models or None,
            types=self.types or None,
            newest_first=newest_first,
        )


def list_events(
    tx: Transaction,
    selected: EventFilter,
    after: int,
    order: EventOrder,
    limit: int,
    cursor: str | None,
) -> EventPage:
    """Return a page of events after the id `after`.

    A principal that is restricted to some models must name models.
    """
    selected.check()
    position, before = decode_number(cursor), None
    if order == "newest":
        before = position
    elif position is not None:
        after = position
    events = selected.page(tx, limit + 1, after, before, newest_first=order == "newest")
    following = next_cursor(events, limit, lambda event: str(event.id))
    first = tx.events.gap(after)
    gap = None if first is None else _gap(after, first)
    return EventPage(items=events[:limit], next_cursor=following, gap=gap)


class StreamStep(NamedTuple):
    """What a stream sends next: some events, or none after a time without events."""

    events: list[Event]
    #: Where a later stream continues: its `after`.
    position: int


class EventStream:
    """Events as they happen.

    Parameters
    ----------
    after: the id of the last event that the consumer has; None for only new events.

    Raises
    ------
    InputError, ForbiddenError: as `EventFilter.check`.
    """

    def __init__(
        self,
        registry: Registry,
        feed: EventFeed,
        selected: EventFilter,
        after: int | None,
    ) -> None:
        selected.check()
        self._registry = registry
        self._feed = feed
        self._selected = selected
        if after is None:
            with registry.reading() as tx:
                after = tx.events.last()
        #: The id up to which the consumer has all events.
        self.position = after

    async def steps(self, heartbeat_seconds: float) -> AsyncIterator[StreamStep]:
        """Yield events until the server stops.

        The first step is immediate, and later ones at most `heartbeat_seconds` apart; these may be
        empty.
        """
        due = time.monotonic()
        while not self._feed.is_closed:
            try:
                events, is_complete = await to_thread.run_sync(self._read)
            except UnavailableError:  # the consumer could do no better than to wait
                events, is_complete = [], False
                await asyncio.sleep(_RETRY_SECONDS)
            if events or time.monotonic() >= due:
                yield StreamStep(events, self.position)
                due = time.monotonic() + heartbeat_seconds
            if is_complete:
                await self._feed.wait(self.position, max(0.0, due - time.monotonic()))

    def _read(self) -> tuple[list[Event], bool]:
        """Return the next events, and whether there are no more."""
        with self._registry.reading() as tx:
            first = tx.events.gap(self.position)
            if first is not None:  # not filtered: the lost events are unknown
                gap = _gap(self.position, first)
                self.position = gap.id
                return [gap], False
            events = self._selected.page(tx, _PAGE_EVENTS, self.position)
            last = tx.events.last()
        is_complete = len(events) < _PAGE_EVENTS
        # The newest event may not match the filter; it need not be read again.
        self.position = max(self.position, last if is_complete else events[-1].id)
        return events, is_complete


def _gap(after: int, first: int) -> Event:
    """Return the message that events between the last that a consumer has and `first` are gone."""
    reason = f"events {after + 1} to {first - 1} are no longer held"
    if after >= first:
        reason = f"the newest event is {first - 1}; a restored backup has fewer events"
    data = {"after": after, "first": first, "reason": reason}
    return Event(id=first - 1, at=datetime.now(UTC), type="gap", model=None, data=data)
