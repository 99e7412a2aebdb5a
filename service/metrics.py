"""What Prometheus sees of the front end: requests, latencies, rows.

Labels hold route templates, model names that exist and states; never a path as it was sent.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recalib.observability import telemetry
from recalib.observability.logs import ACCESS

__all__ = [
    "CALIBRATED_ROWS",
    "LABELS",
    "LIMITED",
    "Instrumented",
    "exposition",
    "record_request",
    "record_requests",
    "record_rpc",
]

_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60
)  # fmt: skip


class _Count(Counter):
    """A counter that adds without looking each time whether it may."""

    def adding(self) -> Callable[[float], None]:
        """Return what adds to a child, never less than nothing."""
        add: Callable[[float], None] = self._value.inc
        return add


class _Durations(Histogram):
    """A histogram that takes several observations for little more than one takes."""

    def observe_all(self, seconds: Sequence[float]) -> None:
        """Observe each of them."""
        self._sum.inc(sum(seconds))
        counts: dict[int, int] = {}
        for one in seconds:
            place = bisect_left(self._upper_bounds, one)
            counts[place] = counts.get(place, 0) + 1
        for place, count in counts.items():
            self._buckets[place].inc(count)


REQUESTS = _Count("recalib_http_requests", "Requests answered.", ["method", "route", "status"])
LATENCY = _Durations(
    "recalib_http_request_duration_seconds",
    "Time from a request's arrival to its answer's end.",
    ["method", "route"],
    buckets=_BUCKETS,
)
RPCS = Counter("recalib_grpc_requests", "RPCs ended.", ["method", "code"])
RPC_LATENCY = Histogram(
    "recalib_grpc_request_duration_seconds",
    "Time from an RPC's arrival to its end.",
    ["method"],
    buckets=_BUCKETS,
)
CALIBRATED_ROWS = _Count(
    "recalib_calibrated_rows", "Rows of logits calibrated.", ["model", "calibrator"]
)
LIMITED = Counter(
    "recalib_limited_requests", "Requests refused because their caller had a limit.", ["limit"]
)
LABELS = Counter("recalib_labels", "Late labels by what became of them.", ["model", "status"])


#: What an RPC ends with by a fault of ours.
_OUR_CODES = ("INTERNAL", "DATA_LOSS", "UNAVAILABLE", "UNKNOWN")


class Instrumented:
    """Middleware that counts and times every request under its route's template."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            # A path that matches nothing has no template; its text must not become a label.
            route = getattr(scope.get("route"), "path", "unmatched")
            record_request(scope["method"], route, status, started)


def record_request(
    method: str,
    route: str,
    status: int,
    started: float,
    request_id: str | None = None,
    parent: str | None = None,
) -> None:
    """Count a request that came at `started`, by `time.perf_counter`, and has been answered.

    Parameters
    ----------
    request_id: what it is called, where the log does not know from its task.
    parent: its `traceparent`, where its span was not begun as its task was.
    """
    record_requests(method, route, status, [(started, request_id, parent)])


def record_requests(
    method: str, route: str, status: int, requests: Sequence[tuple[float, str | None, str | None]]
) -> None:
    """Do the same for several, each with `started`, `request_id` and `parent`."""
    count, observe_all = _children(method, route, status)
    now = time.perf_counter()
    count(len(requests))
    observe_all([now - started for started, *_ in requests])
    if ACCESS.isEnabledFor(logging.INFO):
        for started, request_id, _ in requests:
            _log_access(method, route, status, now - started, request_id)
    if telemetry.is_enabled():
        http = {"http.request.method": method, "http.response.status_code": status}
        error = str(status) if status >= 500 else None
        for started, _, parent in requests:
            seconds = now - started
            attributes = {**http, "http.route": route}
            telemetry.end_request_span(f"{method} {route}", seconds, parent, error, **attributes)


def _log_access(
    method: str, route: str, result: int | str, seconds: float, request_id: str | None = None
) -> None:
    milliseconds = round(seconds * 1000, 3)
    fields = {"method": method, "route": route, "status": result, "milliseconds": milliseconds}
    if request_id is not None:
        fields["request_id"] = request_id
    ACCESS.info("%s %s: %s", method, route, result, extra={"action": "request", **fields})


@lru_cache(maxsize=4096)
def _children(
    method: str, route: str, status: int
) -> tuple[Callable[[float], None], Callable[[Sequence[float]], None]]:
    """Return what counts and what times; looking labels up anew takes microseconds."""
    durations = LATENCY.labels(method, route)
    return REQUESTS.labels(method, route, str(status)).adding(), durations.observe_all


def record_rpc(method: str, code: str, started: float) -> None:
    """Count an RPC that came at `started`, by `time.perf_counter`, and has ended."""
    count, observe = _rpc_children(method, code)
    seconds = time.perf_counter() - started
    count()
    observe(seconds)
    if ACCESS.isEnabledFor(logging.INFO):
        _log_access("RPC", method, code, seconds)
    if telemetry.is_enabled():
        error = code if code in _OUR_CODES else None
        rpc = {"rpc.system": "grpc", "rpc.grpc.status_code": code}
        telemetry.end_request_span(method.lstrip("/"), seconds, None, error, **rpc)


@lru_cache(maxsize=4096)
def _rpc_children(method: str, code: str) -> tuple[Callable[[], None], Callable[[float], None]]:
    return RPCS.labels(method, code).inc, RPC_LATENCY.labels(method).observe


class _Found(Collector):
    """Metrics that somebody else has found."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Any]:
        return self._families


def exposition(found: Iterable[Any]) -> bytes:
    """Return all metrics in Prometheus' text format, those of every server process added up.

    Parameters
    ----------
    found: families of metrics that are not counted by processes.
    """
    collectors = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(collectors)  # type: ignore[no-untyped-call]
        own = b""
    else:
        own = generate_latest()
    collectors.register(_Found(found))
    return own + generate_latest(collectors)
