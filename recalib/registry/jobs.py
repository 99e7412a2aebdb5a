"""Queries of the table `jobs`: a job queue with leases, in the database that the jobs change.

A worker claims a job for a lease time and extends the lease while it works. Every claim increments
the fencing token (`fence`) of the job. A worker writes only with its own token, so a worker that
was paused past its lease cannot change anything. An expired lease costs an attempt. A job without
attempts left fails, because it may be what kills its workers.

States: queued -> running -> succeeded | failed | cancelled, and back from running to queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    case,
    delete,
    func,
    insert,
    null,
    or_,
    select,
    update,
)

from recalib.contract.jobs import JobState
from recalib.core.resource_names import check_name, is_name
from recalib.errors import ConflictError, FencedError, NotFoundError
from recalib.observability.telemetry import current_traceparent
from recalib.registry import tables
from recalib.registry.base import Queries, select_page
from recalib.registry.clock import now
from recalib.registry.events import Events
from recalib.registry.job_kinds import MONITOR
from recalib.registry.job_turns import turns
from recalib.registry.models import Models
from recalib.registry.records import Job, Lease, Model

_TABLE = tables.jobs
_UNFINISHED = _TABLE.c.state.in_(("queued", "running"))
_EXPIRED = and_(_TABLE.c.state == "running", _TABLE.c.lease_expires < now())
_NO_ATTEMPTS_LEFT = (
    "no attempts left: the worker of the last attempt vanished, or was paused past its lease; "
    "the job itself may end its workers"
)
#: Longest stored error text, in characters.
_MAX_ERROR_LENGTH = 4000


class Jobs(Queries):
    """The job queue."""

    def enqueue(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        model: Model | None = None,
        priority: int = 0,
        run_after_seconds: float = 0.0,
        max_attempts: int = 3,
        unique: str | None = None,
        parameters: bytes | None = None,
        row_digests: bytes | None = None,
        checkpoint: dict[str, Any] | None = None,
        owner: str = "",
    ) -> Job:
        """Add a job; with `unique`, return the unfinished job of that key if there is one.

        Raise `NotFoundError` if the model was deleted or renamed meanwhile.

        Parameters
        ----------
        parameters, row_digests: a calibrator that the job publishes, see `Jobs.upload`.
        checkpoint: blobs of the job, which are removed when it has ended.
        owner: the key or token that requests it; empty if the server requests it itself.
        """
        if model is not None:
            Models(self._connection).hold(model)
        job_id = uuid4().hex
        statement = insert(_TABLE).values(
            id=job_id,
            kind=check_name("kind", kind),
            model_id=None if model is None else model.id,
            unique_key=unique,
            payload=payload,
            state="queued",
            priority=priority,
            run_after=now() + run_after_seconds,
            attempts=0,
            max_attempts=max_attempts,
            fence=0,
            cancel_requested=False,
            created_at=now(),
            trace=current_traceparent(),
            parameters=parameters,
            row_digests=row_digests,
            checkpoint=checkpoint,
            owner=owner,
        )
        try:
            self._insert(statement, conflict=f"an unfinished job has the key {unique!r}")
        except ConflictError:
            existing = self._find_unfinished(unique)
            if existing is not None:
                return existing
            # The job finished between the insert and this query.
            self._insert(statement, conflict=f"an unfinished job has the key {unique!r}")
        job = self.get(job_id)
        self._record("queued", job)
        return job

    def get(self, job_id: str, *, hold: bool = False) -> Job:
        """Return the job, or raise `NotFoundError`.

        Parameters
        ----------
        hold: lock its row until the transaction ends.
        """
        statement = _SELECT.where(_TABLE.c.id == job_id)
        locked = statement.with_for_update(of=_TABLE) if hold else statement
        return self._get(Job, locked, "job", job_id)

    def upload(self, job_id: str) -> tuple[bytes, bytes | None]:
        """Return the parameter file that an unfinished job publishes, and the digests of its rows.

        Raises
        ------
        NotFoundError: the job does not exist, has ended, or publishes no parameter file.
        """
        columns = select(_TABLE.c.parameters, _TABLE.c.row_digests).where(_TABLE.c.id == job_id)
        row = self._connection.execute(columns).one_or_none()
        if row is None or row.parameters is None:
            raise NotFoundError("the parameter file of job", job_id)
        digests = None if row.row_digests is None else bytes(row.row_digests)
        return bytes(row.parameters), digests

    def page(
        self,
        model: Model | None,
        state: JobState | None,
        before: int | None,
        limit: int,
        *,
        kind: str | None = None,
    ) -> list[Job]:
        """Return up to `limit` jobs, newest first, with a sequence below `before`."""
        statement = select_page(_SELECT, _TABLE.c.sequence, limit, before, newest_first=True)
        if model is not None:
            statement = statement.where(_TABLE.c.model_id == model.id)
        if state is not None:
            statement = statement.where(_TABLE.c.state == state)
        if kind is not None:
            statement = statement.where(_TABLE.c.kind == kind)
        return self._read(Job, statement)

    def latest(self, model: Model, kind: str) -> Job | None:
        """Return a model's newest job of a kind, or None."""
        of_kind = (_TABLE.c.model_id == model.id, _TABLE.c.kind == kind)
        statement = _SELECT.where(*of_kind).order_by(_TABLE.c.sequence.desc()).limit(1)
        return self._find(Job, statement)

    def last_success(self, kind: str, unique: str) -> float | None:
        """Return the time of the last success of a job with this unique key, or None."""
        of_key = (_TABLE.c.kind == kind, _TABLE.c.unique_key == unique)
        return self._connection.scalar(
            select(func.max(_TABLE.c.finished_at)).where(*of_key, _TABLE.c.state == "succeeded")
        )

    def is_waiting(self, unique: str) -> bool:
        """Return whether there is an unfinished job with this unique key."""
        return self._find_unfinished(unique) is not None

    def prune(self, kind: str, keep: int) -> int:
        """Delete finished jobs of a periodic kind, except the newest `keep`; return their number.

        Only for kinds that publish nothing: a calibrator refers to its job.
        """
        of_kind = (_TABLE.c.kind == kind, ~_UNFINISHED)
        newest = select(_TABLE.c.sequence).where(*of_kind).order_by(_TABLE.c.sequence.desc())
        oldest = self._connection.scalar(newest.offset(keep - 1).limit(1))
        if oldest is None:
            return 0
        return self._execute(delete(_TABLE).where(*of_kind, _TABLE.c.sequence < oldest))

    def leftover_checkpoints(self, limit: int = 100) -> dict[str, dict[str, Any]]:
        """Return the checkpoints of finished jobs, by job id."""
        leftover = (~_UNFINISHED, _TABLE.c.checkpoint.is_not(None))
        statement = select(_TABLE.c.id, _TABLE.c.checkpoint).where(*leftover).limit(limit)
        return {row.id: row.checkpoint for row in self._connection.execute(statement)}

    def clear_checkpoints(self, job_ids: Sequence[str]) -> None:
        """Remove the checkpoints of finished jobs."""
        self._connection.execute(
            update(_TABLE).where(_TABLE.c.id.in_(job_ids), ~_UNFINISHED).values(checkpoint=null())
        )

    def unfinished(self, model: Model) -> list[Job]:
        """Return the queued and the running jobs of a model, oldest first."""
        of_model = (_TABLE.c.model_id == model.id, _UNFINISHED)
        return self._read(Job, _SELECT.where(*of_model).order_by(_TABLE.c.sequence))

    def delete(self, job_id: str) -> None:
        """Hide a job; its content is erased later, see `recalib.registry.deletions`."""
        where = (_TABLE.c.id == job_id, _TABLE.c.deleted_at.is_(None))
        self._connection.execute(update(_TABLE).where(*where).values(deleted_at=now()))

    def counts(self) -> dict[tuple[str, JobState], int]:
        """Return the number of jobs by kind and state."""
        rows = self._connection.execute(
            select(_TABLE.c.kind, _TABLE.c.state, func.count()).group_by(
                _TABLE.c.kind, _TABLE.c.state
            )
        )
        return {(kind, state): count for kind, state, count in rows}

    def count_queued(self, owner: str) -> int:
        """Return the number of queued jobs of an owner."""
        queued = (_TABLE.c.state == "queued", _TABLE.c.owner == owner)
        return self._connection.scalar(select(func.count()).where(*queued)) or 0

    def cancel(self, job_id: str) -> Job:
        """Cancel a queued job, request cancellation of a running job, ignore a finished job.

        It is one statement: between two statements the job could change its state.
        """
        if not is_name(job_id):
            raise NotFoundError("job", job_id)
        queued = _TABLE.c.state == "queued"
        state = self._connection.scalar(
            update(_TABLE)
            .where(_TABLE.c.id == job_id, _UNFINISHED)
            .values(
                cancel_requested=True,
                state=case((queued, "cancelled"), else_=_TABLE.c.state),
                finished_at=case((queued, now()), else_=null()),
                **{name: case((queued, null()), else_=_TABLE.c[name]) for name in _UPLOAD},
            )
            .returning(_TABLE.c.state)
        )
        job = self.get(job_id)
        if state == "cancelled":
            self._record("cancelled", job)
        return job

    def claim(self, worker: str, kinds: Sequence[str], lease_seconds: float) -> Lease | None:
        """Claim the next job of these kinds; None if there is none.

        The highest priority is first; then owners and models take turns, see `turns`. With SKIP
        LOCKED, concurrent workers of PostgreSQL claim different jobs. In SQLite, the write lock on
        the file serialises them.
        """
        self._end_expired_jobs()
        # created_at > now(): the clock was set back, so `run_after` means nothing.
        is_due = or_(_TABLE.c.run_after <= now(), _TABLE.c.created_at > now())
        ready = and_(_TABLE.c.state == "queued", is_due)
        # A job without attempts left, whose lease has expired since, is ended by the next claim.
        expired = and_(_EXPIRED, _TABLE.c.attempts < _TABLE.c.max_attempts)
        candidate = (
            select(_TABLE.c.sequence)
            .where(_TABLE.c.kind.in_(kinds), or_(ready, expired))
            .order_by(_TABLE.c.priority.desc(), *turns())
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        statement = (
            update(_TABLE)
            .where(_TABLE.c.sequence == candidate.scalar_subquery())
            .values(
                state="running",
                worker=worker,
                fence=_TABLE.c.fence + 1,
                attempts=_TABLE.c.attempts + 1,
                lease_expires=now() + lease_seconds,
                started_at=case((_TABLE.c.started_at.is_(None), now()), else_=_TABLE.c.started_at),
                progress=None,
                error=None,
            )
            .returning(_TABLE.c.id, _TABLE.c.fence, _TABLE.c.trace)
        )
        row = self._connection.execute(statement).one_or_none()
        if row is None:
            return None
        job = self.get(row.id)
        self._record("started", job)
        return Lease(job, row.fence, row.trace)

    def hold(self, lease: Lease) -> bool:
        """Lock the job until the transaction ends; return whether cancellation is requested.

        An expired lease is still valid if no other worker has claimed the job: the row is locked,
        so no worker can claim it before this transaction ends.

        Raises
        ------
        FencedError: the lease is lost.
        """
        requested = self._connection.scalar(
            select(_TABLE.c.cancel_requested).where(_is_held(lease)).with_for_update()
        )
        if requested is None:
            raise _fenced_error(lease)
        return bool(requested)

    def heartbeat(
        self, lease: Lease, lease_seconds: float, progress: dict[str, Any] | None = None
    ) -> bool:
        """Extend the lease, store the progress; return whether cancellation is requested."""
        values: dict[str, Any] = {"lease_expires": now() + lease_seconds}
        if progress is not None:
            values["progress"] = progress
        return self._write(lease, **values)

    def checkpoint(self, lease: Lease, checkpoint: dict[str, Any]) -> None:
        """Store a checkpoint, from which the next attempt resumes."""
        self._write(lease, checkpoint=checkpoint)

    def succeed(self, lease: Lease, result: dict[str, Any]) -> None:
        """Finish the job, in the transaction that publishes its result."""
        self._write(lease, state="succeeded", result=result, **_FINISHED)
        self._record("succeeded", lease.job)

    def fail(self, lease: Lease, error: str, retry_after_seconds: float | None) -> None:
        """Requeue the job after a delay; fail it if the delay is None or no attempts are left."""
        error = _storable(error)
        if retry_after_seconds is None or lease.job.attempts >= lease.job.max_attempts:
            self._write(lease, state="failed", error=error, **_FINISHED)
            self._record("failed", lease.job, error)
        else:
            self._requeue(lease, error=error, run_after=now() + retry_after_seconds)

    def release(self, lease: Lease) -> None:
        """Requeue the job without counting the attempt."""
        self._requeue(lease, attempts=_TABLE.c.attempts - 1)

    def acknowledge_cancel(self, lease: Lease) -> None:
        """Finish a job that has stopped on request."""
        self._write(lease, state="cancelled", **_FINISHED)
        self._record("cancelled", lease.job)

    def _requeue(self, lease: Lease, **values: Any) -> None:
        # Cancellation may have been requested since the last heartbeat; then the job must not run.
        requested = _TABLE.c.cancel_requested
        is_cancelled = self._write(
            lease,
            state=case((requested, "cancelled"), else_="queued"),
            finished_at=case((requested, now()), else_=null()),
            lease_expires=None,
            **{name: case((requested, null()), else_=_TABLE.c[name]) for name in _UPLOAD},
            **values,
        )
        self._record("cancelled" if is_cancelled else "requeued", lease.job, values.get("error"))

    def _write(self, lease: Lease, **values: Any) -> bool:
        """Change the leased job; return whether cancellation is requested."""
        requested = self._connection.scalar(
            update(_TABLE)
            .where(_is_held(lease))
            .values(**values)
            .returning(_TABLE.c.cancel_requested)
        )
        if requested is None:
            raise _fenced_error(lease)
        return bool(requested)

    def _end_expired_jobs(self) -> None:
        """End the jobs with an expired lease and no attempts left.

        SKIP LOCKED: a late worker that is publishing has its job locked and will finish it.
        """
        self._end_expired(_TABLE.c.cancel_requested, state="cancelled")
        self._end_expired(
            _TABLE.c.attempts >= _TABLE.c.max_attempts, state="failed", error=_NO_ATTEMPTS_LEFT
        )

    def _end_expired(self, condition: ColumnElement[bool], **values: Any) -> None:
        expired = select(_TABLE.c.sequence).where(_EXPIRED, condition)
        ended = self._connection.scalars(
            update(_TABLE)
            .where(_TABLE.c.sequence.in_(expired.with_for_update(skip_locked=True)))
            .values(**values, **_FINISHED)
            .returning(_TABLE.c.id)
        )
        for job_id in ended.all():
            job = self._find(Job, _SELECT.where(_TABLE.c.id == job_id))
            if job is not None:  # None: its model was deleted
                self._record(values["state"], job, values.get("error"))

    def _record(self, verb: str, job: Job, error: str | None = None) -> None:
        # The monitoring job runs every minute; what it changes has its own events.
        if job.kind == MONITOR and verb != "failed":
            return
        data = {"job": job.id, "kind": job.kind, "attempts": job.attempts}
        if error is not None:
            data["error"] = error
        Events(self._connection).record(f"job.{verb}", job.model, data)

    def _find_unfinished(self, unique: str | None) -> Job | None:
        return self._find(Job, _SELECT.where(_TABLE.c.unique_key == unique, _UNFINISHED))


#: Columns of the upload, which a job does not keep after its end.
_UPLOAD = ("parameters", "row_digests")
_FINISHED: dict[str, Any] = {
    "finished_at": now(),
    "lease_expires": None,
    **dict.fromkeys(_UPLOAD),
}

_COLUMNS = [_TABLE.c[field.name] for field in fields(Job) if field.name != "model"]
_SELECT: Select[Any] = (
    select(*_COLUMNS, tables.models.c.name.label("model"))
    .outerjoin(tables.models, tables.models.c.id == _TABLE.c.model_id)
    # The jobs of a deleted model are deleted with it.
    .where(_TABLE.c.deleted_at.is_(None), tables.models.c.deleted_at.is_(None))
)


def _is_held(lease: Lease) -> ColumnElement[bool]:
    return and_(
        _TABLE.c.id == lease.job.id, _TABLE.c.fence == lease.fence, _TABLE.c.state == "running"
    )


def _fenced_error(lease: Lease) -> FencedError:
    return FencedError(f"job {lease.job.id} is no longer held under fence {lease.fence}")


def _storable(error: str) -> str:
    # PostgreSQL text allows neither NUL nor lone surrogates. A job whose error cannot be stored
    # would be retried for ever.
    text = error[:_MAX_ERROR_LENGTH].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "replace").decode()
