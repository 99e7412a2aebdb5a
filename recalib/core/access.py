"""Authorisation: scopes, limits, principals and API keys."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from recalib.errors import ForbiddenError, InputError

#: The scopes. Every key may read metrics; `metrics` allows nothing else. `predict` allows
#: calibration and `label` late labels. `fit` allows uploads, fits, training and reading everything
#: about a model. `admin` allows all of these, and changes of models, aliases and monitoring.
SCOPES = ("metrics", "predict", "label", "fit", "admin")

#: Prefix of every key, which scanners for leaked secrets can recognise.
_PREFIX = "recalib_"
_SECRET_BYTES = 32
#: Largest value of a limit.
_MAX_LIMIT = 1e12
_SECRET = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{43}}")


@dataclass(frozen=True)
class Limits:
    """Limits of one caller; 0 means unlimited, None means the server's limit."""

    requests_per_second: float | None = None
    #: Rows of logits to calibrate.
    rows_per_second: float | None = None
    #: Concurrent requests.
    concurrency: int | None = None
    #: Body of one request, uploads included.
    body_bytes: int | None = None
    #: Jobs that wait for a worker.
    queued_jobs: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether there is no limit."""
        return not any(asdict(self).values())

    def over(self, defaults: Limits) -> Limits:
        """Return these limits, with `defaults` in place of None."""
        limits = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(defaults, **limits)

    def checked(self) -> Limits:
        """Return these limits; `InputError` if a value is out of range."""
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value <= _MAX_LIMIT:
                raise InputError(name, found=str(value), accepted=f"0, no limit, to {_MAX_LIMIT:g}")
        return self


@dataclass(frozen=True)
class Principal:
    """An authenticated caller and its permissions."""

    #: The actor in the audit trail: a key's name, or `oidc:` and the subject of a token.
    name: str
    scopes: frozenset[str]
    #: The models that it may use; None for all.
    models: frozenset[str] | None = None
    #: None for unlimited.
    limits: Limits | None = None

    def limited(self, defaults: Limits) -> Principal:
        """Return the principal with its own limits, and `defaults` for the others."""
        limits = (self.limits or Limits()).over(defaults)
        return replace(self, limits=None if limits.is_none else limits)

    def check_scope(self, scope: str) -> None:
        """Raise `ForbiddenError` unless it has the scope."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise ForbiddenError(f"{self.name!r} lacks the scope {scope!r}")

    def check_any_scope(self) -> None:
        """Raise `ForbiddenError` unless it has at least one scope."""
        if not self.scopes:
            raise ForbiddenError(f"{self.name!r} has none of the scopes {', '.join(SCOPES)}")

    def check_model(self, model: str | None) -> None:
        """Raise `ForbiddenError` unless it may use the model; None means all models."""
        if self.models is None or model in self.models:
            return
        if model is None:
            raise ForbiddenError(f"{self.name!r} is bound to models, and this concerns all")
        # The same error whether or not the model exists, so that its existence stays secret.
        raise ForbiddenError(f"{self.name!r} is not for the model {model!r}")


#: The principal of all requests if authentication is off.
ANONYMOUS = Principal("anonymous", frozenset({"admin"}))


@dataclass(frozen=True)
class ApiKey:
    """An API key in the registry; it holds a digest of the secret, not the secret."""

    name: str
    digest: bytes
    scopes: tuple[str, ...]
    #: The models that it may use; None for all.
    models: tuple[str, ...] | None
    #: Seconds since 1970; None for never.
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    #: Limits of the key; None in a field means the server's limit.
    limits: Limits = Limits()

    @property
    def state(self) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or time.time() < self.expires_at else "expired"

    @cached_property
    def principal(self) -> Principal:
        """The principal of requests with this key."""
        models = None if self.models is None else frozenset(self.models)
        return Principal(self.name, frozenset(self.scopes), models, self.limits)


def new_secret() -> str:
    """Return a new secret: a prefix and 256 random bits. It is shown once and not stored."""
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def check_secret(secret: str) -> str:
    """Return `secret`; `InputError` unless it has the form of `new_secret`.

    A secret that a person chooses can be guessed, and the hash of secrets is fast.
    """
    if not _SECRET.fullmatch(secret):
        raise InputError(
            "secret",
            found=f"{len(secret)} characters that are not a key",
            accepted=f"{_PREFIX} and 32 random bytes in URL-safe base64, without padding",
        )
    return secret


def hash_secret(secret: str) -> bytes:
    """Return SHA-256 of a secret; with 256 random bits, it needs no slow hash."""
    return hashlib.sha256(secret.encode()).digest()


def check_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """Return the distinct scopes in order; `InputError` if empty or if one is unknown."""
    for scope in scopes:
        if scope not in SCOPES:
            raise InputError("scope", found=repr(scope[:40]), accepted=", ".join(SCOPES))
    if not scopes:
        raise InputError("scope", found="none", accepted=f"one or more of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in scopes)
