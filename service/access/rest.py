"""Keys over HTTP: refused before a body is read, and once it is known what is asked for."""

from __future__ import annotations

import contextlib
import time

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from recalib.errors import LimitedError, RecalibError
from service.access.authenticator import Authenticator, set_principal
from service.access.permissions import OPEN_PATHS
from service.http.bodies import limit_body
from service.http.problems import error_response
from service.metrics import record_request
from service.state import StateDependency

__all__ = ["guard", "let_in"]

_HEADER = b"authorization"


async def let_in(
    app: ASGIApp, access: Authenticator, scope: Scope, receive: Receive, send: Send
) -> None:
    """Have `app` answer who is known and within his limits, and refuse others before the body."""
    if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
        await app(scope, receive, send)
        return
    started = time.perf_counter()
    given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
    with contextlib.ExitStack() as work:
        try:
            caller = await access.identified(given.decode("latin-1"), _address(scope))
            work.enter_context(access.limiter.entered(caller))
        except RecalibError as error:
            refusal = error_response(scope["path"], error)
            kind = "limited" if isinstance(error, LimitedError) else "unauthenticated"
            record_request(scope["method"], kind, refusal.status_code, started)
        else:
            most = None if caller.limits is None else caller.limits.body_bytes
            await app(scope, limit_body(scope, receive, most) if most else receive, send)
            return
    await refusal(scope, receive, send)


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else str(client[0])


async def guard(request: Request, state: StateDependency) -> None:
    """Let a request through to its endpoint where its key is for that."""
    operation = getattr(request.scope["route"], "operation_id", None) or ""
    given = request.headers.get("authorization", "")
    model = request.path_params.get("model")
    set_principal(state.access.check(given, operation, model))
