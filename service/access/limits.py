"""Limits of each caller: requests and rows per second, concurrent requests, bytes of a body."""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from recalib.core.access import Principal
from recalib.errors import LimitedError, TooLargeError
from service.access.shared_usage import REQUESTS, ROWS, USAGE_FILE, SharedUsage
from service.metrics import LIMITED

log = logging.getLogger(__name__)

#: Burst: an idle caller may use the allowance of this many seconds at once.
_BURST_SECONDS = 1.0
#: Wrong keys that an address may send at once, and the time after which one more is allowed.
_MAX_ATTEMPTS, _ATTEMPT_SECONDS = 30, 1.0
_ALLOWED_SECONDS = (_MAX_ATTEMPTS - 1) * _ATTEMPT_SECONDS
_MAX_ADDRESSES = 4096


class Limiter:
    """Enforces the limits of callers, over all processes of a server.

    Rates follow the generic cell rate algorithm: each use moves the caller's paid-up time ahead
    by count / rate seconds, and a request is admitted while that time is less than the burst
    ahead of now. A single batch of any size is therefore admitted, the requests after it wait,
    and the long-run rate never exceeds the limit.
    """

    def __init__(
        self, usage: SharedUsage | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # Created for the first caller with a limit: without limits it costs nothing.
        self._usage = usage
        self._clock = clock

    def take_rows(self, principal: Principal, rows: int) -> None:
        """Admit rows of logits; raise `LimitedError` if the caller exceeds its rate."""
        if principal.limits is not None:
            self._take(principal, ROWS, principal.limits.rows_per_second, rows)

    def check_body(self, principal: Principal | None, size: int) -> None:
        """Raise `TooLargeError` if a body of `size` bytes exceeds the caller's limit."""
        limit = (
            None if principal is None or principal.limits is None else principal.limits.body_bytes
        )
        if limit and size > limit:
            LIMITED.labels("body").inc()
            accepted = f"at most {limit} bytes, as this key's limit is"
            raise TooLargeError("body", found=f"{size} bytes or more", accepted=accepted)

    def enter(self, principal: Principal) -> None:
        """Admit a request, which is concurrent until `leave`; `LimitedError` if over a limit."""
        if principal.limits is None:
            return
        self._check_running(principal)
        self._take(principal, REQUESTS, principal.limits.requests_per_second, 1)
        if principal.limits.concurrency:
            self._shared_usage.add_running(self._row(principal), 1)

    def leave(self, principal: Principal) -> None:
        """End a request that `enter` admitted."""
        if principal.limits is not None and principal.limits.concurrency:
            self._shared_usage.add_running(self._row(principal), -1)

    @property
    def _shared_usage(self) -> SharedUsage:
        if self._usage is None:
            file = os.environ.get(USAGE_FILE)
            self._usage = SharedUsage(Path(file) if file else None)
        return self._usage

    def _row(self, principal: Principal) -> int:
        """Return the caller's row in the shared usage; a change of its rates starts a new row.

        Use is stored as time, so a debt at a low rate would be too large at a higher one.
        """
        limits = principal.limits
        if limits is None:
            return self._shared_usage.row(principal.name)
        rates = (limits.requests_per_second, limits.rows_per_second)
        return self._shared_usage.row(f"{principal.name} {rates}")

    def _check_running(self, principal: Principal) -> None:
        limit = None if principal.limits is None else principal.limits.concurrency
        if limit and self._shared_usage.running(self._row(principal)) >= limit:
            LIMITED.labels("concurrency").inc()
            raise LimitedError(f"{principal.name!r} has {limit} requests in work, its limit", 1)

    def _take(self, principal: Principal, kind: int, rate: float | None, count: int) -> None:
        if not rate:
            return
        row, now = self._row(principal), self._clock()
        until = max(self._shared_usage.until(row, kind), now)
        if until - now >= _BURST_SECONDS:
            name = {REQUESTS: "requests", ROWS: "rows"}[kind]
            LIMITED.labels(name).inc()
            wait = max(1, math.ceil(until - now - _BURST_SECONDS))
            raise LimitedError(f"{principal.name!r} is limited to {rate:g} {name} a second", wait)
        self._shared_usage.set_until(row, kind, until + count / rate)


class FailedAttempts:
    """Counts wrong keys by network address, for a limited number of addresses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: When the failures of an address expire; the most recent address is last.
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def check(self, address: str) -> None:
        """Raise `LimitedError` if the address has sent too many wrong keys recently."""
        now = self._clock()
        # Expired entries are removed here, so that they take no memory.
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        self._check(_network(address), now)

    def note(self, address: str) -> None:
        """Count a wrong key; raise `LimitedError` if there have been too many recently.

        The reason for which the key was refused does not matter. Callers with a valid key are not
        checked: they may share the address with an attacker, and no rate is high enough to guess
        256 random bits.
        """
        network, now = _network(address), self._clock()
        self._check(network, now)
        until = max(self._until.pop(network, now), now) + _ATTEMPT_SECONDS
        self._until[network] = until
        if until - now > _ALLOWED_SECONDS:
            log.warning(
                "Wrong keys keep coming from %s.", network, extra={"action": "attempts_limited"}
            )
        while len(self._until) > _MAX_ADDRESSES:
            self._until.popitem(last=False)

    def _check(self, network: str, now: float) -> None:
        over = self._until.get(network, now) - now - _ALLOWED_SECONDS
        if over > 0:
            LIMITED.labels("failed_attempts").inc()
            wait = max(1, math.ceil(over))
            raise LimitedError("too many wrong keys from this address", wait)


def _network(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 one: one customer usually has that."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket, or no address
        return "?"
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:  # as a socket for IPv4 and IPv6 names IPv4 clients
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip.packed[:8] + bytes(8), 64)))
    return str(ip)
