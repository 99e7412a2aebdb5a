"""The event loop of a server process: uvloop with limits on TLS handshakes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvloop

from recalib.settings import Settings
from service.http.tls_server import TlsServer


class EventLoop(uvloop.Loop):
    """uvloop; uvicorn has no setting for the limits."""

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Any, *arguments: Any, **options: Any
    ) -> asyncio.AbstractServer:
        """Listen; with TLS, count handshakes, and end them after `RECALIB_RECEIVE_SECONDS`."""
        context = options.get("ssl")
        if context is None:
            return await super().create_server(protocol_factory, *arguments, **options)
        seconds = Settings().receive_seconds
        server = TlsServer(protocol_factory, options["sock"], context, seconds)
        return cast(asyncio.AbstractServer, server)  # uvicorn only closes it
