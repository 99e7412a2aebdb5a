"""Events: list them, and follow them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import msgspec

from recalib.client.drivers import Following, Listing
from recalib.client.errors import MalformedAnswerError
from recalib.client.operations import Flow, Request, Response, Session
from recalib.client.results import Event, Page
from recalib.client.retry import path
from recalib.decoding import decoder_of

__all__ = ["events", "list_events"]

#: The server sends something at least every 15 seconds.
_SILENCE_SECONDS = 60.0


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
    return _EventListing(Page[Event], path("events"), query)


def events(
    *,
    models: Sequence[str] | str = (),
    types: Sequence[str] | str = (),
    after: int | None = None,
) -> Following[Event]:
    """Iterate over events as they happen, without end.

    After an interruption, it connects again and misses no event that the server still has. An event
    of the type `gap`, for any `types`, reports that the server no longer has all of them. It raises
    an error if the first connection fails after all retries, or if the server refuses it.

    Parameters
    ----------
    models, types: as for `list_events`.
    after: the id of the last event that you have; by default, only new events are returned.
    """
    return _Events(_filters(models, types), after)


class _EventListing(Listing[Event]):
    """Events in pages, with the gap before the oldest of them."""

    def page(self, session: Session, cursor: str | None) -> Flow[Page[Event]]:
        """Return the page at `cursor`."""
        page = yield from super().page(session, cursor)
        if page.gap is None:
            return page
        if self.query["order"] == "oldest":
            return Page([page.gap, *page.items], page.next_cursor)
        is_last = page.next_cursor is None
        return Page([*page.items, page.gap] if is_last else page.items, page.next_cursor)


class _Events(Following[Event]):
    """The position of an iteration over events."""

    def __init__(self, filters: dict[str, list[str]], after: int | None) -> None:
        self._filters = filters
        self._position = None if after is None else str(after)
        self._is_connected = False
        self._failures = 0

    def request(self) -> Request:
        """Return the request for the events after those that were received."""
        query = self._filters | ({} if self._position is None else {"after": self._position})
        return Request("GET", path("events", "stream"), query, seconds=_SILENCE_SECONDS)

    def read(self, data: str, id: str) -> Event | None:
        """Return the event of a message; None if it only has a position."""
        self._is_connected, self._failures = True, 0
        event = None
        if data:
            try:
                event = decoder_of(Event).decode(data)
            except msgspec.DecodeError as error:
                response = Response(self.request(), 200, {}, b"")
                raise MalformedAnswerError(response, f"cannot be read: {error}") from None
        self._position = id or self._position
        return event

    def pause(self, session: Session, error: Exception | None) -> float:
        """Return the seconds until the next connection; raise `error` if there is none."""
        self._failures += 1
        retries = session.retries
        if error is not None and not self._is_connected and self._failures >= retries.attempts:
            raise error
        bound = min(retries.longest_pause, retries.first_pause * 2.0 ** min(self._failures - 1, 60))
        return random.uniform(0, bound)  # noqa: S311  (no secret)


def _filters(models: Sequence[str] | str, types: Sequence[str] | str) -> dict[str, list[str]]:
    values = {"model": models, "type": types}
    lists = {name: [item] if isinstance(item, str) else list(item) for name, item in values.items()}
    return {name: items for name, items in lists.items() if items}
