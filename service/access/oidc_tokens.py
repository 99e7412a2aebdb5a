"""Verification of OpenID Connect tokens."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import jwt

from recalib.core.access import Principal
from recalib.errors import UnauthorizedError
from service.access.jwks import IssuerKeys
from service.access.oidc import MAX_TOKEN_LENGTH, OidcConfig, SigningKeyUnknownError

#: Verified tokens in the cache: verifying a signature takes as long as a hundred lookups.
_MAX_CACHED = 4096
#: `sub` is at most 255 ASCII characters (RFC 7519; OpenID Connect Core, section 2).
_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")
_REQUIRED = ["exp", "iat", "iss", "aud", "sub"]


class _CachedToken(NamedTuple):
    principal: Principal
    #: Seconds since 1970, the leeway included.
    until: float
    #: `IssuerKeys.changes` at the verification.
    changes: int


class TokenVerifier:
    """Verifies tokens with the keys of their issuer; safe to use from threads."""

    def __init__(self, oidc: OidcConfig, keys: IssuerKeys | None = None) -> None:
        self.oidc = oidc
        self.keys = IssuerKeys(oidc) if keys is None else keys
        self._cache: dict[bytes, _CachedToken] = {}

    def is_cached(self, token: str) -> bool:
        """Return whether a token has been verified before."""
        return hashlib.sha256(token.encode()).digest() in self._cache

    def principal(self, token: str) -> Principal:
        """Return the caller that a valid token names.

        Raises
        ------
        UnauthorizedError: the token is malformed, for another audience or expired, or its
            signature is invalid.
        SigningKeyUnknownError: its key is unknown; `keys.refresh` may find it.
        UnavailableError: the issuer's keys are not known and cannot be fetched.
        """
        if len(token) > MAX_TOKEN_LENGTH:
            raise UnauthorizedError(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._cache.get(digest)
        if (
            cached is not None
            and cached.changes == self.keys.changes
            and time.time() < cached.until
        ):
            self.keys.check_fresh()
            return cached.principal
        changes = self.keys.changes
        claims = self.claims(token, self.oidc.audience)
        principal = _principal(self.oidc, claims)
        while len(self._cache) >= _MAX_CACHED:
            self._cache.pop(next(iter(self._cache)), None)
        until = claims["exp"] + self.oidc.leeway_seconds
        self._cache[digest] = _CachedToken(principal, until, changes)
        return principal

    def claims(self, token: str, audience: str) -> dict[str, Any]:
        """Return the claims of a valid token for an audience; raise as `principal`."""
        try:
            header = jwt.get_unverified_header(token)
            id, algorithm = header.get("kid"), header.get("alg")
        except Exception:  # PyJWT raises more than its own errors for malformed tokens
            _refuse("it cannot be read")
        if algorithm not in self.oidc.algorithms:
            _refuse(f"it is not signed by one of {', '.join(self.oidc.algorithms)}")
        if self.keys.should_refresh(id):
            raise SigningKeyUnknownError("the keys of the issuer are being fetched")
        key = self.keys.find(id, str(algorithm))
        if key is None:
            _refuse("its key is none of the issuer's")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
                audience=audience,
                issuer=self.oidc.issuer,
                leeway=self.oidc.leeway_seconds,
                options={"require": _REQUIRED, "enforce_minimum_key_length": True},
            )
            if not isinstance(claims["exp"], int | float):
                raise jwt.DecodeError
        except jwt.ExpiredSignatureError:
            _refuse("it has expired")
        except jwt.InvalidAudienceError:
            _refuse("it is for another audience")
        except jwt.ImmatureSignatureError:
            _refuse("it is not in force yet")
        except Exception:  # details of other failures would help only an attacker
            _refuse("its signature, issuer or claims are not good")
        return claims


def _principal(oidc: OidcConfig, claims: Mapping[str, Any]) -> Principal:
    subject = claims["sub"]
    if not isinstance(subject, str) or _SUBJECT.fullmatch(subject) is None:
        _refuse("its subject is not 1 to 255 characters of visible ASCII")
    theirs = _values(claims, oidc.scope_claim)
    scopes = frozenset(scope for name in theirs for scope in oidc.scopes.get(name, ()))
    models: frozenset[str] | None = None
    if oidc.models_claim:
        # If the claim is configured, a token without it is valid for no model.
        named = frozenset(_values(claims, oidc.models_claim))
        models = None if "*" in named else named
    # Names of API keys have no colon, so the two cannot collide.
    return Principal(f"oidc:{subject}", scopes, models)


def _values(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a claim: a JSON list or words; [] if it is missing."""
    value: Any = claims.get(name)
    if value is None:  # only now: names may contain dots, and some are URLs
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value.split()
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _refuse(reason: str) -> NoReturn:
    raise UnauthorizedError(f"the token is not good: {reason}")
