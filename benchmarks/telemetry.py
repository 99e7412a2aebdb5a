"""The cost of tracing per request, with and without an exporter.

`python -m benchmarks.telemetry`: processor time that a small request spends on tracing, first
without an endpoint, then with an unreachable endpoint, in the same run. The second excludes the
background thread of OpenTelemetry.
"""

from __future__ import annotations

import logging
import time

from benchmarks.timing import Goal, interleaved
from recalib.observability import telemetry
from recalib.settings import Settings
from service.request_ids import traceparent_of

__all__ = ["run"]

_CALLS = 20_000
_HEADERS = {
    b"host": b"127.0.0.1:8000",
    b"accept": b"*/*",
    b"content-type": b"application/json",
    b"content-length": b"64",
    b"user-agent": b"benchmark",
    b"traceparent": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}


def run() -> list[Goal]:
    """Measure both; each result is the minimum of several runs."""
    off = _microseconds()
    # It logs that the endpoint is unreachable, as intended.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    telemetry.configure(Settings(otlp_endpoint="http://127.0.0.1:9"), "benchmark")
    on = _microseconds()
    telemetry.shutdown()
    return [
        Goal("traces off, microseconds a request", off, 1.0, True, f"; on: {on:.1f}"),
    ]


def _microseconds() -> float:
    def requests() -> None:
        for _ in range(_CALLS):
            parent = traceparent_of(_HEADERS)
            telemetry.start_request_span(parent)
            if telemetry.is_enabled():
                telemetry.end_request_span("POST /v1/models/{model}/calibrate", 1e-3, parent)

    return min(interleaved({"": requests}, 5, time.thread_time)[""]) / _CALLS * 1e6


if __name__ == "__main__":
    for goal in run():
        print(goal)
