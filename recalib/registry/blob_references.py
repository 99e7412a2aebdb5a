"""Which blobs the tables refer to."""

from __future__ import annotations

from sqlalchemy import String, and_, cast, func, or_, select

from recalib.registry import monitoring_tables, tables
from recalib.registry.base import Queries
from recalib.registry.job_kinds import BATCH, EVALUATE, REPLAY, TRAIN

#: Kinds of jobs with files in the blob store.
_KINDS = (BATCH, EVALUATE, REPLAY, TRAIN)
#: PostgreSQL's locks are 64-bit integers; two digests with the same one only wait for each other.
_LOCK_BITS = 63


class BlobReferences(Queries):
    """References to blobs from data sets, captures, and jobs.

    A transaction that adds or removes a reference to shared content calls `lock` first.
    """

    def lock(self, digest: str) -> None:
        """Make other transactions with this digest wait until this transaction ends."""
        if self._connection.dialect.name == "postgresql":
            key = int(digest, 16) & (1 << _LOCK_BITS) - 1
            self._connection.execute(select(func.pg_advisory_xact_lock(key)))

    def exist(self, digest: str) -> bool:
        """Return whether a row refers to the blob."""
        jobs, captures = tables.jobs.c, monitoring_tables.captures.c
        in_jobs = or_(
            cast(jobs.result, String).contains(digest),
            # Blobs of a job that has ended are removed.
            and_(
                jobs.state.in_(("queued", "running")),
                cast(jobs.checkpoint, String).contains(digest),
            ),
        )
        queries = [
            select(tables.datasets.c.id).where(tables.datasets.c.digest == digest),
            select(captures.id).where(captures.digest == digest),
            select(jobs.id).where(jobs.kind.in_(_KINDS), in_jobs),
        ]
        return any(self._connection.scalar(query.limit(1)) is not None for query in queries)
