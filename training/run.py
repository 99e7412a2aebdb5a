"""`recalib worker`: one worker process."""

from __future__ import annotations

import os
import socket
import threading

from recalib.registry import Registry
from recalib.settings import Settings
from training.fit import FIT, run_fit
from training.worker import Worker, stop_on_signals, watch_parent

__all__ = ["HANDLERS", "run"]

#: What each kind of job is done by.
HANDLERS = {FIT: run_fit}


def run(settings: Settings, *, embedded: bool) -> None:
    """Do jobs until SIGTERM or SIGINT; an embedded worker ends with its parent instead."""
    stop = threading.Event()
    stop_on_signals(stop, embedded=embedded)
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
