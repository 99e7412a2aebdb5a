"""Shutdown of a worker process: on a signal, or when its parent process ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType


def stop_on_signals(stop: threading.Event, *, embedded: bool = False) -> None:
    """Set `stop` on SIGTERM or SIGINT; a second signal ends the process immediately.

    An embedded worker ignores SIGINT, because a terminal sends it to the whole process group and
    the parent stops the worker. An immediate end loses nothing: the lease expires and another
    worker takes the job. Call it from the main thread.
    """
    # The handler writes to a pipe instead of setting the event: it interrupts the main thread,
    # which may hold the event's lock, and would deadlock.
    reader, writer = os.pipe()

    def handle(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        os.write(writer, b"!")

    _watch(reader, stop, any_byte=True)
    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, signal.SIG_IGN if embedded else handle)


def watch_parent(stop: threading.Event) -> None:
    """Set `stop` when standard input is closed.

    The server starts embedded workers with a pipe as standard input and never writes to it. The
    kernel closes the pipe however the server ends, so no orphaned worker remains.
    """
    _watch(sys.stdin.fileno(), stop, any_byte=False)


def _watch(descriptor: int, stop: threading.Event, *, any_byte: bool) -> None:
    def wait() -> None:
        # sys.stdin.read would hold a lock that the interpreter needs at exit.
        while os.read(descriptor, 1) and not any_byte:
            pass
        stop.set()

    threading.Thread(target=wait, name="lifecycle", daemon=True).start()
