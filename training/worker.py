"""The worker loop: claim a job, run its handler, record the outcome, repeat.

Outcomes of an attempt:

- The handler finished the job in the transaction that published its result.
- The handler returned without finishing the job: it succeeds with an empty result.
- The job was cancelled: it ends as cancelled.
- The lease was lost: nothing is written, because another worker has the job.
- The job takes longer than its kind may: it fails permanently.
- The worker is stopping: the job returns to the queue, and the attempt is not counted.
- The job cannot be done (`InputError`, `NotFoundError`, ...): it fails permanently.
- Any other error: the job is retried, with a wait that doubles each time.
- The process was killed: the lease expires and counts as an attempt.

Handlers run at least once, not exactly once. A result appears exactly once, because it commits in
the same transaction as the end of the job.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from recalib.errors import FencedError, InputError, RecalibError, UnavailableError
from recalib.observability import telemetry
from recalib.observability.logs import log_fields
from recalib.registry import Lease, Registry, Transaction
from training.heartbeat import heartbeat
from training.job_context import Cancelled, JobContext
from training.lifecycle import stop_on_signals, watch_parent

__all__ = ["Cancelled", "JobContext", "JobHandler", "Worker", "stop_on_signals", "watch_parent"]

JobHandler = Callable[[JobContext], None]

_log = logging.getLogger(__name__)
_MAX_RETRY_SECONDS = 300.0
_MAX_OUTAGE_WAIT_SECONDS = 15.0


class Worker:
    """Runs jobs of the kinds in `handlers`, one at a time.

    Parameters
    ----------
    max_seconds: wall time of an attempt, by kind; kinds that it lacks have no limit.
    """

    def __init__(
        self,
        registry: Registry,
        handlers: Mapping[str, JobHandler],
        *,
        name: str,
        lease_seconds: float = 30.0,
        poll_seconds: float = 0.5,
        retry_seconds: float = 2.0,
        max_seconds: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._registry = registry
        self._handlers = handlers
        self._name = name
        self._lease_seconds = lease_seconds
        self._poll_seconds = poll_seconds
        self._retry_seconds = retry_seconds
        self._max_seconds = max_seconds

    def run(self, stop: threading.Event) -> None:
        """Run jobs until `stop` is set; wait while the database is unavailable."""
        _log.info("Worker %s is ready.", self._name, extra=self._fields("worker_started"))
        failures = 0
        while not stop.is_set():
            try:
                worked = self.work_once(stop)
            except UnavailableError as error:
                failures += 1
                if failures == 1:
                    _log.warning("Waiting: %s", error, extra=self._fields("database_away"))
                # The limit of the exponent keeps the product a finite float in long outages.
                wait = self._poll_seconds * 2.0 ** min(failures, 100)
                stop.wait(min(wait, _MAX_OUTAGE_WAIT_SECONDS))
                continue
            if failures:
                _log.info("The database is back.", extra=self._fields("database_back"))
                failures = 0
            if not worked:
                stop.wait(self._poll_seconds)
        _log.info("Worker %s has stopped.", self._name, extra=self._fields("worker_stopped"))

    def work_once(self, stop: threading.Event) -> bool:
        """Run the next job, if any; return whether there was a job."""
        with self._registry.transaction() as tx:
            lease = tx.jobs.claim(self._name, list(self._handlers), self._lease_seconds)
        if lease is None:
            return False
        job = lease.job
        with (
            log_fields(job_id=job.id, kind=job.kind),
            telemetry.span(
                f"job {job.kind}",
                lease.trace,
                **{"recalib.job.id": job.id, "recalib.job.attempt": job.attempts},
            ),
        ):
            _log.info(
                "Running %s job %s.",
                lease.job.kind,
                lease.job.id,
                extra=self._fields("job_started", lease),
            )
            max_seconds = self._max_seconds.get(job.kind, math.inf)
            self._attempt(lease, JobContext(self._registry, lease, stop, max_seconds))
        return True

    def _attempt(self, lease: Lease, context: JobContext) -> None:
        try:
            with heartbeat(context, self._lease_seconds):
                self._handlers[lease.job.kind](context)
        except Cancelled as cancelled:
            self._end_interrupted(lease, cancelled)
        except FencedError:
            self._log_lost_lease(lease)
        except Exception as error:
            self._end_failed(lease, error)
        else:
            if not context.finished:
                self._end(lease, lambda tx: tx.jobs.succeed(lease, {}))
            _log.info("Job %s is done.", lease.job.id, extra=self._fields("job_finished", lease))

    def _end_interrupted(self, lease: Lease, cancelled: Cancelled) -> None:
        if cancelled.reason == "lost":
            self._log_lost_lease(lease)
        elif cancelled.reason == "cancelled":
            _log.info(
                "Job %s was cancelled.", lease.job.id, extra=self._fields("job_cancelled", lease)
            )
            self._end(lease, lambda tx: tx.jobs.acknowledge_cancel(lease))
        elif cancelled.reason == "expired":
            self._end_failed(lease, self._too_long(lease))
        else:
            _log.info(
                "Job %s returns to the queue.",
                lease.job.id,
                extra=self._fields("job_released", lease),
            )
            self._end(lease, lambda tx: tx.jobs.release(lease))

    def _too_long(self, lease: Lease) -> InputError:
        seconds = self._max_seconds[lease.job.kind]
        accepted = f"at most {seconds:g} s for a job of kind {lease.job.kind} (RECALIB_JOB_SECONDS)"
        return InputError("job", found="an attempt that takes longer", accepted=accepted)

    def _end_failed(self, lease: Lease, error: Exception) -> None:
        telemetry.mark_failed(type(error).__name__)
        permanent = isinstance(error, RecalibError) and not isinstance(error, UnavailableError)
        retry_after = None if permanent else self._retry_after(lease.job.attempts)
        # RecalibError messages are written for the caller; other errors need their type.
        text = str(error) if isinstance(error, RecalibError) else f"{type(error).__name__}: {error}"
        _log.warning(
            "Job %s failed: %s",
            lease.job.id,
            text,
            exc_info=not isinstance(error, RecalibError),
            extra=self._fields("job_failed", lease),
        )
        self._end(lease, lambda tx: tx.jobs.fail(lease, text, retry_after))

    def _retry_after(self, attempts: int) -> float:
        return float(min(self._retry_seconds * 2 ** (attempts - 1), _MAX_RETRY_SECONDS))

    def _end(self, lease: Lease, write: Callable[[Transaction], None]) -> None:
        try:
            with self._registry.transaction() as tx:
                write(tx)
        except FencedError:
            self._log_lost_lease(lease)

    def _log_lost_lease(self, lease: Lease) -> None:
        _log.warning(
            "Job %s belongs to another worker now; this attempt has no effect.",
            lease.job.id,
            extra=self._fields("job_lost", lease),
        )

    def _fields(self, action: str, lease: Lease | None = None) -> dict[str, Any]:
        fields: dict[str, Any] = {"action": action, "worker": self._name}
        if lease is not None:
            fields |= {
                "job_id": lease.job.id,
                "kind": lease.job.kind,
                "attempt": lease.job.attempts,
                "fence": lease.fence,
            }
        return fields
