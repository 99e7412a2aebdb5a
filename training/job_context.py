"""What a job's handler is given: its payload, and the few ways in which it may speak back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from recalib.errors import FencedError, UnavailableError
from recalib.registry import ExpectedVersion, Lease, Model, Registry, Transaction

__all__ = ["Cancelled", "JobContext", "Reason"]

Reason = Literal["cancelled", "lost", "stopping"]

#: Waits between attempts to publish while the database is away, in seconds: a restart takes less,
#: and hours of fitting should not be thrown away for it.
_PUBLISH_AGAIN_AFTER = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class Cancelled(BaseException):
    """The handler is to stop now; what it has done so far is given up.

    `reason`: ``cancelled``, somebody asked; ``lost``, another worker has the job; ``stopping``,
    this worker is being shut down. Not an `Exception`, so that a handler's ``except Exception``
    lets it pass.
    """

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


class JobContext:
    """One attempt at one job, shared by the handler and the heartbeat's thread."""

    def __init__(self, registry: Registry, lease: Lease, stop: threading.Event) -> None:
        self.registry = registry
        self.lease = lease
        #: Whether the handler has finished the job itself.
        self.finished = False
        self._stop = stop
        self._progress: dict[str, Any] | None = None
        self._interrupted: Reason | None = None
        # Held while the job is finished, and during each beat: a heartbeat that came between the
        # commit and `finished` would find the job gone and report a lost lease.
        self._beating = threading.Lock()

    @property
    def payload(self) -> dict[str, Any]:
        """What the job is to do."""
        return self.lease.job.payload

    @property
    def checkpoint(self) -> dict[str, Any] | None:
        """What an earlier attempt left with `save_checkpoint`."""
        return self.lease.job.checkpoint

    def progress(self, fraction: float, message: str) -> None:
        """Say how far the work is, from 0 to 1; the next heartbeat takes it along."""
        self._progress = {"fraction": fraction, "message": message}

    def save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave something for the next attempt to go on from, should this one not finish."""
        with self.registry.transaction() as tx:
            tx.jobs.checkpoint(self.lease, checkpoint)

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the work is no longer wanted; call it between steps."""
        if self._interrupted is not None:
            raise Cancelled(self._interrupted)
        if self._stop.is_set():
            raise Cancelled("stopping")

    @contextmanager
    def finishing(self) -> Iterator[Transaction]:
        """Open the transaction in which the handler publishes and finishes its job.

        A worker that is stopping still gets through: the work is done, and this takes little.
        """
        with self._beating:
            if self._interrupted is not None:
                raise Cancelled(self._interrupted)
            with self.registry.transaction() as tx:
                yield tx
            self.finished = True

    def publish(
        self,
        model: Model,
        *,
        dataset_name: str | None,
        card: dict[str, Any],
        parameters: bytes,
        promote_alias: str | None = None,
        reason: str = "",
        expected: ExpectedVersion | None = None,
        result: dict[str, Any] | None = None,
    ) -> int:
        """Publish a calibrator and finish the job with it; return the version.

        `ConflictError` where `promote_alias` points elsewhere than `expected`.

        The job's result is `result` with `model` and `version` added. Waits half a minute for a
        database that is away; trying again is safe because the fence lets only one attempt
        through.
        """

        def attempt() -> int:
            with self.finishing() as tx:
                version = tx.calibrators.publish(
                    self.lease,
                    model,
                    dataset_name,
                    card,
                    parameters,
                    promote_alias,
                    reason,
                    expected,
                )
                outcome = {**(result or {}), "model": model.name, "version": version}
                tx.jobs.succeed(self.lease, outcome)
            return version

        for delay in _PUBLISH_AGAIN_AFTER:
            try:
                return attempt()
            except UnavailableError:
                if self._stop.wait(delay):
                    break
        return attempt()

    def beat(self, lease_seconds: float) -> None:
        """Extend the lease, unless the job is finished; called by the heartbeat."""
        with self._beating:
            if self.finished:
                return
            try:
                with self.registry.transaction() as tx:
                    asked = tx.jobs.heartbeat(self.lease, lease_seconds, self._progress)
            except FencedError:
                self._interrupted = "lost"
                raise
        if asked:
            self._interrupted = "cancelled"
