"""Queries of `recalib doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from recalib.registry import migrate, tables
from recalib.registry.base import Queries
from recalib.registry.clock import now

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class JobHealth:
    """The state of the job queue.

    Attributes
    ----------
    expired_leases: running jobs whose worker no longer renews its lease.
    failed_last_day: jobs that failed in the last 24 hours.
    longest_wait_seconds: how long the oldest queued job has been due; at most 0 if none is due.
    """

    queued: int
    running: int
    expired_leases: int
    failed_last_day: int
    longest_wait_seconds: float


class HealthChecks(Queries):
    """Read-only queries on the state of the database."""

    @property
    def dialect(self) -> str:
        """The name of the database system: ``sqlite`` or ``postgresql``."""
        return self._connection.dialect.name

    def schema_revision(self) -> str | None:
        """Return the schema's revision, None for an empty database."""
        return migrate.current(self._connection)

    def jobs(self) -> JobHealth:
        """Return the state of the job queue."""
        jobs = tables.jobs.c
        queued, running = jobs.state == "queued", jobs.state == "running"
        failed = jobs.state == "failed"
        row = self._connection.execute(
            select(
                func.count().filter(queued),
                func.count().filter(running),
                func.count().filter(running, jobs.lease_expires < now()),
                func.count().filter(failed),
                now() - func.min(jobs.run_after).filter(queued),
            ).where(queued | running | (failed & (jobs.finished_at > now() - _DAY_SECONDS)))
        ).one()
        return JobHealth(*row[:4], longest_wait_seconds=row[4] or 0.0)
