"""`recalib worker`: one worker process."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from recalib.errors import UnavailableError
from recalib.observability import telemetry
from recalib.registry import Registry
from recalib.settings import Settings
from training.fit_job import FIT, run_fit
from training.monitoring_job import MONITOR, run_monitor
from training.refit_job import REFIT, run_refit
from training.training_job import TRAIN, training_handler
from training.worker import JobHandler, Worker, stop_on_signals, watch_parent

__all__ = ["HANDLERS", "handlers", "run"]

#: What each kind of job is done by that needs no settings.
HANDLERS: dict[str, JobHandler] = {FIT: run_fit, MONITOR: run_monitor, REFIT: run_refit}


def handlers(
    settings: Settings, between: Callable[[], object] = lambda: None
) -> dict[str, JobHandler]:
    """Return what each kind of job is done by; a job that takes hours calls `between` in them."""
    trains = training_handler(
        settings.resolved_training_data,
        between,
        settings.poll_seconds,
        max_weights=settings.max_weights,
    )
    return {**HANDLERS, TRAIN: trains}


def run(settings: Settings, *, embedded: bool) -> None:
    """Do jobs until SIGTERM or SIGINT; an embedded worker ends with its parent instead."""
    telemetry.configure(settings, "recalib-worker")
    stop = threading.Event()
    stop_on_signals(stop, embedded=embedded)
    if embedded:
        watch_parent(stop)
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    _refuse_a_newer_schema(registry)
    name = f"{socket.gethostname()}-{os.getpid()}"
    seconds = {"lease_seconds": settings.lease_seconds, "poll_seconds": settings.poll_seconds}
    # Fits and looks at what matured are not to wait for a network to be trained.
    others = Worker(registry, HANDLERS, name=name, **seconds)

    def between() -> None:
        with contextlib.suppress(UnavailableError):  # the run notices for itself
            others.work_once(stop)

    worker = Worker(registry, handlers(settings, between), name=name, **seconds)
    try:
        worker.run(stop)
    finally:
        registry.close()
        telemetry.shutdown()


def _refuse_a_newer_schema(registry: Registry) -> None:
    # One that is away, or not migrated yet, is waited for.
    remark = ""
    with contextlib.suppress(UnavailableError):
        remark = registry.check()
    if remark:
        raise UnavailableError(f"{remark}; run a worker of that version")
