"""How many requests and RPCs a server process has in progress before it refuses others.

The limit follows the lag of the event loop: a callback that is due runs late if requests occupy the
loop. The limit is halved while the lag is too long, and grows back in steps. HTTP requests and RPCs
are counted separately.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from recalib.errors import LimitedError
from recalib.settings import Settings
from service.metrics import LIMITED
from service.operations import OPERATIONS, Operation

#: Message to a refused client, and the metrics that count them.
OVERLOAD = "the server has too many requests in progress"
_SHED = LIMITED.labels("load")
_ADDRESS = LIMITED.labels("address")

#: Refusals per second: reading and refusing a request takes much less time than an answer.
_MAX_REFUSALS = 1_600
#: Time before a refusal is sent. With more connections than 1,440, refusals are more frequent.
_MIN_HOLD_SECONDS, _MAX_HOLD_SECONDS = 0.25, 0.9
_BEAT_SECONDS = 0.05
_MAX_LAG_SECONDS = 0.2
#: The limit does not fall below this, unless it is set lower, and grows by it.
_STEP = 16


class LoadShedding:
    """The limit of a server process; used by its event loop only."""

    def __init__(self, settings: Settings) -> None:
        self._max_requests = settings.max_requests
        #: The current limit.
        self.limit = self._max_requests
        #: The limit of reserved operations: health, metrics and labels.
        self.reserved_limit = self._max_requests + max(_STEP, self._max_requests // 4)
        #: HTTP requests that wait for their body. They hold no place.
        self.waiting = 0
        self._held = 0
        self._reserved = [
            item.pattern
            for item in OPERATIONS.values()
            if item.path and (item.is_reserved or item.scope == "open")
        ]
        self._rpcs = 0
        self._address_rpcs = settings.address_rpcs
        self._rpcs_by_address: Counter[str] = Counter()

    def has_place(self, tasks: int, url: bytes) -> bool:
        """Return whether a request may go on.

        Parameters
        ----------
        tasks: the number of requests whose heads had arrived before.
        """
        in_progress = tasks - self.waiting
        if in_progress < self.limit:
            return True
        path = url.partition(b"?")[0].decode("latin-1")
        is_reserved = any(pattern.fullmatch(path) for pattern in self._reserved)
        return is_reserved and in_progress < self.reserved_limit

    def check_rpc(self, operation: Operation) -> None:
        """Raise `LimitedError` if there is no place for an RPC."""
        limit = self.reserved_limit if operation.is_reserved else self.limit
        if self._rpcs >= limit:
            _SHED.inc()
            raise LimitedError(OVERLOAD, 1)

    @contextlib.contextmanager
    def count_rpc(self, operation: Operation) -> Iterator[None]:
        """Hold a place for an RPC; raise as `check_rpc`."""
        self.check_rpc(operation)
        self._rpcs += 1
        try:
            yield
        finally:
            self._rpcs -= 1

    @contextlib.contextmanager
    def count_rpc_of(self, address: str) -> Iterator[None]:
        """Hold a place among the RPCs of an IP address; raise `LimitedError` if there is none."""
        if self._rpcs_by_address[address] >= self._address_rpcs:
            _ADDRESS.inc()
            raise LimitedError("this address has too many RPCs in progress", 1)
        self._rpcs_by_address[address] += 1
        try:
            yield
        finally:
            self._rpcs_by_address[address] -= 1
            if not self._rpcs_by_address[address]:
                del self._rpcs_by_address[address]

    def hold(self) -> float:
        """Count a refused HTTP request; return the seconds that it waits, longer if many wait."""
        _SHED.inc()
        self._held += 1
        seconds = max(_MIN_HOLD_SECONDS, self._held / _MAX_REFUSALS)
        return min(seconds, _MAX_HOLD_SECONDS)

    def release(self, count: int) -> None:
        """Count refused requests that are answered."""
        self._held -= count

    def adjust(self, lag: float) -> None:
        """Set the limit after a callback ran `lag` seconds late."""
        if lag > _MAX_LAG_SECONDS:
            self.limit = max(min(_STEP, self._max_requests), self.limit // 2)
        else:
            self.limit = min(self._max_requests, self.limit + _STEP)

    async def keep_measuring(self) -> None:
        """Follow the lag of the event loop, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            self.adjust(loop.time() - due)
