"""How a server process comes to its end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["GRACE_SECONDS", "on_stop_signal"]

#: How long running requests may take once the server is told to stop. Together with a worker's
#: time it stays under the 30 seconds that Kubernetes waits.
GRACE_SECONDS = 10


def on_stop_signal(act: Callable[[], None]) -> None:
    """Call `act` on this event loop when the process is told to stop, and uvicorn as before.

    uvicorn tells the application only when its own requests have ended; whoever else has some to
    end would begin no sooner. It puts back the signal handlers that it found when it ends.
    """
    if threading.current_thread() is not threading.main_thread():  # a server in a test
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def told(number: int, frame: FrameType | None, before: object = before) -> None:
            loop.call_soon_threadsafe(act)
            if callable(before):
                before(number, frame)

        signal.signal(number, told)
