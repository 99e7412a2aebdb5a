"""What a request is called: in the log's lines about it, and in its answer's `X-Request-ID`.

The name that a client or a proxy gave is kept, so that one story can be followed through all logs:
its `X-Request-ID`, else the trace of its `traceparent` (W3C Trace Context), else one of ours. What
has another form is no name and is replaced, without a word: it must break neither logs nor answers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import count

from recalib.observability import telemetry

__all__ = ["HEADER", "new_request_id", "request_id_of", "traceparent_of"]

HEADER = b"x-request-id"
_TRACE = b"traceparent"
_NAME = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

_made = count(1)
_process = ""


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of a request from its headers, by lower-case name."""
    name = headers.get(HEADER)
    if name is not None and _NAME.fullmatch(name):
        return name.decode()
    trace = headers.get(_TRACE)
    match = None if trace is None else _TRACEPARENT.fullmatch(trace)
    return new_request_id() if match is None else match[1].decode()


def traceparent_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return a request's `traceparent`, unchecked; None if traces are not exported."""
    value = headers.get(_TRACE) if telemetry.is_enabled() else None
    return None if value is None else value.decode("latin-1")


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
