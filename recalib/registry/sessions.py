"""Queries of the table `sessions`: people who are signed in to the console."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any, NamedTuple

from sqlalchemy import delete, func, insert, or_, select, update

from recalib.core.access import Principal, hash_secret
from recalib.registry import tables
from recalib.registry.audit import Audit
from recalib.registry.base import Queries
from recalib.registry.clock import now

_TABLE = tables.sessions
_TOKEN_BYTES = 32
#: After a rotation, requests that are on their way may still bring the old token.
_GRACE_SECONDS = 60.0


class Session(NamedTuple):
    """A session that has not ended."""

    #: Of the secret of its API key; of a person, of the name.
    key_digest: bytes
    #: Seconds since its token was made.
    age_seconds: float
    #: Seconds until it ends.
    remaining_seconds: float
    #: The person whom the issuer of tokens has signed in, as of then; None for an API key.
    principal: Principal | None


class Sessions(Queries):
    """Sessions by their tokens, which are not stored; all server processes share them."""

    def open(self, opener: bytes | Principal, lifetime_seconds: float) -> str:
        """Create a session of an API key, by its digest, or of a person; return its token."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        facts: dict[str, Any] = {"key_digest": opener}
        if isinstance(opener, Principal):
            facts = {"key_digest": hash_secret(opener.name), "principal": _to_json(opener)}
        times = {"created_at": now(), "expires_at": now() + lifetime_seconds}
        self._connection.execute(insert(_TABLE).values(digest=hash_secret(token), **facts, **times))
        return token

    def find(self, token: str) -> Session | None:
        """Return the session of a token, or None if there is none or it has ended."""
        row = self._connection.execute(
            select(
                _TABLE.c.key_digest,
                now() - _TABLE.c.created_at,
                _TABLE.c.expires_at - now(),
                _TABLE.c.principal,
            ).where(_TABLE.c.digest == hash_secret(token), _TABLE.c.expires_at > now())
        ).one_or_none()
        if row is None:
            return None
        person = None if row[3] is None else _from_json(row[3])
        return Session(bytes(row[0]), row[1], row[2], person)

    def rotate(self, token: str, session: Session) -> str:
        """Return a new token of a session, which ends when it would have."""
        self._connection.execute(
            update(_TABLE)
            .where(_TABLE.c.digest == hash_secret(token))
            .values(created_at=now(), expires_at=now() + _GRACE_SECONDS)
        )
        return self.open(session.principal or session.key_digest, session.remaining_seconds)

    def close(self, token: str) -> None:
        """End the session of a token."""
        self._connection.execute(delete(_TABLE).where(_TABLE.c.digest == hash_secret(token)))

    def counts(self) -> dict[bytes, int]:
        """Return the number of sessions of each API key that has any, by the key's digest."""
        rows = self._connection.execute(
            select(_TABLE.c.key_digest, func.count())
            .where(_lasting(), _TABLE.c.principal.is_(None))
            .group_by(_TABLE.c.key_digest)
        )
        return {bytes(digest): count for digest, count in rows}

    def people(self) -> dict[Principal, int]:
        """Return the number of sessions of each person, with permissions, by name."""
        found = select(_TABLE.c.principal).where(_lasting(), _TABLE.c.principal.is_not(None))
        counts = Counter(map(_from_json, self._connection.scalars(found)))
        return dict(sorted(counts.items(), key=lambda item: item[0].name))

    def close_all(self, name: str, actor: str) -> None:
        """End the sessions of an API key, which stays as it is, or of a person."""
        keys = tables.api_keys.c
        of_key = select(keys.digest).where(keys.name == name).scalar_subquery()
        theirs = or_(_TABLE.c.key_digest == of_key, _TABLE.c.key_digest == hash_secret(name))
        if self._execute(delete(_TABLE).where(theirs)):
            Audit(self._connection).record(actor, "end_sessions", None, name)

    def purge(self) -> int:
        """Delete sessions that have ended; return their number."""
        return self._execute(delete(_TABLE).where(_TABLE.c.expires_at <= now()))


def _lasting() -> Any:
    """Return the condition that leaves out tokens that were rotated: they are no second session."""
    return _TABLE.c.expires_at > now() + _GRACE_SECONDS


def _to_json(person: Principal) -> dict[str, Any]:
    models = None if person.models is None else sorted(person.models)
    return {"name": person.name, "scopes": sorted(person.scopes), "models": models}


def _from_json(value: dict[str, Any]) -> Principal:
    models = None if value["models"] is None else frozenset(value["models"])
    return Principal(value["name"], frozenset(value["scopes"]), models)
