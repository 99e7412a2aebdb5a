"""How much one caller may ask for: requests and rows a second, requests at once, a body's bytes."""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from recalib.access import Principal
from recalib.errors import LimitedError, TooLargeError
from service.access.shared_usage import REQUESTS, ROWS, USAGE_FILE, SharedUsage
from service.metrics import LIMITED

__all__ = ["FailedAttempts", "Limiter"]

log = logging.getLogger(__name__)

#: Who has been quiet may ask at once for what would be his in so many seconds.
_BURST_SECONDS = 1.0
#: Wrong keys that an address may send at once, and how soon one more is let through.
_ATTEMPTS, _ATTEMPT_SECONDS = 30, 1.0
_ALLOWED_SECONDS = (_ATTEMPTS - 1) * _ATTEMPT_SECONDS
_MOST_ADDRESSES = 4096


class Limiter:
    """Keeps callers within their limits, over all processes of a server.

    What a caller has asked for is paid off in time: one is let in while he owes no more than a
    second's worth, however many rows he then brings, and the next waits until that is paid. So no
    batch is too large for ever, and in the long run nobody has more than his rate.
    """

    def __init__(
        self, ledger: SharedUsage | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # Made when the first caller is limited: where nobody is, it costs nothing.
        self._made = ledger
        self._clock = clock

    def take_rows(self, principal: Principal, rows: int) -> None:
        """Let rows of logits in; `LimitedError` where they have to wait."""
        if principal.limits is not None:
            self._take(principal, ROWS, principal.limits.rows_per_second, rows)

    def check_body(self, principal: Principal | None, size: int) -> None:
        """Return if a body may have so many bytes; `TooLargeError` otherwise."""
        most = (
            None if principal is None or principal.limits is None else principal.limits.body_bytes
        )
        if most and size > most:
            LIMITED.labels("body").inc()
            accepted = f"at most {most} bytes, as this key's limit is"
            raise TooLargeError("body", found=f"{size} bytes or more", accepted=accepted)

    def enter(self, principal: Principal) -> None:
        """Admit a request, which is concurrent until `leave`; `LimitedError` if over a limit."""
        if principal.limits is None:
            return
        self._check_running(principal)
        self._take(principal, REQUESTS, principal.limits.requests_per_second, 1)
        if principal.limits.concurrency:
            self._ledger.add_running(self._row(principal), 1)

    def leave(self, principal: Principal) -> None:
        """End a request that `enter` admitted."""
        if principal.limits is not None and principal.limits.concurrency:
            self._ledger.add_running(self._row(principal), -1)

    @property
    def _ledger(self) -> SharedUsage:
        if self._made is None:
            file = os.environ.get(USAGE_FILE)
            self._made = SharedUsage(Path(file) if file else None)
        return self._made

    def _row(self, principal: Principal) -> int:
        """Return where a caller's use is; whose limits are changed begins anew, and owes nothing.

        What he owes is kept as time, and an hour of a low rate would be an hour of a high one.
        """
        limits = principal.limits
        if limits is None:
            return self._ledger.row(principal.name)
        rates = (limits.requests_per_second, limits.rows_per_second)
        return self._ledger.row(f"{principal.name} {rates}")

    def _check_running(self, principal: Principal) -> None:
        most = None if principal.limits is None else principal.limits.concurrency
        if most and self._ledger.running(self._row(principal)) >= most:
            LIMITED.labels("concurrency").inc()
            raise LimitedError(f"{principal.name!r} has {most} requests in work, its limit", 1)

    def _take(self, principal: Principal, what: int, rate: float | None, count: int) -> None:
        if not rate:
            return
        row, now = self._row(principal), self._clock()
        until = max(self._ledger.until(row, what), now)
        if until - now >= _BURST_SECONDS:
            name = {REQUESTS: "requests", ROWS: "rows"}[what]
            LIMITED.labels(name).inc()
            wait = max(1, math.ceil(until - now - _BURST_SECONDS))
            raise LimitedError(f"{principal.name!r} may ask for {rate:g} {name} a second", wait)
        self._ledger.set_until(row, what, until + count / rate)


class FailedAttempts:
    """Counts wrong keys by the address that they come from, of so many addresses at most."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: When what an address has tried is forgotten; the one that tried last is last.
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def check(self, address: str) -> None:
        """Return if no more than usual has come from there of late; `LimitedError` otherwise."""
        now = self._clock()
        # What is forgotten takes no room, and nobody's time.
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        self._check(_network(address), now)

    def note(self, address: str) -> None:
        """Count one; `LimitedError` where there have been too many of late.

        Whatever was wrong with the key, which it does not tell apart. A good key is not asked about
        here: whoever shares an address with somebody who guesses is not locked out with him, and
        256 random bits are not guessed at any rate.
        """
        place, now = _network(address), self._clock()
        self._check(place, now)
        until = max(self._until.pop(place, now), now) + _ATTEMPT_SECONDS
        self._until[place] = until
        if until - now > _ALLOWED_SECONDS:
            log.warning(
                "Wrong keys keep coming from %s.", place, extra={"action": "attempts_limited"}
            )
        while len(self._until) > _MOST_ADDRESSES:
            self._until.popitem(last=False)

    def _check(self, place: str, now: float) -> None:
        over = self._until.get(place, now) - now - _ALLOWED_SECONDS
        if over > 0:
            LIMITED.labels("failed_attempts").inc()
            wait = max(1, math.ceil(over))
            raise LimitedError("too many wrong keys have come from this address", wait)


def _network(address: str) -> str:
    """Return the address, or the network that one customer has where it is IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a socket of this machine's, or none
        return "?"
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found.packed[:8] + bytes(8), 64)))
    return str(found)
