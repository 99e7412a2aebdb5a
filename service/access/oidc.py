"""Configuration of the OpenID Connect issuer whose tokens are accepted."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import urlsplit

from recalib.core.access import SCOPES
from recalib.errors import InputError, UnavailableError
from recalib.settings import Settings

#: Signatures with a public key. HMAC is excluded: an attacker could use the issuer's public key as
#: the shared secret.
ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
#: Characters of a token; gRPC limits all metadata of a call to 8 KB.
MAX_TOKEN_LENGTH = 8000


class SigningKeyUnknownError(UnavailableError):
    """A token names an unknown key: refresh the issuer's keys and check the token again."""


@dataclass(frozen=True)
class OidcConfig:
    """An issuer, and how claims of its tokens map to scopes and models.

    Each field is a setting of its name after `oidc_`.
    """

    issuer: str
    audience: str
    #: "": taken from the issuer's discovery document.
    jwks_url: str
    algorithms: tuple[str, ...]
    #: Names of claims, `outer.inner` for a nested claim. If `models_claim` is empty, tokens are
    #: for all models.
    scope_claim: str
    models_claim: str
    #: The issuer's scope names to ours.
    scopes: Mapping[str, frozenset[str]]
    leeway_seconds: float
    #: How long keys stay valid if they cannot be fetched again.
    keys_seconds: float
    #: Of the console at the issuer; "": people sign in with keys only.
    client_id: str
    #: "": a public client.
    client_secret: str
    #: What a sign-in asks for.
    client_scopes: str
    #: How long a person is signed in.
    session_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> OidcConfig | None:
        """Return the configuration from settings; None if they name no issuer.

        Raises
        ------
        InputError: an issuer without an audience, an insecure URL, an unknown algorithm or scope,
            or PyJWT is not installed.
        """
        if not settings.oidc_issuer:
            if settings.oidc_client_id:
                found, accepted = "an id without an issuer", "an id with RECALIB_OIDC_ISSUER"
                raise InputError("RECALIB_OIDC_CLIENT_ID", found=found, accepted=accepted)
            return None
        if importlib.util.find_spec("jwt") is None:
            accepted = "nothing without PyJWT, which `pip install 'recalib[serve]'` brings"
            raise InputError("RECALIB_OIDC_ISSUER", found="an issuer", accepted=accepted)
        _check_url("RECALIB_OIDC_ISSUER", settings.oidc_issuer)
        if settings.oidc_jwks_url:
            _check_url("RECALIB_OIDC_JWKS_URL", settings.oidc_jwks_url)
        if not settings.oidc_audience:
            # Without it, tokens for the issuer's other applications would be accepted.
            accepted = "what tokens for this server have as `aud`"
            raise InputError("RECALIB_OIDC_AUDIENCE", found="nothing", accepted=accepted)
        if "openid" not in settings.oidc_client_scopes.split():
            found, accepted = repr(settings.oidc_client_scopes)[:80], "words with openid among them"
            raise InputError("RECALIB_OIDC_CLIENT_SCOPES", found=found, accepted=accepted)
        values = {field.name: getattr(settings, f"oidc_{field.name}") for field in fields(cls)}
        values["algorithms"] = _algorithms(settings.oidc_algorithms)
        values["scopes"] = _scopes(settings.oidc_scopes)
        return cls(**values)


def is_token(secret: str) -> bool:
    """Return whether a secret has the form of a token; API keys have no dots."""
    return secret.count(".") == 2


def is_trusted(url: str) -> bool:
    """Return whether a URL is safe from interception: HTTPS, or HTTP on loopback."""
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
    algorithms = tuple(text.split())
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            accepted = f"some of {' '.join(ALGORITHMS)}"
            raise InputError(
                "RECALIB_OIDC_ALGORITHMS", found=repr(algorithm)[:80], accepted=accepted
            )
    if not algorithms:
        accepted = f"one or more of {' '.join(ALGORITHMS)}"
        raise InputError("RECALIB_OIDC_ALGORITHMS", found="none", accepted=accepted)
    return algorithms


def _scopes(text: str) -> Mapping[str, frozenset[str]]:
    scopes: dict[str, frozenset[str]] = {}
    for pair in text.split():
        ours, _, theirs = pair.partition("=")
        if ours not in SCOPES or not theirs:
            accepted = f"SCOPE=VALUE pairs with a scope of {', '.join(SCOPES)}"
            raise InputError("RECALIB_OIDC_SCOPES", found=repr(pair)[:80], accepted=accepted)
        scopes[theirs] = scopes.get(theirs, frozenset()) | {ours}
    if not scopes:
        raise InputError("RECALIB_OIDC_SCOPES", found="none", accepted="one SCOPE=VALUE or more")
    return scopes
