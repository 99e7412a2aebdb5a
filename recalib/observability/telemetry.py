"""OpenTelemetry traces: one span per request and per job, if an OTLP endpoint is set.

Without an endpoint, only the OpenTelemetry API is imported, which FastAPI imports anyway, and each
request costs one comparison. The span of a request continues the
caller's `traceparent`. A job stores the `traceparent` of the request that created it, so its span
belongs to the same trace, although it runs later and in another process.

Span names are route templates and kinds of jobs, never request paths. Spans contain neither logits
nor API keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from recalib.core.packages import is_installed
from recalib.errors import InputError
from recalib.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_MAX_ERROR_LENGTH = 400

_tracer: Tracer | None = None
_provider: Any = None
#: The span of the current request or job.
_current_span: ContextVar[Span | None] = ContextVar("recalib_span", default=None)


def check(settings: Settings) -> None:
    """Raise `InputError` if an endpoint is set and OpenTelemetry is not installed."""
    packages = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if settings.otlp_endpoint and not all(map(is_installed, packages)):
        raise InputError(
            "RECALIB_OTLP_ENDPOINT",
            found=f"{settings.otlp_endpoint!r} and no OpenTelemetry",
            accepted="none, or an installation with `pip install 'recalib[telemetry]'`",
        )


def configure(settings: Settings, service_name: str) -> None:
    """Send the spans of this process to the endpoint of the settings, if one is set.

    Parameters
    ----------
    service_name: the name of the process in traces.
    """
    global _tracer, _provider
    if not settings.otlp_endpoint or _tracer is not None:
        return
    check(settings)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    _provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    exporter = OTLPSpanExporter(endpoint=f"{settings.otlp_endpoint.rstrip('/')}/v1/traces")
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer("recalib")


def shutdown() -> None:
    """Send the remaining spans, and disable tracing."""
    global _tracer, _provider
    if _provider is not None:
        _provider.shutdown()
    _tracer = _provider = None


def is_enabled() -> bool:
    """Return whether spans are sent."""
    return _tracer is not None


def start_request_span(traceparent: str | None) -> None:
    """Start the span of the current request; `end_request_span` names and ends it.

    Parameters
    ----------
    traceparent: the parent span, as the caller sends it, or None.
    """
    if _tracer is not None:
        _current_span.set(_start("request", traceparent))


def end_request_span(
    name: str,
    seconds: float,
    traceparent: str | None = None,
    error: str | None = None,
    **attributes: Any,
) -> None:
    """End the span of the current request; without one, send a span that took `seconds`.

    Parameters
    ----------
    error: what failed in the server, or None.
    """
    if _tracer is None:
        return
    span = _current_span.get()
    if span is None:
        span = _start(name, traceparent, time.time_ns() - int(seconds * 1e9))
    else:
        _current_span.set(None)
        span.update_name(name)
    span.set_attributes(attributes)
    if error is not None:
        _set_error(span, error)
    span.end()


@contextmanager
def span(name: str, traceparent: str | None, **attributes: Any) -> Iterator[None]:
    """Record this block as a span."""
    if _tracer is None:
        yield
        return
    block_span = _start(name, traceparent)
    block_span.set_attributes(attributes)
    token = _current_span.set(block_span)
    try:
        yield
    finally:
        _current_span.reset(token)
        block_span.end()


def mark_failed(reason: str) -> None:
    """Set the status of the current span to an error."""
    span = _current_span.get()
    if span is not None:
        _set_error(span, reason)


def current_traceparent() -> str | None:
    """Return the `traceparent` of the current span, for a job that the request creates."""
    span = _current_span.get()
    if span is None:
        return None
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _set_error(span: Span, reason: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, reason[:_MAX_ERROR_LENGTH]))


def _start(name: str, traceparent: str | None, start_ns: int | None = None) -> Span:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    assert _tracer is not None  # noqa: S101  (every caller checks it)
    headers = {} if traceparent is None else {"traceparent": traceparent}
    # A malformed value is ignored, as the W3C standard requires.
    context = TraceContextTextMapPropagator().extract(headers)
    return _tracer.start_span(name, context, start_time=start_ns)
