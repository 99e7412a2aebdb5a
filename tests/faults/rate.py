"""A client that asks for twice as many requests as its key may send."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator

from recalib.core.access import Limits
from recalib.registry import Registry
from tests.end_to_end.programs import Server

__all__ = ["RateCheck"]

_RATE = 8.0
_THREADS = 4
#: An idle caller may use the allowance of this many seconds at once.
_BURST_SECONDS = 1.0


class RateCheck:
    """Counts requests that are admitted, over all processes of a server."""

    def __init__(self, registry: Registry) -> None:
        with registry.transaction() as tx:
            limits = Limits(requests_per_second=_RATE)
            secret = tx.api_keys.create("limited", ["admin"], limits=limits)
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._times: list[float] = []
        self._begun = 0.0

    @contextlib.contextmanager
    def demand(self, server: Server) -> Iterator[None]:
        """Send requests during the block."""
        self._times, self._begun = [], time.monotonic()
        stop = threading.Event()
        address = server.url.removeprefix("http://")
        threads = [
            threading.Thread(target=self._ask, args=(address, stop)) for _ in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def deviation(self) -> float:
        """Return how many more requests than the limit the last block had, as a share of it."""
        if not self._times:
            return -1.0
        seconds = max(self._times) - self._begun
        return len(self._times) / (_RATE * (seconds + _BURST_SECONDS)) - 1

    def _ask(self, address: str, stop: threading.Event) -> None:
        while not stop.wait(_THREADS / (2 * _RATE)):
            # A connection for each request, so that every process has some.
            connection = http.client.HTTPConnection(address, timeout=10)
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection.request("GET", "/v1/models/digits", headers=self._headers)
                if connection.getresponse().status == 200:
                    self._times.append(time.monotonic())
            connection.close()
