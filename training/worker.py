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
from dataclasses import KW_ONLY, dataclass, field
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


@dataclass(frozen=True, eq=False)
class Worker:
    """Runs jobs of the kinds in `handlers`, one at a time.

    Parameters
    ----------
    max_seconds: wall time of an attempt, by kind; kinds that it lacks have no limit.
    """

    registry: Registry
    handlers: Mapping[str, JobHandler]
    _: KW_ONLY
    name: str
    lease_seconds: float = 30.0
    poll_seconds: float = 0.5
    retry_seconds: float = 2.0
    max_seconds: Mapping[str, float] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Run jobs until `stop` is set; wait while the database is unavailable."""
        fields = {"worker": self.name}
        _log.info("Worker %s is ready.", self.name, extra={"action": "worker_started", **fields})
        failures = 0
        while not stop.is_set():
            try:
                worked = self.work_once(stop)
            except UnavailableError as error:
                failures += 1
                if failures == 1:
                    _log.warning("Waiting: %s", error, extra={"action": "database_away", **fields})
                # The limit of the exponent keeps the product a finite float in long outages.
                wait = self.poll_seconds * 2.0 ** min(failures, 100)
                stop.wait(min(wait, _MAX_OUTAGE_WAIT_SECONDS))
                continue
            if failures:
                _log.info("The database is back.", extra={"action": "database_back", **fields})
                failures = 0
            if not worked:
                stop.wait(self.poll_seconds)
        _log.info("Worker %s has stopped.", self.name, extra={"action": "worker_stopped", **fields})

    def work_once(self, stop: threading.Event) -> bool:
        """Run the next job, if any; return whether there was a job."""
        with self.registry.transaction() as tx:
            lease = tx.jobs.claim(self.name, list(self.handlers), self.lease_seconds)
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
            self._log_job(lease, "job_started", f"Running {job.kind} job {job.id}.")
            max_seconds = self.max_seconds.get(job.kind, math.inf)
            self._attempt(lease, JobContext(self.registry, lease, stop, max_seconds))
        return True

    def _attempt(self, lease: Lease, context: JobContext) -> None:
        try:
            with heartbeat(context, self.lease_seconds):
                self.handlers[lease.job.kind](context)
        except Cancelled as cancelled:
            self._end_interrupted(lease, cancelled)
        except FencedError:
            self._log_lost_lease(lease)
        except Exception as error:
            self._end_failed(lease, error)
        else:
            if not context.finished:
                self._end(lease, lambda tx: tx.jobs.succeed(lease, {}))
            self._log_job(lease, "job_finished", f"Job {lease.job.id} is done.")

    def _end_interrupted(self, lease: Lease, cancelled: Cancelled) -> None:
        if cancelled.reason == "lost":
            self._log_lost_lease(lease)
        elif cancelled.reason == "cancelled":
            self._log_job(lease, "job_cancelled", f"Job {lease.job.id} was cancelled.")
            self._end(lease, lambda tx: tx.jobs.acknowledge_cancel(lease))
        elif cancelled.reason == "expired":
            self._end_failed(lease, self._too_long(lease))
        else:
            self._log_job(lease, "job_released", f"Job {lease.job.id} returns to the queue.")
            self._end(lease, lambda tx: tx.jobs.release(lease))

    def _too_long(self, lease: Lease) -> InputError:
        seconds = self.max_seconds[lease.job.kind]
        accepted = f"at most {seconds:g} s for a job of kind {lease.job.kind} (RECALIB_JOB_SECONDS)"
        return InputError("job", found="an attempt that takes longer", accepted=accepted)

    def _end_failed(self, lease: Lease, error: Exception) -> None:
        telemetry.mark_failed(type(error).__name__)
        is_known = isinstance(error, RecalibError)
        permanent = is_known and not isinstance(error, UnavailableError)
        retry_after = None if permanent else self._retry_after(lease.job.attempts)
        # RecalibError messages are written for the caller; other errors need their type.
        text = str(error) if is_known else f"{type(error).__name__}: {error}"
        options: dict[str, Any] = {"level": logging.WARNING, "exc_info": not is_known}
        self._log_job(lease, "job_failed", f"Job {lease.job.id} failed: {text}", **options)
        self._end(lease, lambda tx: tx.jobs.fail(lease, text, retry_after))

    def _retry_after(self, attempts: int) -> float:
        return float(min(self.retry_seconds * 2 ** (attempts - 1), _MAX_RETRY_SECONDS))

    def _end(self, lease: Lease, write: Callable[[Transaction], None]) -> None:
        try:
            with self.registry.transaction() as tx:
                write(tx)
        except FencedError:
            self._log_lost_lease(lease)

    def _log_lost_lease(self, lease: Lease) -> None:
        text = f"Job {lease.job.id} belongs to another worker now; this attempt has no effect."
        self._log_job(lease, "job_lost", text, level=logging.WARNING)

    def _log_job(
        self, lease: Lease, action: str, text: str, level: int = logging.INFO, **options: Any
    ) -> None:
        job = lease.job
        fields = {"action": action, "worker": self.name, "job_id": job.id, "kind": job.kind}
        extra = {**fields, "attempt": job.attempts, "fence": lease.fence}
        _log.log(level, "%s", text, extra=extra, **options)
