"""A short way to the requests that come thousands of times a second.

FastAPI's routing and dependencies take longer than parsing, calibrating and answering a row
together (`benchmarks/serving`). So the application hands these requests straight to their
endpoints, and those that are there in one piece are answered before they become ASGI's at all
(`service.http.fast_protocol`). FastAPI's own routes lead to the same endpoints, by `through`, and
document them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from service.http.bodies import read_body
from service.http.problems import error_response
from service.metrics import record_request
from service.state import State

__all__ = [
    "LEFT",
    "Answer",
    "Asked",
    "Endpoint",
    "Joint",
    "Later",
    "ShortWays",
    "Way",
    "asked_of",
    "by_name",
    "through",
]

#: How a request is counted that its client did not wait for, as others do too.
LEFT = 499


class Asked(msgspec.Struct, frozen=True):
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


class Answer(msgspec.Struct, frozen=True):
    """An answer with status 200."""

    body: bytes
    media_type: bytes
    #: Others than its type and length.
    extra: tuple[tuple[bytes, bytes], ...] = ()
    #: What follows the body, as it lies in memory, so that no array has to be copied.
    rest: bytes | memoryview = b""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """All of its headers."""
        length = (b"content-length", b"%d" % (len(self.body) + len(self.rest)))
        return [(b"content-type", self.media_type), length, *self.extra]

    @property
    def whole(self) -> bytes:
        """The body with the rest."""
        return b"".join((self.body, self.rest))


class Joint(msgspec.Struct, frozen=True):
    """An answer that costs less together with others."""

    #: From the parts of several requests to their answers; works that are equal may be joined.
    work: Callable[[list[Any]], list[Answer]]
    part: Any


#: An answer that has to be waited for.
Later = Callable[[], Awaitable[Answer]]
#: What answers a request, at once where it can. Where it only says how, nothing is done yet.
Endpoint = Callable[[State, Asked], Answer | Joint | Later]


class Way(NamedTuple):
    """Where a path leads."""

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
        self._ways: dict[str, list[Way]] = {}
        for written, endpoint in endpoints.items():
            pattern = re.sub(
                r"\{(\w+)(?::([^}]+))?\}", lambda m: f"(?P<{m[1]}>{m[2] or '[^/]+'})", written
            )
            template = re.sub(r"\{(\w+):[^}]+\}", r"{\1}", written)
            way = Way(template, re.compile(pattern), endpoint)
            self._ways.setdefault(written.rpartition("/")[2], []).append(way)
        #: The way, what the path names and the query, by the target of a POST request as it stands
        #: in the request line; None where it is not for here, or is not in its simplest form.
        self.of_target = lru_cache(maxsize=4096)(self._of_target)

    def find(self, scope: Scope) -> Callable[[State, Receive, Send], Awaitable[None]] | None:
        """Return what answers the request, or None where it is not for here."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        found = self._of_path(scope["path"])
        return None if found is None else partial(_answer, *found, scope)

    def _of_path(self, path: str) -> tuple[Way, dict[str, str]] | None:
        for way in self._ways.get(path.rpartition("/")[2], ()):
            match = way.pattern.fullmatch(path)
            if match is not None:
                return way, match.groupdict()
        return None

    def _of_target(self, target: bytes) -> tuple[Way, Mapping[str, str], Mapping[str, str]] | None:
        if not target.isascii() or target[:1] != b"/" or b"#" in target:
            return None
        path, _, query = target.partition(b"?")
        found = None if b"%" in path else self._of_path(path.decode())
        return None if found is None else (*found, _query(query))


async def through(request: Request, endpoint: Endpoint) -> Response:
    """Answer a request that came by FastAPI's routing."""
    scope = request.scope
    query = _query(scope["query_string"])
    asked = asked_of(request.path_params, query, scope["headers"], await request.body())
    answer = await _answered(endpoint, request.app.state.recalib, asked)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    return Response(answer.whole, headers=headers)


def asked_of(
    path: Mapping[str, str],
    query: Mapping[str, str],
    given: Iterable[tuple[bytes, bytes]],
    body: bytes,
) -> Asked:
    """Return what an endpoint sees; headers are as ASGI has them."""
    return Asked(path, query, by_name(given), body)


def by_name(given: Iterable[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """Return headers by name, of those that ASGI has."""
    headers: dict[bytes, bytes] = {}
    for name, value in given:
        # One that came twice is one list, RFC 9110, 5.2.
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


async def _answered(endpoint: Endpoint, state: State, asked: Asked) -> Answer:
    answer = endpoint(state, asked)
    if isinstance(answer, Answer):
        return answer
    return answer.work([answer.part])[0] if isinstance(answer, Joint) else await answer()


async def _answer(
    way: Way, path: Mapping[str, str], scope: Scope, state: State, receive: Receive, send: Send
) -> None:
    started = time.perf_counter()
    status = 200
    try:
        body = await read_body(receive, state.settings.max_body_bytes)
        asked = asked_of(path, _query(scope["query_string"]), scope["headers"], body)
        answer = await _answered(way.endpoint, state, asked)
    except ClientDisconnect:
        status = LEFT  # nobody reads it
    except Exception as error:
        refusal = error_response(scope["path"], error)
        status = refusal.status_code
        await refusal(scope, receive, send)
    else:
        await send({"type": "http.response.start", "status": 200, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.whole})
    record_request("POST", way.template, status, started)


def _query(text: bytes) -> Mapping[str, str]:
    """Return values by name; a name that comes again is another, which nobody accepts."""
    if not text:
        return {}
    found: dict[str, str] = {}
    # What is said with nothing behind it is said, and seldom meant: it must not be the default.
    for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
        found[f"{name} (again)" if name in found else name] = value
    return found
