"""Refusal of requests above the limit of requests in progress, and of bodies that do not arrive."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recalib.settings import Settings
from service.access.load_shedding import OVERLOAD, LoadShedding
from service.http.limited_protocol import TASKS
from service.http.problems import ReceiveTimeoutError, problem

_OVERLOADED = problem(503, "Service Unavailable", OVERLOAD)


class OverloadMiddleware:
    """The outermost part of the application, so that a refusal costs little.

    A refusal waits a moment. Otherwise clients that repeat refused requests at once would take the
    time of those that are answered. While a request waits for its body it holds no place.
    """

    def __init__(self, app: ASGIApp, settings: Settings, load_shedding: LoadShedding) -> None:
        self._app = app
        self._seconds = settings.receive_seconds
        self._load_shedding = load_shedding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        load = self._load_shedding
        if not load.has_place(scope.get("state", {}).get(TASKS, 0), scope["path"]):
            await load.hold()
            await _OVERLOADED(scope, receive, send)
            return
        is_complete = False

        async def receive_body() -> Message:
            nonlocal is_complete
            if is_complete:
                return await receive()
            load.waiting += 1
            try:
                async with asyncio.timeout(self._seconds):
                    message = await receive()
            except TimeoutError:
                raise ReceiveTimeoutError("the request was not received in time") from None
            finally:
                load.waiting -= 1
            is_complete = not message.get("more_body", False)
            return message

        await self._app(scope, receive_body, send)
