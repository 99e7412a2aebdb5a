"""The end of requests whose bodies do not arrive."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

from recalib.settings import Settings
from service.access.load_shedding import LoadShedding
from service.http.limited_protocol import HAS_ARRIVED, IS_COMPLETE
from service.http.problems import ReceiveTimeoutError


def receive_in_time(
    scope: Scope, receive: Receive, settings: Settings, load_shedding: LoadShedding
) -> Receive:
    """Return a `receive` that limits the wait for the body; one that waits holds no place.

    A body that came with the head needs none: it is `receive` itself.
    """
    connection = scope.get("state", {})
    if IS_COMPLETE in connection:
        return receive
    is_complete, has_arrived = False, connection.get(HAS_ARRIVED, bool)

    async def receive_body() -> Message:
        nonlocal is_complete
        # A timer would take longer than to read a part that is there.
        if is_complete or has_arrived():
            message = await receive()
        else:
            load_shedding.waiting += 1
            try:
                async with asyncio.timeout(settings.receive_seconds):
                    message = await receive()
            except TimeoutError:
                raise ReceiveTimeoutError("the request was not received in time") from None
            finally:
                load_shedding.waiting -= 1
        is_complete = not message.get("more_body", False)
        return message

    return receive_body
