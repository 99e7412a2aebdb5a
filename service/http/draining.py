"""Responses that are sent before the request's body has arrived.

A connection that is closed with unread bytes is reset, and its client may lose the response. The
rest of the body is therefore read and discarded, up to a limit, before the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope, Send

if TYPE_CHECKING:
    from service.http.limited_protocol import LimitedProtocol

#: Key of the connection in a request's state (`scope["state"]`).
CONNECTION = "connection"
#: Limits of what is discarded.
_MAX_BYTES = 256 * 2**20
_MAX_SECONDS = 10.0


def connection_of(scope: Scope) -> LimitedProtocol | None:
    """Return the connection of a request; None: the server has no connections, as in a test."""
    state: Mapping[str, LimitedProtocol] = scope.get("state") or {}
    return state.get(CONNECTION)


async def send_early(receive: Receive, send: Send, message: Message) -> None:
    """Send a message of a response while the request's body is still arriving.

    The client has the complete response before the body is discarded.
    """
    if message["type"] == "http.response.start":
        message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)
    elif message.get("more_body", False):
        await send(message)
    else:
        await send({**message, "more_body": True})
        with suppress(TimeoutError):
            await asyncio.wait_for(_discard(receive), _MAX_SECONDS)
        await send({"type": "http.response.body", "body": b""})


async def _discard(receive: Receive) -> None:
    size = 0
    while size < _MAX_BYTES:
        message = await receive()
        if not message.get("more_body", False):
            return
        size += len(message["body"])
