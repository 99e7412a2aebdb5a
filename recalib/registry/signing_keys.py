"""Queries of the table of keys that prediction ids are signed with.

The newest signs; the ones before it still verify, until every id that they signed has expired.
"""

from __future__ import annotations

import os
from contextlib import suppress

from sqlalchemy import delete, insert, select

from recalib.errors import ConflictError
from recalib.prediction_ids import SigningKey
from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.clock import now

__all__ = ["SigningKeys"]

_TABLE = tables.signing_keys
_SECRET_BYTES = 32
#: A server that cannot reach the registry goes on signing with the key that it has.
_SLACK_SECONDS = 86_400.0


class SigningKeys(Queries):
    """Keys, numbered from 1 and made here; all server processes share them."""

    def newest(self) -> SigningKey | None:
        """Return the key to sign with, or None before the first."""
        row = self._connection.execute(
            select(_TABLE.c.number, _TABLE.c.secret).order_by(_TABLE.c.number.desc()).limit(1)
        ).one_or_none()
        return None if row is None else SigningKey(row.number, bytes(row.secret))

    def first(self) -> SigningKey:
        """Return the key to sign with, making one where there is none."""
        return self.newest() or self._made(1)

    def rotate(self) -> SigningKey:
        """Make a new key to sign with; ids that are out stay good."""
        newest = self.newest()
        return self._made(1 if newest is None else newest.number + 1)

    def revoke(self) -> int:
        """Give up all but the newest key, as after a leak: ids signed with them are invalid now.

        Return how many were given up.
        """
        newest = self.newest()
        if newest is None:
            return 0
        result = self._connection.execute(delete(_TABLE).where(_TABLE.c.number < newest.number))
        return int(result.rowcount)

    def all(self) -> dict[int, SigningKey]:
        """Return every key that verifies, by number."""
        rows = self._connection.execute(select(_TABLE.c.number, _TABLE.c.secret))
        return {row.number: SigningKey(row.number, bytes(row.secret)) for row in rows}

    def purge(self, lifetime_seconds: float) -> int:
        """Forget keys whose last ids have expired; return how many."""
        oldest = now() - (lifetime_seconds + _SLACK_SECONDS)
        # The newest of those that were no longer the newest: all before it were replaced earlier.
        successor = (
            select(_TABLE.c.number)
            .where(_TABLE.c.created_at < oldest)
            .order_by(_TABLE.c.number.desc())
            .limit(1)
            .scalar_subquery()
        )
        result = self._connection.execute(delete(_TABLE).where(_TABLE.c.number < successor))
        return int(result.rowcount)

    def _made(self, number: int) -> SigningKey:
        # Where another process has made the key of this number meanwhile, that one serves both.
        with suppress(ConflictError):
            self._insert(
                insert(_TABLE).values(
                    number=number, secret=os.urandom(_SECRET_BYTES), created_at=now()
                ),
                conflict=f"signing key {number} exists",
            )
        key = self.newest()
        assert key is not None  # noqa: S101  (made just now, by us or by another)
        return key
