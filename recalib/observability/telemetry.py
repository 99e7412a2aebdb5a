"""Traces for OpenTelemetry: a span for each request and each job, where an endpoint is set.

Where none is, nothing of OpenTelemetry is imported but the interface, which FastAPI imports by
itself, and what is asked is a comparison (`python -m benchmarks.telemetry`). A request's span has
the caller's `traceparent` as its parent; a job remembers the span that asked for it, so that its
own, in another process and later, belongs to the same trace.

Names are routes and kinds of jobs, never paths as they were sent; neither logits nor keys are told.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from recalib.errors import InputError
from recalib.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["begin", "carried", "check", "end", "failed", "is_on", "span", "start", "stop"]

_tracer: Tracer | None = None
_provider: Any = None
#: The span of this task's request or job.
_here: ContextVar[Span | None] = ContextVar("recalib_span", default=None)


def check(settings: Settings) -> None:
    """Raise `InputError` for an endpoint without what is needed to reach it."""
    names = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if settings.otlp_endpoint and not all(_is_installed(name) for name in names):
        raise InputError(
            "RECALIB_OTLP_ENDPOINT",
            found=f"{settings.otlp_endpoint!r} and no OpenTelemetry",
            accepted="none, or an installation with `pip install 'recalib[telemetry]'`",
        )


def start(settings: Settings, program: str) -> None:
    """Tell the settings' endpoint, if there is one, of this process's spans from now on.

    Parameters
    ----------
    program: what the process is called there.
    """
    global _tracer, _provider
    if not settings.otlp_endpoint or _tracer is not None:
        return
    check(settings)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    _provider = TracerProvider(resource=Resource.create({"service.name": program}))
    exporter = OTLPSpanExporter(endpoint=f"{settings.otlp_endpoint.rstrip('/')}/v1/traces")
    _provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer("recalib")


def stop() -> None:
    """Send what has not been sent yet, and tell nothing more."""
    global _tracer, _provider
    if _provider is not None:
        _provider.shutdown()
    _tracer = _provider = None


def is_on() -> bool:
    """Return whether anybody is told."""
    return _tracer is not None


def begin(parent: str | None) -> None:
    """Begin the span of this task's request; `end` names it.

    Parameters
    ----------
    parent: a `traceparent`, or None.
    """
    if _tracer is not None:
        _here.set(_started("request", parent))


def end(
    name: str,
    seconds: float,
    parent: str | None = None,
    error: str | None = None,
    **attributes: Any,
) -> None:
    """End this task's span, or tell of one that had none and took `seconds`.

    Parameters
    ----------
    error: what went wrong on our side, or None.
    """
    if _tracer is None:
        return
    one = _here.get()
    if one is None:
        one = _started(name, parent, time.time_ns() - int(seconds * 1e9))
    else:
        _here.set(None)
        one.update_name(name)
    one.set_attributes(attributes)
    if error is not None:
        _fail(one, error)
    one.end()


@contextmanager
def span(name: str, parent: str | None, **attributes: Any) -> Iterator[None]:
    """Tell of what is done in this block."""
    if _tracer is None:
        yield
        return
    one = _started(name, parent)
    one.set_attributes(attributes)
    before = _here.set(one)
    try:
        yield
    finally:
        _here.reset(before)
        one.end()


def failed(why: str) -> None:
    """Say that what this task's span is about has failed."""
    one = _here.get()
    if one is not None:
        _fail(one, why)


def carried() -> str | None:
    """Return the `traceparent` of this task's span, for a job that it asks for."""
    one = _here.get()
    if one is None:
        return None
    context = one.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _fail(one: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    one.set_status(Status(StatusCode.ERROR, why[:400]))


def _started(name: str, parent: str | None, at_ns: int | None = None) -> Span:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    assert _tracer is not None  # noqa: S101  (every caller has looked)
    sent = {} if parent is None else {"traceparent": parent}
    # What has no such form is no parent, as the standard has it.
    context = TraceContextTextMapPropagator().extract(sent)
    return _tracer.start_span(name, context, start_time=at_ns)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
