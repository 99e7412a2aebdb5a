"""A worker process, as `recalib worker` starts it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from functools import partial

from recalib.errors import UnavailableError
from recalib.observability import telemetry
from recalib.registry import Registry
from recalib.registry.job_kinds import BATCH, EVALUATE, FIT, MONITOR, PUBLISH, REFIT, TRAIN
from recalib.settings import Settings
from recalib.webhooks import AllowedTargets
from training.batch_job import batch_handler
from training.evaluation_job import run_evaluation
from training.fit_job import run_fit
from training.monitoring_job import run_monitor
from training.publish_job import run_publish
from training.refit_job import run_refit
from training.training_job import training_handler
from training.webhook_delivery import deliveries
from training.worker import JobHandler, Worker, stop_on_signals, watch_parent

__all__ = ["HANDLERS", "handlers", "run"]

#: Handlers of the kinds of job that need no settings.
HANDLERS: dict[str, JobHandler] = {
    BATCH: batch_handler(),
    EVALUATE: run_evaluation,
    FIT: run_fit,
    MONITOR: run_monitor,
    PUBLISH: run_publish,
    REFIT: run_refit,
}


def handlers(
    settings: Settings,
    between: Callable[[], object] = lambda: None,
    batch: JobHandler = HANDLERS[BATCH],
) -> dict[str, JobHandler]:
    """Return the handler of each kind of job; long training runs call `between` between steps."""
    train = training_handler(
        settings.resolved_training_data,
        between,
        settings.poll_seconds,
        max_weights=settings.max_weights,
        allowed_imports=settings.allowed_imports,
    )
    return {**HANDLERS, BATCH: batch, TRAIN: train}


def run(settings: Settings, *, embedded: bool) -> None:
    """Run jobs until SIGTERM or SIGINT; an embedded worker stops with its parent instead."""
    telemetry.configure(settings, "recalib-worker")
    stop = threading.Event()
    stop_on_signals(stop, embedded=embedded)
    if embedded:
        watch_parent(stop)
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    _refuse_newer_schema(registry)
    name = f"{socket.gethostname()}-{os.getpid()}"
    seconds = {"lease_seconds": settings.lease_seconds, "poll_seconds": settings.poll_seconds}

    def between(worker: Worker) -> None:
        with contextlib.suppress(UnavailableError):  # the long job handles it
            worker.work_once(stop)

    # Fits and monitoring must not wait for a batch, nor these for the training of a network.
    short = {kind: handler for kind, handler in HANDLERS.items() if kind != BATCH}
    short_jobs = Worker(registry, short, name=name, **seconds)
    batch = batch_handler(partial(between, short_jobs), settings.poll_seconds)
    batches = Worker(registry, {**short, BATCH: batch}, name=name, **seconds)
    every_kind = handlers(settings, partial(between, batches), batch)
    worker = Worker(registry, every_kind, name=name, **seconds)
    allowed = AllowedTargets(settings.webhook_targets)
    attempts, poll = settings.webhook_attempts, settings.poll_seconds
    try:
        with deliveries(registry, allowed, attempts, poll):
            worker.run(stop)
    finally:
        registry.close()
        telemetry.shutdown()


def _refuse_newer_schema(registry: Registry) -> None:
    # The worker loop waits for a database that is unavailable or not migrated.
    problem = ""
    with contextlib.suppress(UnavailableError):
        problem = registry.check()
    if problem:
        raise UnavailableError(f"{problem}; run a worker of that version")
