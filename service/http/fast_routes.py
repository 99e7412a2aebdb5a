"""Routes that bypass FastAPI's routing, dependencies and middleware.

These take longer than parsing, calibrating and encoding a row (`python -m benchmarks.serving`).
The endpoints are registered with FastAPI, which documents them; the application calls them
directly.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import parse_qsl

from fastapi import Response
from starlette.types import Receive, Scope, Send

from service.operations import Operation

#: Key of a request's `header_map` in its ASGI scope; the HTTP server sets it if no header repeats.
HEADERS = "recalib.headers"


class FastRoutes:
    """POST routes by path."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._routes = [(item.pattern, item) for item in operations if item.fast is not None]
        self._match_path = lru_cache(maxsize=4096)(self._search)

    def match(self, scope: Scope) -> tuple[Operation, dict[str, str]] | None:
        """Return the operation and the path parameters of a request; None: FastAPI answers it."""
        return self._match_path(scope["path"]) if scope["method"] == "POST" else None

    def _search(self, path: str) -> tuple[Operation, dict[str, str]] | None:
        for pattern, operation in self._routes:
            match = pattern.fullmatch(path)
            if match is not None:
                return operation, match.groupdict()
        return None


class BytesResponse(Response):
    """A response with status 200.

    Parameters
    ----------
    headers: in addition to `Content-Type` and `Content-Length`.
    """

    def __init__(
        self, media_type: bytes, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        # Response's own constructor encodes each header, which takes longer than a softmax.
        self.status_code = 200
        self.background = None
        self.body = body
        length = b"%d" % len(body)
        self.raw_headers = [(b"content-type", media_type), (b"content-length", length), *headers]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


def header_map(scope: Scope) -> dict[bytes, bytes]:
    """Return headers by lower-case name; repeated ones are joined (RFC 9110, 5.2)."""
    by_name: dict[bytes, bytes] | None = scope.get(HEADERS)
    if by_name is None:
        headers = scope["headers"]
        by_name = scope[HEADERS] = dict(headers)
        if len(by_name) < len(headers):
            by_name.clear()
            for name, value in headers:
                by_name[name] = by_name[name] + b", " + value if name in by_name else value
    return by_name


def query_parameters(query: bytes) -> dict[str, str]:
    """Return query parameters; a repeated parameter gets a name that no route accepts."""
    if not query:
        return {}
    parameters: dict[str, str] = {}
    # Keep empty values: they must not be replaced by defaults.
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        parameters[f"{name} (again)" if name in parameters else name] = value
    return parameters
