"""Queries of the table `idempotency`: responses to requests with an idempotency key."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from recalib.registry import tables
from recalib.registry.base import Queries, columns_without
from recalib.registry.clock import now
from recalib.registry.records import StoredResponse

_TABLE = tables.idempotency


class Idempotency(Queries):
    """Stored responses: a repeated request gets the response to the first.

    `scope` separates the keys of different callers and operations. `fingerprint` shows whether a
    key is reused for a different request.
    """

    def find(self, key: str, scope: str) -> StoredResponse | None:
        """Return the stored response, or None."""
        columns = columns_without(_TABLE, "key", "scope")
        stored = select(*columns).where(_TABLE.c.key == key, _TABLE.c.scope == scope)
        return self._find(StoredResponse, stored)

    def store(self, key: str, scope: str, fingerprint: str, status: int, body: bytes) -> None:
        """Store a response, in the transaction of the work itself.

        Raise `ExistsError` if another request with the key has committed first. The caller then
        rolls back, and `find` returns the response of the other request.
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
        """Delete older responses; return their number."""
        return self._execute(delete(_TABLE).where(_TABLE.c.created_at < now() - older_than_seconds))
