"""A short way to the requests that come thousands of times a second.

FastAPI's routing and dependencies take longer than parsing, calibrating and answering a row
together (`benchmarks/serving`). So the application hands these requests straight to their
endpoints. FastAPI's own routes lead to the same endpoints, by `through`, and document them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import parse_qsl

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from service.state import State
from service.transport.bodies import read_body
from service.transport.instruments import note
from service.transport.problems import answer_to

__all__ = ["Answer", "Asked", "Endpoint", "ShortWays", "through"]


class Asked(NamedTuple):
    """What an endpoint sees of a request."""

    #: What stands in the path at each of the template's names.
    path: Mapping[str, str]
    query: Mapping[str, str]
    #: By names in lower case.
    headers: Mapping[bytes, bytes]
    body: bytes

    def header(self, name: bytes) -> str:
        """Return a header, empty where there is none."""
        return self.headers.get(name, b"").decode("latin-1")


class Answer(NamedTuple):
    """An answer with status 200."""

    body: bytes
    media_type: bytes
    #: Others than its type and length.
    headers: tuple[tuple[bytes, bytes], ...] = ()


Endpoint = Callable[[State, Asked], Awaitable[Answer]]


class _Way(NamedTuple):
    template: str
    pattern: re.Pattern[str]
    endpoint: Endpoint


class ShortWays:
    """Endpoints of POST requests by the template of their paths.

    Parameters
    ----------
    endpoints: by templates such as `/v1/models/{model}/calibrate`; a name may have a pattern of
        its own, `{version:[1-9][0-9]*}`, else it takes anything but a slash. What matches no
        template is FastAPI's to answer.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        # By the last part of the path: most requests that are not for here end otherwise.
        self._ways: dict[str, list[_Way]] = {}
        for written, endpoint in endpoints.items():
            pattern = re.sub(
                r"\{(\w+)(?::([^}]+))?\}", lambda m: f"(?P<{m[1]}>{m[2] or '[^/]+'})", written
            )
            template = re.sub(r"\{(\w+):[^}]+\}", r"{\1}", written)
            way = _Way(template, re.compile(pattern), endpoint)
            self._ways.setdefault(written.rpartition("/")[2], []).append(way)

    def find(self, scope: Scope) -> Callable[[State, Receive, Send], Awaitable[None]] | None:
        """Return what answers the request, or None where it is not for here."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        path: str = scope["path"]
        for way in self._ways.get(path.rpartition("/")[2], ()):
            match = way.pattern.fullmatch(path)
            if match is not None:
                return partial(_answer, way, match.groupdict(), scope)
        return None


async def through(request: Request, endpoint: Endpoint) -> Response:
    """Answer a request that came by FastAPI's routing."""
    asked = _asked(request.scope, request.path_params, await request.body())
    answer = await endpoint(request.app.state.recalib, asked)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    return Response(answer.body, headers=headers, media_type=answer.media_type.decode())


async def _answer(
    way: _Way, path: Mapping[str, str], scope: Scope, state: State, receive: Receive, send: Send
) -> None:
    started = time.perf_counter()
    status = 200
    try:
        body = await read_body(receive, state.settings.max_body_bytes)
        answer = await way.endpoint(state, _asked(scope, path, body))
    except ClientDisconnect:
        # Nobody reads it; the status, which others use for this as well, is what is counted.
        status = 499
    except Exception as error:
        refusal = answer_to(scope["path"], error)
        status = refusal.status_code
        await refusal(scope, receive, send)
    else:
        headers = [
            (b"content-type", answer.media_type),
            (b"content-length", b"%d" % len(answer.body)),
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
    note("POST", way.template, status, started)


def _asked(scope: Scope, path: Mapping[str, str], body: bytes) -> Asked:
    text: bytes = scope["query_string"]
    query = dict(parse_qsl(text.decode("latin-1"))) if text else {}
    given: list[tuple[bytes, bytes]] = scope["headers"]
    headers = dict(given)
    if len(headers) < len(given):  # one that came twice is one list, RFC 9110, 5.2
        headers = {}
        for name, value in given:
            headers[name] = headers[name] + b", " + value if name in headers else value
    return Asked(path, query, headers, body)
