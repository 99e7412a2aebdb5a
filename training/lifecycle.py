"""When a worker process stops: on a signal, or when the process that started it is gone."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["stop_on_signals", "watch_parent"]


def stop_on_signals(stop: threading.Event, *, embedded: bool = False) -> None:
    """Set `stop` on SIGTERM or SIGINT; a second one ends the process at once.

    An embedded worker ignores SIGINT: the terminal sends it to the whole group, and the worker
    hears from its parent.

    Ending at once loses nothing either: the lease runs out and another worker takes the job.
    Call it from the main thread.
    """
    # A pipe, because the signal's handler must not set the event itself: it interrupts the main
    # thread, which may hold the event's lock at that moment, and would wait for itself.
    reader, writer = os.pipe()

    def tell(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        os.write(writer, b"!")

    _watch(reader, stop, any_byte=True)
    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGINT, signal.SIG_IGN if embedded else tell)


def watch_parent(stop: threading.Event) -> None:
    """Set `stop` once standard input ends.

    The server starts its embedded workers with a pipe there and never writes to it. However the
    server dies, the kernel closes its end: no orphan goes on working unseen.
    """
    _watch(sys.stdin.fileno(), stop, any_byte=False)


def _watch(descriptor: int, stop: threading.Event, *, any_byte: bool) -> None:
    def wait() -> None:
        # os.read, not sys.stdin.read: that would hold a lock which the interpreter wants at exit.
        while os.read(descriptor, 1) and not any_byte:
            pass
        stop.set()

    threading.Thread(target=wait, name="lifecycle", daemon=True).start()
