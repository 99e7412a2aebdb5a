"""A short way to the one request that comes thousands of times a second.

FastAPI's routing and dependencies take longer than parsing, calibrating and answering a row
together (`benchmarks/serving.py`). So the application hands calibrate requests straight to the
endpoint; FastAPI's own route to the same function stands beside it, and documents it.
"""

from __future__ import annotations

import time
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from service.predict.rest import respond
from service.state import State
from service.transport.bodies import read_body
from service.transport.instruments import note
from service.transport.problems import problem_of

__all__ = ["calibrate", "model_of"]

_PREFIX, _SUFFIX = "/v1/models/", "/calibrate"
_ROUTE = "/v1/models/{model}/calibrate"


def model_of(scope: Scope) -> str | None:
    """Return the model whose calibrate request this is, or None if it is another request."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    if not (path.startswith(_PREFIX) and path.endswith(_SUFFIX)):
        return None
    name = path[len(_PREFIX) : -len(_SUFFIX)]
    return name if name and "/" not in name else None


async def calibrate(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a calibrate request; `scope` has the model in its path parameters."""
    started = time.perf_counter()
    state: State = scope["app"].state.recalib
    status = 200
    try:
        body = await read_body(receive, state.settings.max_body_bytes)
        query = dict(
            parse_qsl(scope["query_string"].decode("latin-1")) if scope["query_string"] else ()
        )
        content_type, accept = _headers(scope)
        model = scope["path_params"]["model"]
        answer, kind = await respond(state, model, query, content_type, accept, body)
    except ClientDisconnect:
        return
    except Exception as error:
        problem = problem_of(error)
        status = problem.status_code
        await problem(scope, receive, send)
    else:
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
    note("POST", _ROUTE, status, started)


def _headers(scope: Scope) -> tuple[str, str]:
    """Return Content-Type and Accept."""
    content_type = accept = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"accept":
            accept = value
    return content_type.decode("latin-1"), accept.decode("latin-1")
