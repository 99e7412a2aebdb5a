"""Prometheus metrics of requests, latencies and rows.

Labels hold route templates, names of existing models and states, never the path of a request.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from recalib.observability import telemetry
from recalib.observability.logs import ACCESS

_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60
)  # fmt: skip


class _Durations(Histogram):
    """A histogram that finds the bucket by bisection: several times as fast as a scan."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Observe `amount` seconds; exemplars are ignored."""
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)


REQUESTS = Counter("recalib_http_requests", "Requests answered.", ["method", "route", "status"])
LATENCY = _Durations(
    "recalib_http_request_duration_seconds",
    "Time from a request's arrival to its answer's end.",
    ["method", "route"],
    buckets=_BUCKETS,
)
RPCS = Counter("recalib_grpc_requests", "RPCs ended.", ["method", "code"])
RPC_LATENCY = _Durations(
    "recalib_grpc_request_duration_seconds",
    "Time from an RPC's arrival to its end.",
    ["method"],
    buckets=_BUCKETS,
)
CALIBRATED_ROWS = Counter(
    "recalib_calibrated_rows", "Rows of logits calibrated.", ["model", "calibrator"]
)
LIMITED = Counter(
    "recalib_limited_requests", "Requests refused because their caller had a limit.", ["limit"]
)
LABELS = Counter("recalib_labels", "Late labels by what became of them.", ["model", "status"])


#: What counts a request, and what observes its seconds.
_Children = tuple[Callable[[float], None], Callable[[float], None]]
#: gRPC codes of server errors.
_SERVER_ERROR_CODES = ("INTERNAL", "DATA_LOSS", "UNAVAILABLE", "UNKNOWN")


def record_request(method: str, route: str, status: int, started: float) -> None:
    """Count an HTTP request, log its access line, and end its span.

    Parameters
    ----------
    route: the template of the path.
    started: the time of arrival, by `time.perf_counter`.
    """
    increment, observe = _http_children(method, route, status)
    seconds = time.perf_counter() - started
    increment(1)
    observe(seconds)
    if ACCESS.isEnabledFor(logging.INFO):
        _log_access(method, route, status, seconds)
    if telemetry.is_enabled():
        http = {"http.request.method": method, "http.response.status_code": status}
        error = str(status) if status >= 500 else None
        attributes = {**http, "http.route": route}
        telemetry.end_request_span(f"{method} {route}", seconds, None, error, **attributes)


def _log_access(method: str, route: str, result: int | str, seconds: float) -> None:
    milliseconds = round(seconds * 1000, 3)
    fields = {"method": method, "route": route, "status": result, "milliseconds": milliseconds}
    ACCESS.info("%s %s: %s", method, route, result, extra={"action": "request", **fields})


# Cached: looking up labels takes microseconds.
@lru_cache(maxsize=4096)
def _http_children(method: str, route: str, status: int) -> _Children:
    # The value, because the counter's own `inc` checks its labels and the amount each time.
    count = REQUESTS.labels(method, route, str(status))._value.inc
    return count, LATENCY.labels(method, route).observe


def record_rpc(method: str, code: str, started: float) -> None:
    """Count a finished RPC, log its access line, and end its span; arguments as above."""
    count, observe = _rpc_children(method, code)
    seconds = time.perf_counter() - started
    count(1)
    observe(seconds)
    if ACCESS.isEnabledFor(logging.INFO):
        _log_access("RPC", method, code, seconds)
    if telemetry.is_enabled():
        error = code if code in _SERVER_ERROR_CODES else None
        rpc = {"rpc.system": "grpc", "rpc.grpc.status_code": code}
        telemetry.end_request_span(method.lstrip("/"), seconds, None, error, **rpc)


@lru_cache(maxsize=4096)
def _rpc_children(method: str, code: str) -> _Children:
    return RPCS.labels(method, code)._value.inc, RPC_LATENCY.labels(method).observe


class _FixedCollector(Collector):
    """Metric families that were read elsewhere."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Any]:
        return self._families


def exposition(families: Iterable[Any], models: Collection[str] | None = None) -> bytes:
    """Return all metrics in Prometheus' text format, summed over the server processes.

    Parameters
    ----------
    families: further metric families, which are not counted per process.
    models: leave out all samples but those of these models; None: all samples.
    """
    collectors: list[Collector] = [REGISTRY]
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        collectors = [MultiProcessCollector(CollectorRegistry())]  # type: ignore[no-untyped-call]
    collectors.append(_FixedCollector(families))
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector if models is None else _OfModels(collector, models))
    return generate_latest(registry)


class _OfModels(Collector):
    """The samples of another collector that are of some models."""

    def __init__(self, collector: Collector, models: Collection[str]) -> None:
        self._collector, self._models = collector, models

    def collect(self) -> Iterable[Any]:
        for family in self._collector.collect():
            family.samples = [
                sample for sample in family.samples if sample.labels.get("model") in self._models
            ]
            if family.samples:
                yield family
