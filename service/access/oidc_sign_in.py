"""A person signs in at the issuer: the authorization code flow of OpenID Connect, with PKCE.

Source: OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE); RFC 9700 (security of OAuth 2.0).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

from recalib.core.access import Principal
from recalib.errors import UnauthorizedError, UnavailableError
from service.access.issuer_requests import fetch_json
from service.access.oidc import SigningKeyUnknownError

if TYPE_CHECKING:
    from service.access.oidc_tokens import TokenVerifier

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attempt:
    """What ties the answer of the issuer to the browser that was sent there.

    Parameters
    ----------
    redirect_uri: where the issuer sends the browser back.
    secret: the browser keeps it in a cookie.
    """

    redirect_uri: str
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def state(self) -> str:
        """It comes back with the code: another browser has no such secret."""
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """It stands in the ID token: the code is not of another attempt."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """It is sent with the code: a stolen code is useless without it (RFC 7636)."""
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """Its digest, which the issuer compares."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _derived(self, purpose: str) -> str:
        return hmac.digest(self.secret.encode(), purpose.encode(), "sha256").hex()


def authorization_url(tokens: TokenVerifier, attempt: Attempt) -> str:
    """Return where the browser goes; `UnavailableError` if the issuer has not answered yet."""
    tokens.keys.check_fresh()
    query = {
        "response_type": "code",
        "client_id": tokens.oidc.client_id,
        "redirect_uri": attempt.redirect_uri,
        "scope": tokens.oidc.client_scopes,
        # Some issuers give tokens for an API only if asked; others ignore it.
        "audience": tokens.oidc.audience,
        "state": attempt.state,
        "nonce": attempt.nonce,
        "code_challenge": attempt.challenge,
        "code_challenge_method": "S256",
    }
    place = str(tokens.keys.metadata["authorization_endpoint"])
    return f"{place}{'&' if '?' in place else '?'}{urlencode(query)}"


def sign_in(tokens: TokenVerifier, attempt: Attempt, code: str) -> Principal:
    """Return the person whom the issuer has signed in, with the permissions of the access token.

    Raises
    ------
    UnauthorizedError: the issuer refuses the code, a token is not good, or they differ in person.
    UnavailableError: the issuer does not answer, or not with tokens.
    """
    answer = _tokens_of_code(tokens, attempt, code)
    try:
        return _person(tokens, attempt, answer)
    except SigningKeyUnknownError:
        tokens.keys.refresh()
        return _person(tokens, attempt, answer)


def _tokens_of_code(tokens: TokenVerifier, attempt: Attempt, code: str) -> dict[str, Any]:
    oidc, metadata = tokens.oidc, tokens.keys.metadata
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "client_id": oidc.client_id,
        "code_verifier": attempt.verifier,
    }
    headers = {}
    methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    if oidc.client_secret and "client_secret_basic" in methods:
        pair = f"{quote(oidc.client_id, safe='')}:{quote(oidc.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif oidc.client_secret:
        form["client_secret"] = oidc.client_secret
    answer = _answer(str(metadata["token_endpoint"]), urlencode(form).encode(), headers)
    found = ("id_token", "access_token")
    if not isinstance(answer, dict) or not all(isinstance(answer.get(name), str) for name in found):
        raise UnavailableError("the issuer does not answer with an ID token and an access token")
    return answer


def _answer(url: str, form: bytes, headers: dict[str, str]) -> Any:
    try:
        return fetch_json(url, form, headers)
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        status, why = 0, b""
        if isinstance(error, HTTPError):
            with error:
                status, why = error.code, error.read(500)
        text = "The issuer refuses a code: %s %r"
        log.warning(text, error, why, extra={"action": "sign_in_failed"})
        if 400 <= status < 500:
            raise UnauthorizedError("the issuer refuses this sign-in: begin again") from None
        raise UnavailableError(f"the issuer does not answer ({error})") from None


def _person(tokens: TokenVerifier, attempt: Attempt, answer: dict[str, Any]) -> Principal:
    client_id = tokens.oidc.client_id
    claims = tokens.claims(answer["id_token"], client_id)
    person = tokens.principal(answer["access_token"])
    nonce = str(claims.get("nonce")).encode()
    if (
        not hmac.compare_digest(nonce, attempt.nonce.encode())
        or claims.get("azp", client_id) != client_id
        or f"oidc:{claims['sub']}" != person.name
    ):
        raise UnauthorizedError("the ID token is not of this sign-in: begin again")
    return person
