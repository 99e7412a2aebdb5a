"""Queries of the table of answers to requests that carried an idempotency key."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.clock import now
from recalib.registry.records import StoredResponse

__all__ = ["Idempotency"]

_TABLE = tables.idempotency


class Idempotency(Queries):
    """Answers kept for a while, so that a repeated request gets its first answer again.

    `scope` keeps the keys of different callers and operations apart; `fingerprint` tells whether
    a key comes back with another request.
    """

    def find(self, key: str, scope: str) -> StoredResponse | None:
        """Return what was answered, or None."""
        row = self._connection.execute(
            select(_TABLE.c.fingerprint, _TABLE.c.status, _TABLE.c.body, _TABLE.c.created_at).where(
                _TABLE.c.key == key, _TABLE.c.scope == scope
            )
        ).one_or_none()
        return None if row is None else StoredResponse(**row._mapping)

    def store(self, key: str, scope: str, fingerprint: str, status: int, body: bytes) -> None:
        """Keep an answer, in the transaction of the work itself.

        `ConflictError` where another request with the key committed first: its work stands, the
        caller's rolls back, and a second look with `find` has the answer to give.
        """
        self._insert(
            insert(_TABLE).values(
                key=key,
                scope=scope,
                fingerprint=fingerprint,
                status=status,
                body=body,
                created_at=now(),
            ),
            conflict=f"idempotency key {key!r} is in use by another request",
        )

    def purge(self, older_than_seconds: float) -> int:
        """Forget answers older than that; return how many."""
        result = self._connection.execute(
            delete(_TABLE).where(_TABLE.c.created_at < now() - older_than_seconds)
        )
        return int(result.rowcount)
