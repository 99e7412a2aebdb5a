"""Who may do what: scopes, API keys and those who come with them."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from recalib.errors import ForbiddenError, InputError

__all__ = [
    "ANONYMOUS",
    "SCOPES",
    "ApiKey",
    "Limits",
    "Principal",
    "check_scopes",
    "check_secret",
    "hash_secret",
    "new_secret",
]

#: What a key may be for. `metrics` is what any key may do and nothing else, `predict` is
#: calibration, `label` late labels; `fit` is uploads, fits, training and reading everything about a
#: model; `admin` is all of these, models, promotions and what is watched.
SCOPES = ("metrics", "predict", "label", "fit", "admin")

#: What every key begins with, so that scanners for leaked secrets can know one.
_MARK = "recalib_"
_SECRET_BYTES = 32
#: Of any limit.
_MOST = 1e12
_SECRET = re.compile(rf"{_MARK}[A-Za-z0-9_-]{{43}}")


@dataclass(frozen=True)
class Limits:
    """How much one caller may ask for; 0 is no limit, and None is what a server has for all."""

    requests_per_second: float | None = None
    #: Of logits to be calibrated.
    rows_per_second: float | None = None
    #: Requests in work at once.
    concurrency: int | None = None
    #: Of one request; an upload is one.
    body_bytes: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether nothing is limited."""
        return not any((self.requests_per_second, self.rows_per_second)) and not any(
            (self.concurrency, self.body_bytes)
        )

    def over(self, usual: Limits) -> Limits:
        """Return these, with what is usual where nothing is said."""
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(usual, **own)

    def checked(self) -> Limits:
        """Return these if they can be limits; `InputError` otherwise."""
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value <= _MOST:
                raise InputError(name, found=str(value), accepted=f"0, no limit, to {_MOST:g}")
        return self


@dataclass(frozen=True)
class Principal:
    """Somebody who asks, and what that one may do."""

    #: As the audit trail has it: a key's name, or `oidc:` before a token's subject.
    name: str
    scopes: frozenset[str]
    #: The models that it is for; None for all.
    models: frozenset[str] | None = None
    #: None where there are none.
    limits: Limits | None = None

    def limited(self, usual: Limits) -> Principal:
        """Return the same one with its limits, which are the usual ones but for its own."""
        limits = (self.limits or Limits()).over(usual)
        return replace(self, limits=None if limits.is_none else limits)

    def check_scope(self, scope: str) -> None:
        """Return if there is one that allows it; `ForbiddenError` otherwise."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise ForbiddenError(f"{self.name!r} lacks the scope {scope!r}")

    def check_any_scope(self) -> None:
        """Return if there is anything that it may do; `ForbiddenError` otherwise."""
        if not self.scopes:
            raise ForbiddenError(f"{self.name!r} has none of the scopes {', '.join(SCOPES)}")

    def check_model(self, model: str | None) -> None:
        """Return if it may be done to a model, None being all; `ForbiddenError` otherwise."""
        if self.models is None or model in self.models:
            return
        if model is None:
            raise ForbiddenError(f"{self.name!r} is bound to models, and this concerns all")
        # The same whether or not there is such a model: its name is nothing of theirs.
        raise ForbiddenError(f"{self.name!r} is not for the model {model!r}")


#: Who asks where nobody has to say who it is.
ANONYMOUS = Principal("anonymous", frozenset({"admin"}))


@dataclass(frozen=True)
class ApiKey:
    """A key as the registry knows it: everything but the secret, of which it has a digest."""

    name: str
    digest: bytes
    scopes: tuple[str, ...]
    #: None for all.
    models: tuple[str, ...] | None
    #: Seconds since 1970; None is never.
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    #: Its own; what is None is as the server has it.
    limits: Limits = Limits()

    @property
    def state(self) -> str:
        """One of active, expired and revoked."""
        if self.revoked_at is not None:
            return "revoked"
        return "active" if self.expires_at is None or time.time() < self.expires_at else "expired"

    @cached_property
    def principal(self) -> Principal:
        """Whoever comes with it."""
        models = None if self.models is None else frozenset(self.models)
        return Principal(self.name, frozenset(self.scopes), models, self.limits)


def new_secret() -> str:
    """Return what a client sends, 256 random bits behind a mark; shown once and kept by nobody."""
    return _MARK + secrets.token_urlsafe(_SECRET_BYTES)


def check_secret(secret: str) -> str:
    """Return `secret` if it is one that `new_secret` might have made; `InputError` otherwise.

    One that somebody thought up would be guessed, and hashes of secrets are fast here.
    """
    if not _SECRET.fullmatch(secret):
        raise InputError(
            "secret",
            found=f"{len(secret)} characters that are no key",
            accepted=f"{_MARK} and 32 random bytes in URL-safe base64, without padding",
        )
    return secret


def hash_secret(secret: str) -> bytes:
    """Return what is stored of a secret: with 256 random bits, a plain hash is beyond guessing."""
    return hashlib.sha256(secret.encode()).digest()


def check_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """Return scopes in their order, each once; `InputError` for none, or for what is none."""
    for one in scopes:
        if one not in SCOPES:
            raise InputError("scope", found=repr(one[:40]), accepted=", ".join(SCOPES))
    if not scopes:
        raise InputError("scope", found="none", accepted=f"one or more of {', '.join(SCOPES)}")
    return tuple(one for one in SCOPES if one in scopes)
