"""A worker process, as `recalib worker` starts it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from recalib.errors import InputError, UnavailableError
from recalib.observability import telemetry
from recalib.registry import Registry
from recalib.registry.job_kinds import BATCH, EVALUATE, FIT, MONITOR, PUBLISH, REFIT, REPLAY, TRAIN
from recalib.settings import Settings
from recalib.webhooks import AllowedTargets
from training.alert import Links
from training.batch_job import run_batch
from training.evaluation_job import run_evaluation
from training.fit_job import run_fit
from training.large_datasets import ClusterPolicy
from training.monitoring_job import run_monitor
from training.pause import Pause
from training.publish_job import run_publish
from training.refit_job import run_refit
from training.replay_job import run_replay
from training.training_job import run_training
from training.webhook_delivery import deliveries
from training.worker import JobHandler, Worker, stop_on_signals, watch_parent

_log = logging.getLogger(__name__)

#: Handlers of the kinds of job that need no settings.
HANDLERS: dict[str, JobHandler] = {
    BATCH: run_batch,
    EVALUATE: run_evaluation,
    FIT: run_fit,
    MONITOR: run_monitor,
    PUBLISH: run_publish,
    REFIT: run_refit,
    REPLAY: run_replay,
}
#: Kinds of long jobs: jobs of the kinds before them run between their steps. What callers wait for
#: must not wait for a refit, refits and monitoring not for a batch or a replay, nor these for the
#: training of a network. The second number is the least time that a long job gets after a pause, in
#: multiples of the pause: a refit gets a quarter of the time, and never starves.
_LONG: tuple[tuple[tuple[str, ...], float], ...] = (
    ((REFIT,), 1 / 3),
    ((BATCH, REPLAY), 0.0),
    ((TRAIN,), 0.0),
)


def handlers(settings: Settings) -> dict[str, Callable[..., None]]:
    """Return the handler of each kind of job."""
    policy = ClusterPolicy(settings.cluster or None, settings.cluster_bytes)
    return {
        **HANDLERS,
        BATCH: partial(run_batch, policy=policy),
        EVALUATE: partial(run_evaluation, policy=policy),
        FIT: partial(run_fit, policy=policy),
        MONITOR: partial(run_monitor, links=Links.of(settings)),
        PUBLISH: partial(run_publish, policy=policy),
        TRAIN: partial(
            run_training,
            folder=settings.resolved_training_data,
            max_weights=settings.max_weights,
            allowed_imports=settings.allowed_imports,
            max_workers=settings.training_workers,
        ),
    }


def run(settings: Settings, *, embedded: bool) -> None:
    """Run jobs until SIGTERM or SIGINT; an embedded worker stops with its parent instead."""
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    _check_database_file(registry)
    telemetry.configure(settings, "recalib-worker")
    stop = threading.Event()
    stop_on_signals(stop, embedded=embedded)
    if embedded:
        watch_parent(stop)
    _refuse_newer_schema(registry)
    options: dict[str, Any] = {
        "name": f"{socket.gethostname()}-{os.getpid()}",
        "lease_seconds": settings.lease_seconds,
        "poll_seconds": settings.poll_seconds,
        "max_seconds": settings.seconds_of_jobs,
    }

    def between(worker: Worker) -> None:
        with contextlib.suppress(UnavailableError):  # the long job handles it
            worker.work_once(stop)

    every_kind = handlers(settings)
    running = {kind: every_kind[kind] for kind in (EVALUATE, FIT, MONITOR, PUBLISH)}
    for kinds, share in _LONG:
        short = Worker(registry, dict(running), **options)
        pause = Pause(partial(between, short), settings.poll_seconds, share)
        running |= {kind: partial(every_kind[kind], pause=pause) for kind in kinds}
    worker = Worker(registry, running, **options)
    allowed = AllowedTargets(settings.webhook_targets)
    attempts, poll = settings.webhook_attempts, settings.poll_seconds
    try:
        with deliveries(registry, allowed, attempts, poll):
            worker.run(stop)
    finally:
        registry.close()
        telemetry.shutdown()


def _check_database_file(registry: Registry) -> None:
    """Raise `InputError` without the folder of an SQLite database; log that a file is missing."""
    path = registry.missing_database_file
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(
            "the database",
            found=f"{path}, in a folder that does not exist",
            accepted="the home or the database URL of a server; `recalib serve` or `recalib "
            "prepare` creates them",
        )
    _log.warning(
        "There is no %s yet. The worker waits until `recalib serve` or `recalib prepare` creates "
        "the database.",
        path,
        extra={"action": "database_missing"},
    )


def _refuse_newer_schema(registry: Registry) -> None:
    # The worker loop waits for a database that is unavailable or not migrated.
    problem = ""
    with contextlib.suppress(UnavailableError):
        problem = registry.check()
    if problem:
        raise UnavailableError(f"{problem}; run a worker of that version")
