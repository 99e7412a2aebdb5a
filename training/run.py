"""`recalib worker`: one worker process."""

from __future__ import annotations

import os
import socket
import threading

from recalib.registry import Registry
from recalib.settings import Settings
from training.fit import FIT, run_fit
from training.monitoring import MONITOR, run_monitor
from training.refit import REFIT, run_refit
from training.train import TRAIN, training_handler
from training.worker import JobHandler, Worker, stop_on_signals, watch_parent

__all__ = ["HANDLERS", "handlers", "run"]

#: What each kind of job is done by that needs no settings.
HANDLERS: dict[str, JobHandler] = {FIT: run_fit, MONITOR: run_monitor, REFIT: run_refit}


def handlers(settings: Settings) -> dict[str, JobHandler]:
    """Return what each kind of job is done by."""
    return {**HANDLERS, TRAIN: training_handler(settings.resolved_training_data)}


def run(settings: Settings, *, embedded: bool) -> None:
    """Do jobs until SIGTERM or SIGINT; an embedded worker ends with its parent instead."""
    stop = threading.Event()
    stop_on_signals(stop, embedded=embedded)
    if embedded:
        watch_parent(stop)
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    worker = Worker(
        registry,
        handlers(settings),
        name=f"{socket.gethostname()}-{os.getpid()}",
        lease_seconds=settings.lease_seconds,
        poll_seconds=settings.poll_seconds,
    )
    try:
        worker.run(stop)
    finally:
        registry.close()
