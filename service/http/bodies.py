"""Request bodies: their size limit and their media type."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from recalib.errors import TooLargeError, UnsupportedError
from recalib.settings import Settings
from service.exchange import Exchange

__all__ = ["body_limit", "limit_body", "parse_media_type", "read_body"]

#: Uploads stream to disk and have a separate limit.
_UPLOAD = "/datasets/"


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


def body_limit(settings: Settings, scope: Scope) -> int | None:
    """Return the largest body that a request may have, in bytes; None if it has no body."""
    if scope["method"] in ("GET", "HEAD"):
        return None
    is_upload = scope["method"] == "PUT" and _UPLOAD in scope["path"]
    return settings.max_upload_bytes if is_upload else settings.max_body_bytes


def limit_body(
    headers: Mapping[bytes, bytes], receive: Receive, limit: int, exchange: Exchange
) -> Receive:
    """Return a `receive` that raises `TooLargeError` if the body exceeds a limit.

    A body whose announced length exceeds it is refused before it is read. The HTTP server enforces
    the announced length, so only the size of a body without it is counted.

    Parameters
    ----------
    limit: of the server, in bytes; the limit of the caller's key may be lower.
    """
    length = headers.get(b"content-length", b"")
    announced, size = int(length) if length.isdigit() else None, 0
    lowest = min(limit, exchange.body_bytes or limit)
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


def _too_large(size: int, limit: int, exchange: Exchange, prefix: str) -> _TooLargeError:
    try:
        exchange.check_body(size)
    except TooLargeError as error:
        return _TooLargeError(error)
    found, accepted = f"{prefix}{size} bytes", f"at most {limit} bytes"
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
