"""The event loop of a server process: uvloop with a time limit for TLS handshakes."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop

from recalib.settings import Settings

__all__ = ["EventLoop"]


class EventLoop(uvloop.Loop):
    """uvloop. uvicorn has no setting for the limit, whose default is 60 seconds."""

    async def create_server(  # type: ignore[override]
        self, *arguments: Any, **options: Any
    ) -> asyncio.AbstractServer:
        """Listen; end connections whose handshake takes longer than `RECALIB_RECEIVE_SECONDS`."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = Settings().receive_seconds
        return await super().create_server(*arguments, **options)
