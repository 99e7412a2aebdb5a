"""Keys over HTTP: refused before a body is read, and once it is known what is asked for."""

from __future__ import annotations

import time

from fastapi import Request, Response
from starlette.types import Scope

from recalib.errors import RecalibError
from service.access.access import Access, begin
from service.access.rules import OPEN_PATHS
from service.state import StateOf
from service.transport.instruments import note
from service.transport.problems import answer_to

__all__ = ["guard", "refused"]

_HEADER = b"authorization"


async def refused(access: Access, scope: Scope) -> Response | None:
    """Return the answer to a request of somebody unknown, or None where it is not refused."""
    if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
        return None
    started = time.perf_counter()
    given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
    try:
        await access.identified(given.decode("latin-1"))
    except RecalibError as error:
        answer = answer_to(scope["path"], error)
        note(scope["method"], "unauthenticated", answer.status_code, started)
        return answer
    return None


async def guard(request: Request, state: StateOf) -> None:
    """Let a request through to its endpoint where its key is for that."""
    operation = getattr(request.scope["route"], "operation_id", None) or ""
    given = request.headers.get("authorization", "")
    model = request.path_params.get("model")
    begin(state.access.check(given, operation, model))
