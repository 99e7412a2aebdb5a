"""Queries of the table of API keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Row, insert, select, update

from recalib.access import ApiKey, Limits, check_scopes, check_secret, hash_secret, new_secret
from recalib.errors import InputError, NotFoundError
from recalib.registry import tables
from recalib.registry.audit import Audit
from recalib.registry.base import Queries
from recalib.registry.clock import now
from recalib.registry.resource_names import check_name

__all__ = ["ApiKeys"]

_TABLE = tables.api_keys
_NO_LIMITS = Limits()
#: What acts without a key.
_RESERVED = frozenset({"anonymous", "cli", "monitor", "worker"})


class ApiKeys(Queries):
    """Keys by name; one that is revoked stays, so that its name in the audit trail stays its."""

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        models: Sequence[str] | None = None,
        lifetime_seconds: float | None = None,
        secret: str | None = None,
        limits: Limits = _NO_LIMITS,
        actor: str = "cli",
    ) -> str:
        """Make a key, and return its secret, which is kept nowhere.

        Parameters
        ----------
        models: what it is bound to; None for all there are and will be. They need not exist yet.
        limits: its own; what is None is as servers have it.
        actor: who makes it, as the audit trail is to have it.
        secret: one that `recalib.access.new_secret` made; a new one where it is None.

        Raises
        ------
        InputError: a name, scope, model, lifetime, secret or limit that cannot be one.
        ExistsError: the name is another key's, or was.
        """
        check_name("name", name)
        if name in _RESERVED:
            accepted = "another name: the audit trail has this one for somebody else"
            raise InputError("name", found=repr(name), accepted=accepted)
        for one in models or ():
            check_name("model", one)
        if models is not None and not models:
            raise InputError("model", found="none", accepted="one or more, or nothing for all")
        if lifetime_seconds is not None and not 0 < lifetime_seconds < 1e10:
            raise InputError("expires", found=f"{lifetime_seconds} s", accepted="more than 0 s")
        secret = new_secret() if secret is None else check_secret(secret)
        made = self._clock()
        self._insert(
            insert(_TABLE).values(
                name=name,
                digest=hash_secret(secret),
                scopes=list(check_scopes(scopes)),
                models=None if models is None else sorted(set(models)),
                created_at=made,
                expires_at=None if lifetime_seconds is None else made + lifetime_seconds,
                limits=_own(limits.checked()) or None,
            ),
            conflict=f"there is or was an API key named {name!r}",
        )
        said = f"{', '.join(scopes)}; {'all models' if models is None else ', '.join(models)}"
        Audit(self._connection).record(actor, "create_key", None, name, said)
        return secret

    def is_valid(self, name: str, secret: str) -> bool:
        """Return whether there is an active key of that name with that secret."""
        digest = hash_secret(secret)
        return any(key.name == name and key.digest == digest for key in self.active())

    def all(self) -> list[ApiKey]:
        """Return every key that ever was, the oldest first."""
        return [_key(row) for row in self._connection.execute(select(_TABLE).order_by(_TABLE.c.id))]

    def active(self) -> list[ApiKey]:
        """Return the keys that are neither revoked nor expired."""
        valid = (_TABLE.c.revoked_at.is_(None)) & (
            _TABLE.c.expires_at.is_(None) | (_TABLE.c.expires_at > now())
        )
        rows = self._connection.execute(select(_TABLE).where(valid).order_by(_TABLE.c.id))
        return [_key(row) for row in rows]

    def limit(
        self, name: str, limits: Limits, actor: str = "cli", *, reset: bool = False
    ) -> ApiKey:
        """Give a key other limits; what is None stays, or with `reset` is as servers have it.

        Raises
        ------
        InputError: a limit that cannot be one, or a key that is revoked.
        NotFoundError: no key of that name.
        """
        before = self._named(name, locked=True)
        if before.revoked_at is not None:
            raise InputError("name", found=f"{name}, which is revoked", accepted="another key")
        limits = limits.checked() if reset else limits.checked().over(before.limits)
        own = _own(limits)
        self._connection.execute(
            update(_TABLE).where(_TABLE.c.name == name).values(limits=own or None)
        )
        said = ", ".join(f"{field} {value:.15g}" for field, value in own.items())
        Audit(self._connection).record(actor, "limit_key", None, name, said or "as servers say")
        return replace(before, limits=limits)

    def revoke(self, name: str, actor: str = "cli") -> ApiKey:
        """Give a key up for good; `NotFoundError` where there is none of that name."""
        revoked = self._connection.execute(
            update(_TABLE)
            .where(_TABLE.c.name == name, _TABLE.c.revoked_at.is_(None))
            .values(revoked_at=now())
        )
        key = self._named(name)
        if revoked.rowcount:
            Audit(self._connection).record(actor, "revoke_key", None, name)
        return key

    def _named(self, name: str, *, locked: bool = False) -> ApiKey:
        statement = select(_TABLE).where(_TABLE.c.name == name)
        row = self._connection.execute(
            statement.with_for_update() if locked else statement
        ).one_or_none()
        if row is None:
            raise NotFoundError("API key", name)
        return _key(row)

    def _clock(self) -> float:
        return float(self._connection.execute(select(now())).scalar_one())


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        row.name,
        bytes(row.digest),
        tuple(row.scopes),
        None if row.models is None else tuple(row.models),
        row.created_at,
        row.expires_at,
        row.revoked_at,
        Limits(**(row.limits or {})),
    )


def _own(limits: Limits) -> dict[str, float]:
    return {name: value for name, value in asdict(limits).items() if value is not None}
