"""Graceful shutdown of a server process."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType

#: Time that running requests have after a stop signal. With a worker's time it stays below the 30
#: seconds that Kubernetes waits.
GRACE_SECONDS = 10


def on_stop_signal(act: Callable[[], None]) -> None:
    """Call `act` on this event loop on SIGTERM and SIGINT, before uvicorn's own handler.

    uvicorn notifies the application only after its own requests have ended, which is too late for
    gRPC. uvicorn restores the earlier signal handlers when it ends.
    """
    if threading.current_thread() is not threading.main_thread():  # a server in a test
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        previous = signal.getsignal(number)

        def handle(number: int, frame: FrameType | None, previous: object = previous) -> None:
            loop.call_soon_threadsafe(act)
            if callable(previous):
                previous(number, frame)

        signal.signal(number, handle)
