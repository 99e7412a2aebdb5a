"""The end of requests whose bodies do not arrive."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recalib.settings import Settings
from service.access.load_shedding import LoadShedding
from service.http.limited_protocol import HAS_ARRIVED
from service.http.problems import ReceiveTimeoutError


class BodyTimeoutMiddleware:
    """The outermost part of the application. A request that waits for its body holds no place."""

    def __init__(self, app: ASGIApp, settings: Settings, load_shedding: LoadShedding) -> None:
        self._app = app
        self._seconds = settings.receive_seconds
        self._load_shedding = load_shedding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_complete, has_arrived = False, scope.get("state", {}).get(HAS_ARRIVED, bool)

        async def receive_body() -> Message:
            nonlocal is_complete
            # A small body comes with the head, and a timer would take longer than to read it.
            if is_complete or has_arrived():
                message = await receive()
            else:
                message = await self._receive_in_time(receive)
            is_complete = not message.get("more_body", False)
            return message

        await self._app(scope, receive_body, send)

    async def _receive_in_time(self, receive: Receive) -> Message:
        self._load_shedding.waiting += 1
        try:
            async with asyncio.timeout(self._seconds):
                return await receive()
        except TimeoutError:
            raise ReceiveTimeoutError("the request was not received in time") from None
        finally:
            self._load_shedding.waiting -= 1
