"""Queries of the table `signing_keys`: keys that sign prediction ids.

The newest key signs. Older keys verify until all ids that they have signed have expired.
"""

from __future__ import annotations

import os
from contextlib import suppress

from sqlalchemy import delete, insert, select

from recalib.core.prediction_ids import SigningKey
from recalib.errors import ConflictError
from recalib.registry import tables
from recalib.registry.base import Queries
from recalib.registry.clock import now

_TABLE = tables.signing_keys
_SECRET_BYTES = 32
#: A server that cannot reach the registry may sign with an old key for this long.
_SLACK_SECONDS = 86_400.0


class SigningKeys(Queries):
    """Keys, numbered from 1, shared by all server processes."""

    def newest(self) -> SigningKey | None:
        """Return the signing key, or None if there is no key."""
        row = self._connection.execute(
            select(_TABLE.c.number, _TABLE.c.secret).order_by(_TABLE.c.number.desc()).limit(1)
        ).one_or_none()
        return None if row is None else SigningKey(row.number, bytes(row.secret))

    def first(self) -> SigningKey:
        """Return the signing key; create it if there is none."""
        return self.newest() or self._create(1)

    def rotate(self) -> SigningKey:
        """Create a new signing key; existing ids stay valid."""
        newest = self.newest()
        return self._create(1 if newest is None else newest.number + 1)

    def revoke(self) -> int:
        """Delete all keys but the newest, which invalidates their ids; return their number."""
        newest = self.newest()
        if newest is None:
            return 0
        return self._execute(delete(_TABLE).where(_TABLE.c.number < newest.number))

    def all(self) -> dict[int, SigningKey]:
        """Return all keys by number."""
        rows = self._connection.execute(select(_TABLE.c.number, _TABLE.c.secret))
        return {row.number: SigningKey(row.number, bytes(row.secret)) for row in rows}

    def purge(self, lifetime_seconds: float) -> int:
        """Delete keys whose ids have all expired; return their number."""
        oldest = now() - (lifetime_seconds + _SLACK_SECONDS)
        # Keys before the newest key that is older than `oldest` were replaced before `oldest`.
        successor = (
            select(_TABLE.c.number)
            .where(_TABLE.c.created_at < oldest)
            .order_by(_TABLE.c.number.desc())
            .limit(1)
            .scalar_subquery()
        )
        return self._execute(delete(_TABLE).where(_TABLE.c.number < successor))

    def _create(self, number: int) -> SigningKey:
        # If another process has created this number meanwhile, its key is used.
        with suppress(ConflictError):
            self._insert(
                insert(_TABLE).values(
                    number=number, secret=os.urandom(_SECRET_BYTES), created_at=now()
                ),
                conflict=f"signing key {number} exists",
            )
        key = self.newest()
        assert key is not None  # noqa: S101  (it was created just now)
        return key
