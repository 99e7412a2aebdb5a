"""The newest event, for the streams of a server process.

One task polls the id of the newest event while there are streams, and wakes all of them. Each
stream then reads its next page itself, and only after the client has taken the last one. A slow
client therefore takes no memory, and several server processes need no connection to each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator

from recalib.errors import LimitedError, UnavailableError
from recalib.registry import Registry
from service.metrics import LIMITED
from service.single_flight import SingleFlight

log = logging.getLogger(__name__)

#: When a refused client may try again.
_RETRY_SECONDS = 10


class EventFeed:
    """Wakes streams of events; used by the event loop of a server process only.

    Parameters
    ----------
    max_streams: the maximum number of concurrent streams. A caller has a quarter of them at most.
    """

    def __init__(self, registry: Registry, max_streams: int) -> None:
        self._registry = registry
        self._max_streams = max_streams
        self._share = max(1, max_streams // 4)
        self._streams: Counter[str | None] = Counter()
        self._newest = 0
        self._changed = asyncio.Event()
        #: Whether streams must end, because the server stops.
        self.is_closed = False
        self._single_flight: SingleFlight[int] = SingleFlight(1)

    @contextlib.contextmanager
    def stream(self, caller: str | None = None) -> Iterator[None]:
        """Hold a place for a stream; raise `LimitedError` if there are too many.

        Parameters
        ----------
        caller: name of its key or token; None: it has none, and no share.
        """
        if caller is not None and self._streams[caller] >= self._share:
            self._refuse(f"{caller!r} has {self._share} event streams, its share")
        if self._streams.total() >= self._max_streams:
            self._refuse(f"the server has {self._max_streams} event streams")
        self._streams[caller] += 1
        try:
            yield
        finally:
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]

    def _refuse(self, reason: str) -> None:
        LIMITED.labels("event_streams").inc()
        raise LimitedError(reason, _RETRY_SECONDS)

    async def wait(self, after: int, seconds: float) -> None:
        """Wait for an event with an id above `after`, for the end of the feed, or `seconds`."""
        changed = self._changed
        if self._newest <= after and not self.is_closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), seconds)

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        self._wake()

    async def keep_polling(self, seconds: float) -> None:
        """Poll the newest event at intervals, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            if not self._streams:
                continue
            try:
                newest = await self._single_flight.run("newest", self._read)
            except UnavailableError:
                continue
            except Exception:  # the loop must continue, or later events are missed
                log.exception("Events are not read.", extra={"action": "events_not_read"})
                continue
            if newest > self._newest:
                self._newest = newest
                self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _read(self) -> int:
        with self._registry.reading() as tx:
            return tx.events.last()
