"""Authentication and authorisation of callers."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from recalib.core.access import ANONYMOUS, Limits, Principal, hash_secret
from recalib.errors import ForbiddenError, NotFoundError, UnauthorizedError, UnavailableError
from recalib.registry import Registry, is_name
from service.access.limits import FailedAttempts, Limiter
from service.access.oidc import MAX_TOKEN_LENGTH, SigningKeyUnknownError, is_token
from service.access.oidc_sign_in import Attempt, sign_in
from service.access.trusted_proxies import TrustedProxies
from service.operations import OPERATIONS, Operation
from service.single_flight import SingleFlight

if TYPE_CHECKING:
    from recalib.registry.sessions import Session
    from service.access.oidc_tokens import TokenVerifier

#: How long a request waits for the issuer's signing keys.
_ISSUER_TIMEOUT_SECONDS = 5.0
#: Distinct refusals of a caller that are held until they are written to the audit trail. Further
#: ones are counted by operation, without their models, so that decoys hide none.
_MAX_REFUSALS = 50
#: Prefix of the pages for people, who have sessions.
CONSOLE = "/console/"
_NO_LIMITS = Limits()
_NO_PROXIES = TrustedProxies()
_current_principal: ContextVar[Principal] = ContextVar("current_principal", default=ANONYMOUS)


def current_principal() -> Principal:
    """Return the caller of the current request."""
    return _current_principal.get()


def set_principal(principal: Principal) -> None:
    """Set the caller for the rest of the current request."""
    _current_principal.set(principal)


@dataclass(eq=False)
class Authenticator:
    """Checks API keys and tokens, and what their holders may do; safe to use from threads.

    It holds a copy of the registry's API keys. Background tasks call `refresh` and
    `refresh_issuer_keys`; a created or revoked key takes effect at the next `refresh`. While the
    registry is unreachable, the keys of the last refresh stay valid until they expire.

    Parameters
    ----------
    required: whether every caller needs a key. If not, a caller without a key may do everything,
        and a caller with a key may do what its scopes allow.
    tokens: verifies OpenID Connect tokens; None: no issuer is trusted.
    default_limits: limits of callers whose key sets none; they apply to tokens too.
    public_docs: whether the OpenAPI document, its pages and gRPC reflection need no key.
    proxies: whose word for the client's address is taken.
    """

    registry: Registry
    required: bool
    tokens: TokenVerifier | None = None
    default_limits: Limits = _NO_LIMITS
    public_docs: bool = False
    proxies: TrustedProxies = _NO_PROXIES

    def __post_init__(self) -> None:
        self._open_scopes = {"open", "docs"} if self.public_docs else {"open"}
        #: Paths of requests that need no key.
        self.open_paths = {
            item.path for item in OPERATIONS.values() if item.path and self.is_open(item)
        }
        self._single_flight: SingleFlight[None] = SingleFlight(1)
        #: Caller and expiry (seconds since 1970) of each key, by the key's digest.
        self._keys: dict[bytes, tuple[Principal, float]] | None = None
        self.limiter = Limiter()
        #: Whether any caller has a limit.
        self._has_limits = not self.default_limits.is_none
        self._failed = FailedAttempts()
        #: By caller, operation and model.
        self._refused: dict[str, Counter[tuple[str, str | None]]] = {}

    def refresh(self) -> None:
        """Read the active API keys from the registry."""
        with self.registry.reading() as tx:
            active = tx.api_keys.active()
        self._has_limits = not (
            self.default_limits.is_none and all(key.limits.is_none for key in active)
        )
        self._keys = {
            key.digest: (
                key.principal.limited(self.default_limits),
                math.inf if key.expires_at is None else key.expires_at,
            )
            for key in active
        }

    async def refresh_issuer_keys(self, *, only_if_due: bool = False) -> None:
        """Fetch the token issuer's signing keys; concurrent calls share one request.

        A failure is not raised: checking a token raises if its key is still unknown.

        Parameters
        ----------
        only_if_due: fetch only if the regular refresh interval has passed.
        """
        tokens = self.tokens
        if tokens is None or (only_if_due and not tokens.keys.is_due):
            return
        with contextlib.suppress(UnavailableError, TimeoutError):
            refresh = tokens.keys.refresh
            await self._single_flight.run("issuer", refresh, _ISSUER_TIMEOUT_SECONDS)

    async def authenticate(self, authorization: str, address: str) -> Principal:
        """Return the caller as `principal` does; fetch the issuer's keys if one is unknown.

        Parameters
        ----------
        address: IP address of the caller.

        Raises
        ------
        LimitedError: authentication has failed too often for this address.
        """
        try:
            try:
                return self.principal(authorization, address)
            except SigningKeyUnknownError:
                await self.refresh_issuer_keys()
                return self.principal(authorization)
        except UnauthorizedError:
            if authorization:
                self._failed.note(address)
            raise

    def principal(self, authorization: str, address: str | None = None) -> Principal:
        """Return the caller of a request from its `Authorization` header, "" if it has none.

        Parameters
        ----------
        address: IP address of the caller. A token that has not been verified before is refused if
            the address has sent many bad ones: verifying a signature takes long.

        Raises
        ------
        UnauthorizedError: a key is required and missing, or it is unknown or has expired.
        SigningKeyUnknownError: a token's key is unknown; `refresh_issuer_keys` may find it.
        LimitedError: too many bad tokens from `address`.
        UnavailableError: the keys of the registry or the issuer have not been read yet.
        """
        if not authorization:
            if self.required:
                raise UnauthorizedError("an API key is needed: send Authorization: Bearer KEY")
            return ANONYMOUS
        # A token and, before it, the scheme.
        kind, _, secret = authorization[: MAX_TOKEN_LENGTH + 16].partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise UnauthorizedError(
                "Authorization is not understood: send Authorization: Bearer KEY"
            )
        secret = secret.strip()
        if self.tokens is not None and is_token(secret):
            if address is not None and not self.tokens.is_cached(secret):
                self._failed.check(address)
            return self._limited(self.tokens.principal(secret))
        return self.principal_of_key(hash_secret(secret))

    def principal_of_key(self, digest: bytes) -> Principal:
        """Return the caller whose API key has the digest; `UnauthorizedError` without such a key.

        Raise `UnavailableError` while the keys of the registry have not been read.
        """
        if self._keys is None:
            raise UnavailableError("API keys cannot be checked: the registry has not answered yet")
        # Looked up by digest: the time of the lookup reveals nothing about similar keys.
        entry = self._keys.get(digest)
        if entry is None or entry[1] <= time.time():
            raise UnauthorizedError("the API key is not known here, or has expired or been revoked")
        return entry[0]

    def principal_of_session(self, session: Session) -> Principal:
        """Return who has opened a session; raise as `principal_of_key` if that is over."""
        if session.principal is None:
            return self.principal_of_key(session.key_digest)
        if self.issuer is None:
            raise UnauthorizedError("people no longer sign in at an issuer here")
        return self._limited(session.principal)

    @property
    def issuer(self) -> TokenVerifier | None:
        """The verifier of tokens of the issuer at which people sign in; None without one."""
        tokens = self.tokens
        return tokens if tokens is not None and tokens.oidc.client_id else None

    async def sign_in(self, attempt: Attempt, code: str, address: str) -> Principal:
        """Return the person of a code of the issuer.

        Raises
        ------
        UnauthorizedError, UnavailableError: as `service.access.oidc_sign_in.sign_in`.
        LimitedError: authentication has failed too often for this address.
        """
        if self.issuer is None:
            raise NotFoundError("issuer to sign in at", "RECALIB_OIDC_CLIENT_ID")
        self._failed.check(address)
        try:
            return self._limited(await to_thread.run_sync(sign_in, self.issuer, attempt, code))
        except UnauthorizedError:
            self._failed.note(address)
            raise

    def _limited(self, principal: Principal) -> Principal:
        return principal.limited(self.default_limits) if self._has_limits else principal

    def is_open_path(self, path: str) -> bool:
        """Return whether requests to a path are answered without a key, or with a session."""
        return path in self.open_paths or path == "/" or path.startswith(CONSOLE)

    def is_open(self, operation: Operation) -> bool:
        """Return whether an operation needs no key."""
        return operation.scope in self._open_scopes

    def check_scope(
        self, principal: Principal, operation: Operation, model: str | None = None
    ) -> None:
        """Raise unless a caller may do an operation to some model.

        Parameters
        ----------
        model: for the audit trail; None if it is not known yet.

        Raises
        ------
        ForbiddenError: the caller lacks the scope.
        """
        try:
            _check_scope(principal, operation)
        except ForbiddenError:
            self._note_refusal(principal, operation, model)
            raise

    def authorise(self, principal: Principal, operation: Operation, model: str | None) -> None:
        """Raise unless a caller may do an operation.

        Parameters
        ----------
        model: the name of the model that the operation concerns, or None.

        Raises
        ------
        ForbiddenError: the caller lacks the scope, or its key is not for this model.
        """
        try:
            _check(principal, operation, model)
        except ForbiddenError:
            self._note_refusal(principal, operation, model)
            raise

    @staticmethod
    def may(principal: Principal, operation: Operation, model: str | None) -> bool:
        """Return whether `authorise` would not raise; nothing is written to the audit trail."""
        try:
            _check(principal, operation, model)
        except ForbiddenError:
            return False
        return True

    def write_refusals(self) -> None:
        """Write the refusals since the last call to the audit trail."""
        if not self._refused:
            return
        refused, self._refused = self._refused, {}
        try:
            with self.registry.transaction() as tx:
                for name, counts in refused.items():
                    for (operation, model), times in counts.items():
                        detail, target = "" if times == 1 else f"{times} times", model or ""
                        tx.audit.record(name, operation, model, target, detail, result="refused")
        except BaseException:  # the next call writes them
            for name, counts in refused.items():
                self._refused.setdefault(name, Counter()).update(counts)
            raise

    def _note_refusal(self, principal: Principal, operation: Operation, model: str | None) -> None:
        """Record a refused change for the audit trail.

        Equal refusals are counted together, and distinct ones of a caller are limited, so that no
        caller can fill the database with them.
        """
        if not operation.mutates:
            return
        counts = self._refused.setdefault(principal.name, Counter())
        key = (operation.name, model if model and is_name(model) else None)
        if key not in counts and len(counts) >= _MAX_REFUSALS:
            key = (operation.name, None)
        counts[key] += 1


def _check_scope(principal: Principal, operation: Operation) -> None:
    scope = operation.scope
    if scope == "open" or principal is ANONYMOUS:  # anonymous callers may do everything
        return
    if scope in ("any", "docs"):
        principal.check_any_scope()
    else:
        principal.check_scope(scope)


def _check(principal: Principal, operation: Operation, model: str | None) -> None:
    _check_scope(principal, operation)
    if operation.scope not in ("open", "any", "docs") and not operation.finds_model:
        principal.check_model(model)
