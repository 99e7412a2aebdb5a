"""Stop the work of a request whose client has left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def stop_on_disconnect(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`, and cancel it when the client closes the connection.

    A server sees only then that a connection is closed when it receives. The body must have been
    received: its messages would be lost. Threads of anyio in `work` end before this returns.

    Raises
    ------
    ClientDisconnect: the client has closed the connection before the end of `work`.
    """
    with anyio.CancelScope() as scope:
        watch = asyncio.create_task(_watch(request, scope))
        try:
            return await work
        finally:
            watch.cancel()
    raise ClientDisconnect


async def _watch(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
