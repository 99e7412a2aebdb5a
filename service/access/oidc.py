"""What is said of the issuer whose tokens are taken, checked without asking it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from recalib.access import SCOPES
from recalib.errors import InputError, UnavailableError
from recalib.settings import Settings

__all__ = [
    "ALGORITHMS",
    "MAX_TOKEN_LENGTH",
    "OidcConfig",
    "SigningKeyUnknownError",
    "is_token",
    "is_trusted",
]

#: Signatures with a public key. A secret that both sides have is none: with one, a key that is
#: public could be taken for it.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
#: Characters of a token; gRPC's metadata takes 8 KB in all.
MAX_TOKEN_LENGTH = 8000


class SigningKeyUnknownError(UnavailableError):
    """A token names a key that the issuer may have by now: look for it, and ask again."""


@dataclass(frozen=True)
class OidcConfig:
    """An issuer, and what its tokens mean here."""

    issuer: str
    audience: str
    #: Empty where the issuer's own description says it.
    jwks_url: str
    algorithms: tuple[str, ...]
    #: Names of claims, or `outer.inner` for one within another. Without the second, tokens are for
    #: all models.
    scope_claim: str
    models_claim: str
    #: From what the issuer calls them to our scopes.
    scopes: Mapping[str, frozenset[str]]
    leeway_seconds: float
    #: How long keys are good that cannot be fetched again.
    keys_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> OidcConfig | None:
        """Return what settings say, or None where they name no issuer.

        Raises
        ------
        InputError: an issuer without an audience, a URL that others could answer, or an algorithm
            or a scope that is none; also where the library for it is not installed.
        """
        if not settings.oidc_issuer:
            return None
        if importlib.util.find_spec("jwt") is None:
            accepted = "nothing without PyJWT, which `pip install 'recalib[serve]'` brings"
            raise InputError("RECALIB_OIDC_ISSUER", found="an issuer", accepted=accepted)
        _check_url("RECALIB_OIDC_ISSUER", settings.oidc_issuer)
        if settings.oidc_jwks_url:
            _check_url("RECALIB_OIDC_JWKS_URL", settings.oidc_jwks_url)
        if not settings.oidc_audience:
            # Or a token for any other program of this issuer's would do.
            accepted = "what tokens for this server have as `aud`"
            raise InputError("RECALIB_OIDC_AUDIENCE", found="nothing", accepted=accepted)
        return cls(
            issuer=settings.oidc_issuer,
            audience=settings.oidc_audience,
            jwks_url=settings.oidc_jwks_url,
            algorithms=_algorithms(settings.oidc_algorithms),
            scope_claim=settings.oidc_scope_claim,
            models_claim=settings.oidc_models_claim,
            scopes=_scopes(settings.oidc_scopes),
            leeway_seconds=settings.oidc_leeway_seconds,
            keys_seconds=settings.oidc_keys_seconds,
        )


def is_token(secret: str) -> bool:
    """Return whether it has a token's form; no API key has dots."""
    return secret.count(".") == 2


def is_trusted(url: str) -> bool:
    """Return whether nobody on the way can answer in the place of whoever a URL names."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    local = host in ("localhost", "::1") or host.startswith("127.")
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and local))


def _check_url(name: str, url: str) -> None:
    if not is_trusted(url):
        raise InputError(name, found=repr(url)[:200], accepted="https://..., http on loopback only")


def _algorithms(text: str) -> tuple[str, ...]:
    found = tuple(text.split())
    for one in found:
        if one not in ALGORITHMS:
            accepted = f"some of {' '.join(ALGORITHMS)}"
            raise InputError("RECALIB_OIDC_ALGORITHMS", found=repr(one)[:80], accepted=accepted)
    if not found:
        accepted = f"one or more of {' '.join(ALGORITHMS)}"
        raise InputError("RECALIB_OIDC_ALGORITHMS", found="none", accepted=accepted)
    return found


def _scopes(text: str) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for pair in text.split():
        ours, _, theirs = pair.partition("=")
        if ours not in SCOPES or not theirs:
            accepted = f"SCOPE=VALUE pairs with a scope of {', '.join(SCOPES)}"
            raise InputError("RECALIB_OIDC_SCOPES", found=repr(pair)[:80], accepted=accepted)
        found[theirs] = found.get(theirs, frozenset()) | {ours}
    if not found:
        raise InputError("RECALIB_OIDC_SCOPES", found="none", accepted="one SCOPE=VALUE or more")
    return found
