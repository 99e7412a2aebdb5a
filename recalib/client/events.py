"""Events: list them, and follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recalib.client.drivers import PAGE_SIZE, Listing
from recalib.client.errors import OverloadedError, RateLimitError, UnreachableError
from recalib.client.operations import Flow, Pause, Session
from recalib.client.retry import fetch, path
from recalib.contract.events import Event, EventPage

#: Errors after which events are followed further.
_TEMPORARY = (UnreachableError, OverloadedError, RateLimitError)
#: Between two requests without an event.
_POLL_SECONDS = 1.0


def list_events(
    *,
    models: Sequence[str] | str = (),
    types: Sequence[str] | str = (),
    after: int = 0,
    order: Literal["newest", "oldest"] = "newest",
) -> Listing[Event]:
    """Iterate over events: states of monitoring, jobs, versions and promotions.

    Parameters
    ----------
    models: names of models; by default all.
    types: types of events, or their first words: `job` for `job.failed`; by default all.
    after: the id of an event; only later events are returned.
    order: which events are first.

    If the server no longer holds all events after `after`, an event of the type `gap` stands in
    their place.
    """
    query = {**_filters(models, types), "after": str(after), "order": order}
    return _EventListing(EventPage, path("events"), query)


def events(
    *,
    models: Sequence[str] | str = (),
    types: Sequence[str] | str = (),
    after: int | None = None,
) -> Listing[Event]:
    """Iterate over events as they happen, without end; the server is asked each second.

    After an interruption, it goes on and misses no event that the server still has. An event of the
    type `gap`, for any `types`, reports that the server no longer has all of them. It raises an
    error if the first request fails after all retries, or if the server refuses it.

    Parameters
    ----------
    models, types: as for `list_events`.
    after: the id of the last event that you have; by default, only new events are returned.
    """
    return _NewEvents(EventPage, path("events"), _filters(models, types), after)


class _EventListing(Listing[Event]):
    """Events in pages, with the gap before the oldest of them."""

    def page(self, session: Session, cursor: str | None) -> Flow[EventPage]:
        """Return the page at `cursor`."""
        query = self.query_at(cursor)
        page = yield from fetch(session, EventPage, "GET", self.path, query=query)
        if page.gap is None:
            return page
        if self.query["order"] == "oldest":
            return EventPage(items=[page.gap, *page.items], next_cursor=page.next_cursor)
        is_last = page.next_cursor is None
        items = [*page.items, page.gap] if is_last else page.items
        return EventPage(items=items, next_cursor=page.next_cursor)


@dataclass(frozen=True)
class _NewEvents(Listing[Event]):
    """Events without end: the cursor is the id of the last event."""

    after: int | None = None

    def page(self, session: Session, cursor: str | None) -> Flow[EventPage]:
        """Return the events after those that were received, once there are some."""
        position, is_connected = cursor, cursor is not None
        while True:
            try:
                if position is None:
                    position = yield from self._start(session)
                query = {**self.query, "after": position, "order": "oldest"}
                query["limit"] = str(PAGE_SIZE)
                page = yield from fetch(session, EventPage, "GET", self.path, query=query)
            except _TEMPORARY:
                if not is_connected:
                    raise
                yield Pause(session.retries.longest_pause)
                continue
            is_connected = True
            events = page.items if page.gap is None else [page.gap, *page.items]
            if events:
                return EventPage(items=events, next_cursor=str(events[-1].id))
            yield Pause(_POLL_SECONDS)

    def _start(self, session: Session) -> Flow[str]:
        """Return the id after which the events begin: that of the newest, if none is given."""
        if self.after is not None:
            return str(self.after)
        query = {**self.query, "order": "newest", "limit": "1"}
        page = yield from fetch(session, EventPage, "GET", self.path, query=query)
        return str(page.items[0].id if page.items else 0)


def _filters(models: Sequence[str] | str, types: Sequence[str] | str) -> dict[str, list[str]]:
    values = {"model": models, "type": types}
    lists = {name: [item] if isinstance(item, str) else list(item) for name, item in values.items()}
    return {name: items for name, items in lists.items() if items}
