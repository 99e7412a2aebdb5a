"""`recalib worker`: one worker process."""

from __future__ import annotations

import os
import signal
import socket
import threading
from types import FrameType

from recalib.registry import Registry
from recalib.settings import Settings
from training.fit import FIT, run_fit
from training.worker import Worker, watch_parent

__all__ = ["HANDLERS", "run"]

#: What each kind of job is done by.
HANDLERS = {FIT: run_fit}


def run(settings: Settings, *, embedded: bool) -> None:
    """Do jobs until SIGTERM or SIGINT; an embedded worker also ends with its parent."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    # The terminal sends SIGINT to the whole group; an embedded worker hears from its parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN if embedded else on_signal)
    if embedded:
        watch_parent(stop)
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    worker = Worker(
        registry,
        HANDLERS,
        name=f"{socket.gethostname()}-{os.getpid()}",
        lease_seconds=settings.lease_seconds,
        poll_seconds=settings.poll_seconds,
    )
    try:
        worker.run(stop)
    finally:
        registry.close()
