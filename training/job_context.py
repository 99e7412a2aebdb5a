"""The context of a job: payload, progress, checkpoints, cancellation, and the final transaction."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import msgspec

from recalib.core.decoding import convert
from recalib.errors import FencedError, InputError, UnavailableError
from recalib.registry import ExpectedVersion, Lease, Model, Registry, Transaction

R = TypeVar("R")
Reason = Literal["cancelled", "expired", "lost", "stopping"]

#: Waits in seconds between attempts to publish while the database is unavailable. A restart takes
#: less, and a restart must not cost hours of fitting.
_PUBLISH_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class Cancelled(BaseException):
    """The handler must stop now; its work so far is discarded.

    `reason`: ``cancelled``, a user cancelled the job; ``expired``, it takes too long; ``lost``,
    another worker has the job; ``stopping``, this worker is shutting down. It is not an
    `Exception`, so a handler's ``except Exception`` does not catch it.
    """

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(reason)


class JobContext:
    """An attempt at a job, shared by the handler and the heartbeat thread.

    Parameters
    ----------
    max_seconds: wall time of the attempt.
    """

    def __init__(
        self,
        registry: Registry,
        lease: Lease,
        stop: threading.Event,
        max_seconds: float = math.inf,
    ) -> None:
        self.registry = registry
        self.lease = lease
        #: Whether the handler has finished the job itself.
        self.finished = False
        self._stop = stop
        self._deadline = time.monotonic() + max_seconds
        self._progress: dict[str, Any] | None = None
        self._interrupted: Reason | None = None
        # Held while the job is finished, and during each beat: a beat between the commit and
        # `finished` would find no job and report a lost lease.
        self._heartbeat_lock = threading.Lock()

    @property
    def payload(self) -> dict[str, Any]:
        """The parameters of the job."""
        return self.lease.job.payload

    def request(self, kind: type[R]) -> R:
        """Return the parameters as a request; raise `InputError` for other fields than it has."""
        try:
            return convert(self.payload, kind)
        except msgspec.ValidationError as error:
            accepted = f"the fields of {kind.__name__}"
            raise InputError("payload", found=str(error), accepted=accepted) from None

    @property
    def checkpoint(self) -> dict[str, Any] | None:
        """The checkpoint of an earlier attempt, as given to `save_checkpoint`."""
        return self.lease.job.checkpoint

    def progress(self, fraction: float, message: str) -> None:
        """Set the progress, from 0 to 1; the next heartbeat sends it."""
        self._progress = {"fraction": fraction, "message": message}

    def save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save a checkpoint from which the next attempt resumes."""
        with self.registry.transaction() as tx:
            tx.jobs.checkpoint(self.lease, checkpoint)

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the handler must stop; call it between steps."""
        if self._interrupted is not None:
            raise Cancelled(self._interrupted)
        if self._stop.is_set():
            raise Cancelled("stopping")
        if time.monotonic() > self._deadline:
            raise Cancelled("expired")

    @contextmanager
    def finishing(self) -> Iterator[Transaction]:
        """Open the transaction in which the handler publishes and finishes its job.

        A stopping worker may still finish: the work is done, and the transaction is short. A
        cancelled job may not: its data set may have been deleted, and its name given to other data.

        The job is locked first, in the order of `Transaction`.

        Raises
        ------
        Cancelled: the job was cancelled.
        FencedError: another worker has the job.
        """
        with self._heartbeat_lock:
            if self._interrupted is not None:
                raise Cancelled(self._interrupted)
            with self.registry.transaction() as tx:
                if tx.jobs.hold(self.lease):
                    raise Cancelled("cancelled")
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
        row_digests: bytes | None = None,
    ) -> int:
        """Publish a calibrator and finish the job with it; return the version.

        The job's result is `result` with `model` and `version` added. `row_digests` are those of
        the fitted rows, if they are of no data set. Wait up to half a minute for
        an unavailable database; a retry is safe, because the fence admits a single attempt.

        Raises
        ------
        ConflictError: `promote_alias` does not point to `expected`.
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
                    row_digests,
                )
                outcome = {**(result or {}), "model": model.name, "version": version}
                tx.jobs.succeed(self.lease, outcome)
            return version

        for delay in _PUBLISH_RETRY_SECONDS:
            try:
                return attempt()
            except UnavailableError:
                if self._stop.wait(delay):
                    break
        return attempt()

    def beat(self, lease_seconds: float) -> None:
        """Extend the lease, unless the job is finished; called by the heartbeat."""
        with self._heartbeat_lock:
            if self.finished:
                return
            try:
                with self.registry.transaction() as tx:
                    cancel_requested = tx.jobs.heartbeat(self.lease, lease_seconds, self._progress)
            except FencedError:
                self._interrupted = "lost"
                raise
        if cancel_requested:
            self._interrupted = "cancelled"
