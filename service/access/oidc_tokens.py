"""Tokens of an issuer (OpenID Connect): from one that is good to whoever it speaks of."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import jwt

from recalib.access import Principal
from recalib.errors import UnauthorizedError
from service.access.jwks import IssuerKeys
from service.access.oidc import MAX_TOKEN_LENGTH, OidcConfig, SigningKeyUnknownError

__all__ = ["TokenVerifier"]

#: Tokens that are remembered as good: to check a signature takes as long as a hundred look-ups.
_MOST = 4096
#: As RFC 7519 and OpenID Connect Core, section 2, have it: `sub` is ASCII, at most 255 of it.
_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")
_REQUIRED = ["exp", "iat", "iss", "aud", "sub"]


class _Good(NamedTuple):
    principal: Principal
    #: Seconds since 1970, the leeway included.
    until: float
    #: `IssuerKeys.changes` when it was found good.
    changes: int


class TokenVerifier:
    """Checks tokens by the keys of their issuer; safe to use from threads."""

    def __init__(self, oidc: OidcConfig, keys: IssuerKeys | None = None) -> None:
        self._oidc = oidc
        self.keys = IssuerKeys(oidc) if keys is None else keys
        self._good: dict[bytes, _Good] = {}

    def remembers(self, token: str) -> bool:
        """Return whether a token was good, so that to check it takes no signature."""
        return hashlib.sha256(token.encode()).digest() in self._good

    def principal(self, token: str) -> Principal:
        """Return whom a good token speaks of.

        Raises
        ------
        UnauthorizedError: it is none, is not for here, has expired, or is not signed as it must be.
        KeysWantedError: `keys.look` may find the key that it names.
        UnavailableError: the issuer's keys are not known, and cannot be had.
        """
        if len(token) > MAX_TOKEN_LENGTH:
            raise UnauthorizedError(f"the token is longer than {MAX_TOKEN_LENGTH} characters")
        digest = hashlib.sha256(token.encode()).digest()
        good = self._good.get(digest)
        if good is not None and good.changes == self.keys.changes and time.time() < good.until:
            self.keys.check_fresh()
            return good.principal
        changes = self.keys.changes
        claims = self._checked(token)
        principal = _principal(self._oidc, claims)
        while len(self._good) >= _MOST:
            self._good.pop(next(iter(self._good)), None)
        until = claims["exp"] + self._oidc.leeway_seconds
        self._good[digest] = _Good(principal, until, changes)
        return principal

    def _checked(self, token: str) -> dict[str, Any]:
        """Return the claims of a token that is signed and in force."""
        try:
            header = jwt.get_unverified_header(token)
            id, algorithm = header.get("kid"), header.get("alg")
        except Exception:  # whatever it is, it is no token
            _refuse("it cannot be read")
        if algorithm not in self._oidc.algorithms:
            _refuse(f"it is not signed by one of {', '.join(self._oidc.algorithms)}")
        if self.keys.wants(id):
            raise SigningKeyUnknownError("the issuer is being asked for its keys")
        key = self.keys.find(id, str(algorithm))
        if key is None:
            _refuse("its key is none of the issuer's")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
                audience=self._oidc.audience,
                issuer=self._oidc.issuer,
                leeway=self._oidc.leeway_seconds,
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
        except Exception:  # the rest says nothing that whoever has a good token would need
            _refuse("its signature, issuer or claims are not good")
        return claims


def _principal(oidc: OidcConfig, claims: Mapping[str, Any]) -> Principal:
    subject = claims["sub"]
    if not isinstance(subject, str) or _SUBJECT.fullmatch(subject) is None:
        _refuse("its subject is not 1 to 255 characters of visible ASCII")
    held = _values(claims, oidc.scope_claim)
    scopes = frozenset(ours for one in held for ours in oidc.scopes.get(one, ()))
    models: frozenset[str] | None = None
    if oidc.models_claim:
        # Where models are asked for, a token that names none is for none.
        named = frozenset(_values(claims, oidc.models_claim))
        models = None if "*" in named else named
    # No API key's name has a colon in it.
    return Principal(f"oidc:{subject}", scopes, models)


def _values(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return what a claim lists, as JSON or as words; nothing where it is not there."""
    found: Any = claims.get(name)
    if found is None:  # names may have dots themselves: some are URLs
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, str):
        return found.split()
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _refuse(why: str) -> NoReturn:
    raise UnauthorizedError(f"the token is not good: {why}")
