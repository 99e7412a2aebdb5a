"""Request bodies: bounded in size, read as what their content type says."""

from __future__ import annotations

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recalib.errors import TooLargeError, UnsupportedError

__all__ = ["BodyLimit", "limit_body", "parse_media_type", "read_body"]

#: Uploads stream to disk and have a limit of their own.
_UPLOAD = "/datasets/"


def parse_media_type(content_type: str, accepted: tuple[str, ...]) -> str:
    """Return a content type without its parameters.

    Raises
    ------
    UnsupportedError: one that is not in `accepted`.
    """
    found = content_type.partition(";")[0].strip().lower()
    if found not in accepted:
        raise UnsupportedError(
            "Content-Type", found=found[:80] or "none", accepted=", ".join(accepted)
        )
    return found


class BodyLimit:
    """Middleware that refuses bodies over a limit, announced or not, before they are in memory."""

    def __init__(self, app: ASGIApp, limit: int, upload_limit: int) -> None:
        self.app = app
        self.limit = limit
        self.upload_limit = upload_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        upload = scope["method"] == "PUT" and _UPLOAD in scope["path"]
        limit = self.upload_limit if upload else self.limit
        await self.app(scope, limit_body(scope, receive, limit), send)


def limit_body(scope: Scope, receive: Receive, limit: int) -> Receive:
    """Return what receives a body of at most `limit` bytes, and then raises `TooLargeError`."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            # Only recorded: the error must rise inside the application, where handlers are.
            return _refusing(limit, int(value))
    return _counting(receive, limit)


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return a whole request body of at most `limit` bytes.

    Raises
    ------
    TooLargeError: there is more.
    ClientDisconnect: there was more to come.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) + len(part) > limit:
            raise _too_large(limit, f"over {limit} bytes")
        if not more and not body:  # it came in one piece, as small ones do
            return part
        body += part
        if not more:
            return bytes(body)


def _refusing(limit: int, announced: int) -> Receive:
    async def receive() -> Message:
        raise _too_large(limit, f"{announced} bytes")

    return receive


def _counting(receive: Receive, limit: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise _too_large(limit, f"over {seen} bytes")
        return message

    return counted


class _TooLargeError(TooLargeError, HTTPException):
    """Both kinds: FastAPI turns anything but its own HTTPException, raised while it reads a
    body, into a 400 that says nothing."""

    def __init__(self, limit: int, found: str) -> None:
        accepted = f"at most {limit} bytes"
        TooLargeError.__init__(self, "body", found=found, accepted=accepted)
        self.status_code = 413
        self.detail = str(TooLargeError("body", found=found, accepted=accepted))
        self.headers = None

    def __str__(self) -> str:  # HTTPException's has the status before it
        return self.detail


def _too_large(limit: int, found: str) -> _TooLargeError:
    return _TooLargeError(limit, found)
