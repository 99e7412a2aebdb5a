"""Request ids, for log lines and the response header `X-Request-ID`.

The id is the request's `X-Request-ID`, else the trace id of its `traceparent` (W3C Trace Context),
else a new one: a request can be followed through the logs of client, proxy and server. An invalid
value is ignored without an error, since an id must break neither logs nor responses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import count

from recalib.observability import telemetry

HEADER = b"x-request-id"
_TRACE = b"traceparent"
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

_counter = count(1)
_prefix = ""


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the id of a request.

    Parameters
    ----------
    headers: by lower-case name.
    """
    id = headers.get(HEADER)
    if id is not None and _ID.fullmatch(id):
        return id.decode()
    trace = headers.get(_TRACE)
    match = None if trace is None else _TRACEPARENT.fullmatch(trace)
    return new_request_id() if match is None else match[1].decode()


def traceparent_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return a request's `traceparent`, unchecked; None if traces are not exported."""
    value = headers.get(_TRACE) if telemetry.is_enabled() else None
    return None if value is None else value.decode("latin-1")


def new_request_id() -> str:
    """Return a new id."""
    # A random prefix for the process and a counter: an all-random id costs a microsecond.
    return f"{_prefix}{next(_counter):08x}"


def _reset() -> None:
    global _prefix, _counter
    _prefix, _counter = os.urandom(8).hex(), count(1)


_reset()
# Forked server processes must not create equal ids.
os.register_at_fork(after_in_child=_reset)
