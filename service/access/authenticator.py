"""From what a request brings to who asks, and whether that one may."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

from recalib.access import ANONYMOUS, Limits, Principal, hash_secret
from recalib.errors import ForbiddenError, UnauthorizedError, UnavailableError
from recalib.registry import Registry, is_name
from service.access.limits import FailedAttempts, Limiter
from service.access.oidc import MAX_TOKEN_LENGTH, SigningKeyUnknownError, is_token
from service.access.permissions import MODEL_CHECKED_LATER, MUTATING, RULES
from service.single_flight import SingleFlight

if TYPE_CHECKING:
    from service.access.oidc_tokens import TokenVerifier

__all__ = ["Authenticator", "current_principal", "set_principal"]

#: How long a request waits for the issuer to say whether it has a key.
_PATIENCE_SECONDS = 5.0
#: Kinds of refusals that are kept until they are written.
_MOST_REFUSED = 50
_NO_LIMITS = Limits()
_acting: ContextVar[Principal] = ContextVar("current_principal", default=ANONYMOUS)


def current_principal() -> Principal:
    """Return who asks, in the work for a request."""
    return _acting.get()


def set_principal(principal: Principal) -> None:
    """Say who asks, for the rest of this request."""
    _acting.set(principal)


class Authenticator:
    """The keys of a registry, as this process last saw them; safe to use from threads.

    Something has to call `refresh` and `look` now and then: a key that is made or revoked counts
    from then on. While the registry is away, those that were good stay good until they expire.

    Parameters
    ----------
    required: whether everybody must have a key. Where that is not so, whoever has none may do
        everything, and whoever brings one may do what it is for.
    tokens: what checks those of an issuer, where one is trusted.
    usual: limits of everybody who brings a key or a token, where a key has none of its own.
    """

    def __init__(
        self,
        registry: Registry,
        required: bool,
        tokens: TokenVerifier | None = None,
        usual: Limits = _NO_LIMITS,
    ) -> None:
        self._registry = registry
        self.required = required
        self._tokens = tokens
        self._usual = usual
        self._single_flight: SingleFlight[None] = SingleFlight(1)
        #: Who comes with a key and until when, by its digest.
        self._keys: dict[bytes, tuple[Principal, float]] | None = None
        self.limiter = Limiter()
        #: Whether anybody has a limit.
        self.limits_some = not usual.is_none
        self._failed = FailedAttempts()
        self._refused: dict[tuple[str, str, str | None], int] = {}

    def refresh(self) -> None:
        """Look which keys there are."""
        with self._registry.reading() as tx:
            active = tx.api_keys.active()
        self.limits_some = not (self._usual.is_none and all(key.limits.is_none for key in active))
        self._keys = {
            key.digest: (
                key.principal.limited(self._usual),
                math.inf if key.expires_at is None else key.expires_at,
            )
            for key in active
        }

    async def look(self, *, due: bool = False) -> None:
        """Ask the issuer of tokens for its keys, with all who want that now.

        Whether it answers or not: what is asked next says what there is.

        Parameters
        ----------
        due: only where it is time to, though nobody wants it.
        """
        tokens = self._tokens
        if tokens is None or (due and not tokens.keys.is_due):
            return
        with contextlib.suppress(UnavailableError, TimeoutError):
            flight = asyncio.wrap_future(self._single_flight.submit("issuer", tokens.keys.look))
            await asyncio.wait_for(flight, _PATIENCE_SECONDS)

    async def identified(self, authorization: str, address: str) -> Principal:
        """Return who comes, as `principal`, having waited for an issuer's new key.

        Parameters
        ----------
        address: where from, as sockets have it.

        Raises
        ------
        LimitedError: nobody is known, and that has been so too often for this address.
        """
        try:
            try:
                return self.principal(authorization, address)
            except SigningKeyUnknownError:
                await self.look()
                return self.principal(authorization)
        except UnauthorizedError:
            if authorization:
                self._failed.note(address)
            raise

    def principal(self, authorization: str, address: str | None = None) -> Principal:
        """Return who comes with a header `Authorization`, empty where there is none.

        Parameters
        ----------
        address: where from, for who was not asked about this before: signatures take long, and
            those of an address that has sent many bad ones are not looked at.

        Raises
        ------
        UnauthorizedError: no key where one is needed, or one that is not known or has expired.
        KeysWantedError: a token's key is not known, but `look` may find it.
        UnavailableError: this process has not seen the registry's keys yet, or the issuer's.
        """
        if not authorization:
            if self.required:
                raise UnauthorizedError("an API key is needed: send Authorization: Bearer KEY")
            return ANONYMOUS
        # A little more than a token, for the word before it.
        kind, _, secret = authorization[: MAX_TOKEN_LENGTH + 16].partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise UnauthorizedError(
                "Authorization is not understood: send Authorization: Bearer KEY"
            )
        secret = secret.strip()
        if self._tokens is not None and is_token(secret):
            if address is not None and not self._tokens.remembers(secret):
                self._failed.check(address)
            principal = self._tokens.principal(secret)
            return principal.limited(self._usual) if self.limits_some else principal
        if self._keys is None:
            raise UnavailableError("API keys cannot be checked: the registry has not answered yet")
        # By its digest, so that the time it takes says nothing of a key that is near.
        found = self._keys.get(hash_secret(secret))
        if found is None or found[1] <= time.time():
            raise UnauthorizedError("the API key is not known here, or has expired or been revoked")
        return found[0]

    def authorise(self, principal: Principal, operation: str, model: str | None) -> None:
        """Return if a caller may do an operation.

        Parameters
        ----------
        operation: a key of `RULES`.
        model: the model that the operation concerns, or None.

        Raises
        ------
        ForbiddenError: the caller has no scope for it, or none for this model.
        """
        rule = RULES.get(operation)
        if rule is None:
            raise ForbiddenError(f"there is no rule for {operation}")
        if rule == "open" or principal is ANONYMOUS:  # who may do everything
            return
        try:
            if rule == "any":
                principal.check_any_scope()
                return
            principal.check_scope(rule)
            if operation not in MODEL_CHECKED_LATER:
                principal.check_model(model)
        except ForbiddenError:
            self._note_refusal(principal, operation, model)
            raise

    def write_refusals(self) -> None:
        """Put into the audit trail who was refused what since the last time."""
        if not self._refused:
            return
        refused, self._refused = self._refused, {}
        with self._registry.transaction() as tx:
            for (name, operation, model), times in refused.items():
                said = "" if times == 1 else f"{times} times"
                tx.audit.record(name, operation, model, model or "", said, result="refused")

    def _note_refusal(self, principal: Principal, operation: str, model: str | None) -> None:
        """Keep for the audit trail that somebody tried to change what is not for him.

        Together with others of the same, and of so many kinds at most: no caller, however often he
        tries, may fill a database with it.
        """
        key = (principal.name, operation, model if model is None or is_name(model) else None)
        if operation in MUTATING and (key in self._refused or len(self._refused) < _MOST_REFUSED):
            self._refused[key] = self._refused.get(key, 0) + 1
