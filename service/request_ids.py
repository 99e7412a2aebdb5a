"""What a request is called: in the log's lines about it, and in its answer's `X-Request-ID`.

The name that a client or a proxy gave is kept, so that one story can be followed through all logs:
its `X-Request-ID`, else the trace of its `traceparent` (W3C Trace Context), else one of ours. What
has another form is no name and is replaced, without a word: it must break neither logs nor answers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import count

from starlette.types import Message, Scope, Send

from recalib.observability import telemetry
from recalib.observability.logs import set_log_fields

__all__ = [
    "HEADER",
    "new_request_id",
    "request_id_of",
    "traceparent_of",
    "with_request_id",
]

HEADER = b"x-request-id"
_TRACE = b"traceparent"
_NAME = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

_made = count(1)
_process = ""


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the name of a request; headers are as ASGI has them."""
    trace = None
    for name, value in headers:
        if name == HEADER:
            if _NAME.fullmatch(value):
                return value.decode()
        elif name == _TRACE:
            trace = _TRACEPARENT.fullmatch(value)
    return new_request_id() if trace is None else trace[1].decode()


def traceparent_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return a request's `traceparent`, whatever stands there; None where nobody is told of it."""
    if not telemetry.is_enabled():
        return None
    return next((value.decode("latin-1") for name, value in headers if name == _TRACE), None)


def with_request_id(scope: Scope, send: Send) -> Send:
    """Say in this task's log what its request is called; return what says so in its answer.

    Until the task's end: uvicorn logs what comes out of the application in the same task.
    """
    if scope["type"] != "http":
        return send
    request_id = request_id_of(scope["headers"])
    set_log_fields(request_id=request_id)
    telemetry.start_request_span(traceparent_of(scope["headers"]))

    async def naming(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (HEADER, request_id.encode())]
            message = {**message, "headers": headers}
        await send(message)

    return naming


def new_request_id() -> str:
    """Return a name for a request that has none."""
    # A random name for the process and a number: names that are random throughout cost a
    # microsecond each.
    return f"{_process}{next(_made):08x}"


def _begin() -> None:
    global _process, _made
    _process, _made = os.urandom(8).hex(), count(1)


_begin()
# Server processes that are forked must not give the same names.
os.register_at_fork(after_in_child=_begin)
