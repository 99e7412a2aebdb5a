"""Queries of the table `api_keys`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import insert, select, update

from recalib.core.access import ApiKey, Limits, check_scopes, check_secret, hash_secret, new_secret
from recalib.core.resource_names import check_name
from recalib.errors import InputError
from recalib.registry import tables
from recalib.registry.audit import Audit
from recalib.registry.base import Queries
from recalib.registry.clock import now, read_clock

_TABLE = tables.api_keys
_NO_LIMITS = Limits()
#: Actors without a key in the audit trail.
_RESERVED = frozenset({"anonymous", "cli", "monitor", "worker"})


class ApiKeys(Queries):
    """Keys by name. A revoked key keeps its name, which then stays unique in the audit trail."""

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
        """Create a key and return its secret, which is not stored.

        Parameters
        ----------
        models: the models that it may use, existing or not; None for all.
        limits: the limits of the key; None in a field means the server's limit.
        actor: the actor in the audit trail.
        secret: a secret from `recalib.core.access.new_secret`; None creates a new secret.

        Raises
        ------
        InputError: a name, scope, model, lifetime, secret or limit is not valid.
        ExistsError: an active or revoked key has the name.
        """
        check_name("name", name)
        if name in _RESERVED:
            accepted = "another name: this name is reserved in the audit trail"
            raise InputError("name", found=repr(name), accepted=accepted)
        for model in models or ():
            check_name("model", model)
        if models is not None and not models:
            raise InputError(
                "model", found="none", accepted="at least one model, or no option for all"
            )
        if lifetime_seconds is not None and not 0 < lifetime_seconds < 1e10:
            raise InputError("expires", found=f"{lifetime_seconds} s", accepted="more than 0 s")
        secret = new_secret() if secret is None else check_secret(secret)
        created_at = read_clock(self._connection)
        self._insert(
            insert(_TABLE).values(
                name=name,
                digest=hash_secret(secret),
                scopes=list(check_scopes(scopes)),
                models=None if models is None else sorted(set(models)),
                created_at=created_at,
                expires_at=None if lifetime_seconds is None else created_at + lifetime_seconds,
                limits=_overrides(limits.checked()) or None,
            ),
            conflict=f"there is or was an API key named {name!r}",
        )
        detail = f"{', '.join(scopes)}; {'all models' if models is None else ', '.join(models)}"
        Audit(self._connection).record(actor, "create_key", None, name, detail)
        return secret

    def is_valid(self, name: str, secret: str) -> bool:
        """Return whether an active key has this name and this secret."""
        digest = hash_secret(secret)
        return any(key.name == name and key.digest == digest for key in self.active())

    def all(self) -> list[ApiKey]:
        """Return all keys, including revoked and expired keys, oldest first."""
        return self._read(_key, select(_TABLE).order_by(_TABLE.c.id))

    def active(self) -> list[ApiKey]:
        """Return the keys that are neither revoked nor expired."""
        valid = (_TABLE.c.revoked_at.is_(None)) & (
            _TABLE.c.expires_at.is_(None) | (_TABLE.c.expires_at > now())
        )
        return self._read(_key, select(_TABLE).where(valid).order_by(_TABLE.c.id))

    def limit(
        self, name: str, limits: Limits, actor: str = "cli", *, reset: bool = False
    ) -> ApiKey:
        """Change the limits of a key; None keeps a limit, or with `reset` removes it.

        Raises
        ------
        InputError: a limit is not valid, or the key is revoked.
        NotFoundError: there is no key of that name.
        """
        before = self._get_by_name(name, locked=True)
        if before.revoked_at is not None:
            raise InputError("name", found=f"{name}, which is revoked", accepted="another key")
        limits = limits.checked() if reset else limits.checked().over(before.limits)
        overrides = _overrides(limits)
        self._execute(update(_TABLE).where(_TABLE.c.name == name).values(limits=overrides or None))
        detail = ", ".join(f"{field} {value:.15g}" for field, value in overrides.items())
        Audit(self._connection).record(actor, "limit_key", None, name, detail or "server limits")
        return replace(before, limits=limits)

    def revoke(self, name: str, actor: str = "cli") -> ApiKey:
        """Revoke a key permanently; `NotFoundError` if there is no key of that name."""
        valid = (_TABLE.c.name == name, _TABLE.c.revoked_at.is_(None))
        revoked = self._execute(update(_TABLE).where(*valid).values(revoked_at=now()))
        key = self._get_by_name(name)
        if revoked:
            Audit(self._connection).record(actor, "revoke_key", None, name)
        return key

    def _get_by_name(self, name: str, *, locked: bool = False) -> ApiKey:
        statement = select(_TABLE).where(_TABLE.c.name == name)
        return self._get(
            _key, statement.with_for_update() if locked else statement, "API key", name
        )


def _key(
    *, id: int, digest: bytes, scopes: list[str], models: list[str] | None, limits: Any, **row: Any
) -> ApiKey:
    return ApiKey(
        **row,
        digest=bytes(digest),
        scopes=tuple(scopes),
        models=None if models is None else tuple(models),
        limits=Limits(**(limits or {})),
    )


def _overrides(limits: Limits) -> dict[str, float]:
    return {name: value for name, value in asdict(limits).items() if value is not None}
