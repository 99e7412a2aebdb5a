"""Request bodies: their size limits and their media type."""

from __future__ import annotations

from typing import NamedTuple

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from recalib.errors import TooLargeError, UnsupportedError
from recalib.settings import Settings
from service.exchange import Exchange
from service.http.fast_routes import header_map

__all__ = ["limit_body", "parse_media_type", "read_body"]

#: Uploads stream to disk and have a separate limit.
_UPLOAD = "/datasets/"
#: Largest body of the other routes, which accept JSON only. Parsing keeps the interpreter lock, so
#: every other request waits for it.
_MAX_DOCUMENT_BYTES = 2**20
#: Last part of the paths of routes with large bodies, and what carries more than JSON may.
_BATCHES = {
    "calibrate": "; application/x-npy or an Arrow stream for more",
    "infer": "; the binary tensor data extension for more",
    "labels": "; several requests for more",
    "observations": "; several requests for more",
}


def parse_media_type(content_type: str, accepted: tuple[str, ...]) -> str:
    """Return a content type without its parameters.

    Raises
    ------
    UnsupportedError: it is not in `accepted`.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in accepted:
        raise UnsupportedError(
            "Content-Type", found=media_type[:80] or "none", accepted=", ".join(accepted)
        )
    return media_type


class _Limit(NamedTuple):
    """The largest body of a route."""

    bytes: int
    #: What to send instead, for the error.
    alternative: str = ""


def _limit_of(settings: Settings, scope: Scope) -> _Limit:
    method, path = scope["method"], scope["path"]
    if method == "PUT" and _UPLOAD in path:
        return _Limit(settings.max_upload_bytes)
    name = path.rpartition("/")[2]
    if method != "POST" or name not in _BATCHES:
        return _Limit(min(_MAX_DOCUMENT_BYTES, settings.max_body_bytes))
    if _is_binary(name, scope):
        return _Limit(settings.max_body_bytes)
    return _Limit(min(settings.max_json_bytes, settings.max_body_bytes), _BATCHES[name])


def _is_binary(name: str, scope: Scope) -> bool:
    headers = header_map(scope)
    if name == "calibrate":
        media_type = headers.get(b"content-type", b"").strip().lower()
        return not media_type.startswith(b"application/json") and media_type != b""
    # The length of the JSON, which is checked after decompression.
    return name == "infer" and (
        b"inference-header-content-length" in headers or b"content-encoding" in headers
    )


def limit_body(settings: Settings, scope: Scope, receive: Receive, exchange: Exchange) -> Receive:
    """Return a `receive` that raises `TooLargeError` if the body exceeds a limit.

    A body whose announced length exceeds it is refused before it is read. The HTTP server enforces
    the announced length, so only the size of a body without it is counted. The limit of the
    caller's key may be lower than that of the route.
    """
    if scope["method"] in ("GET", "HEAD"):
        return receive
    limit = _limit_of(settings, scope)
    length = header_map(scope).get(b"content-length", b"")
    announced, size = int(length) if length.isdigit() else None, 0
    lowest = min(limit.bytes, exchange.body_bytes or limit.bytes)
    if announced is not None and announced <= lowest:
        return receive

    async def receive_limited() -> Message:
        nonlocal size
        if announced is not None:
            raise _too_large(announced, limit, exchange, "")
        message = await receive()
        size += len(message.get("body", b""))
        if size > lowest:
            raise _too_large(size, limit, exchange, "over ")
        return message

    return receive_limited


def _too_large(size: int, limit: _Limit, exchange: Exchange, prefix: str) -> _TooLargeError:
    try:
        exchange.check_body(size)
    except TooLargeError as error:
        return _TooLargeError(error)
    found, accepted = f"{prefix}{size} bytes", f"at most {limit.bytes} bytes{limit.alternative}"
    return _TooLargeError(TooLargeError("body", found=found, accepted=accepted))


async def read_body(receive: Receive) -> bytes:
    """Return the body of a request; `ClientDisconnect` if the client left before its end."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        return body  # small bodies arrive in one message
    parts = [body]
    while message["type"] == "http.request" and message.get("more_body", False):
        message = await receive()
        parts.append(message.get("body", b""))
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return b"".join(parts)


class _TooLargeError(TooLargeError, HTTPException):
    """Also an HTTPException: FastAPI replaces any other error raised while it reads a body."""

    def __init__(self, error: TooLargeError) -> None:
        TooLargeError.__init__(self, error.field, found=error.found, accepted=error.accepted)
        self.status_code = 413
        self.detail = str(error)
        self.headers = None

    def __str__(self) -> str:  # HTTPException's own text begins with the status
        return self.detail
