"""A token issuer over local HTTP: real keys, valid and invalid tokens, and people who sign in."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

__all__ = ["AUDIENCE", "CLIENT", "Issuer", "encoded", "issuer", "signing_keys"]

AUDIENCE = "recalib"
#: Settings of a server at which people sign in, besides the issuer.
CLIENT = {"oidc_audience": AUDIENCE, "oidc_client_id": "console", "oidc_client_secret": "s:cret/%"}
_WELL_KNOWN = "/.well-known/openid-configuration"


class Issuer:
    """A token issuer whose answers can be changed; `key_requests` counts key fetches."""

    def __init__(self, keys: dict[str, Any], host: str = "127.0.0.1") -> None:
        self.private = keys
        self.host = host
        #: Query of the request and claims of the person, by code; a code is used once.
        self.codes: dict[str, tuple[dict[str, str], dict[str, Any]]] = {}
        #: Changes of the claims of ID tokens.
        self.id_claims: dict[str, Any] = {}
        self.published = ["rsa", "ec"]
        self.key_requests = 0
        #: Answers that replace the normal ones, by path: status, headers and body.
        self.overrides: dict[str, tuple[int, dict[str, str], bytes]] = {}
        #: Called before an answer.
        self.before: Callable[[], None] = lambda: None
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Listen on the same port as before."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.answer(*issuer.tokens(form, self.headers.get("Authorization", "")))

            def do_GET(self) -> None:
                issuer.before()
                self.answer(*issuer.answer(self.path))

            def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/keys":
            self.key_requests += 1
        if path in self.overrides:
            return self.overrides[path]
        if path == _WELL_KNOWN:
            document: Any = {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        elif path == "/keys":
            document = {"keys": [self.public(name) for name in self.published]}
        elif path.startswith("/authorize?"):
            hidden = "".join(
                f'<input type="hidden" name="{name}" value="{html.escape(value)}">'
                for name, value in parse_qsl(urlsplit(path).query)
            )
            # The icon: the browser asks for none.
            form = (
                f'<link rel="icon" href="data:,"><form action="/approve">{hidden}'
                '<label>User <input name="user"></label></form>'
            )
            return 200, {"Content-Type": "text/html"}, form.encode()
        elif path.startswith("/approve?"):
            return 302, {"Location": self.approve(path)}, b""
        else:
            return 404, {}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()

    def approve(self, url: str, **claims: Any) -> str:
        """Sign a person in who has been sent to a URL; return where the browser goes next."""
        query = dict(parse_qsl(urlsplit(url).query))
        asked = query["client_id"], query["response_type"], query["code_challenge_method"]
        assert asked == ("console", "code", "S256")
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe()
        self.codes[code] = query, {"sub": query.get("user", "anna"), **claims}
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def tokens(self, form: str, authorization: str) -> tuple[int, dict[str, str], bytes]:
        """Answer a request at the token endpoint."""
        sent = dict(parse_qsl(form))
        query, claims = self.codes.pop(sent["code"], ({}, {}))
        digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
        secret = base64.b64encode(b"console:s%3Acret%2F%25").decode()
        expected = {
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "redirect_uri": sent["redirect_uri"],
        }
        if authorization != f"Basic {secret}" or not expected.items() <= query.items():
            return 400, {}, b'{"error": "invalid_grant"}'
        own = {"aud": "console", "sub": claims["sub"], "nonce": query["nonce"], "scope": None}
        answer = {
            "access_token": self.token(**claims),
            "id_token": self.token(**{**own, **self.id_claims}),
            "token_type": "Bearer",
        }
        return 200, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def public(self, name: str, **more: Any) -> dict[str, Any]:
        """Return a key as the issuer publishes it."""
        key = self.private[name].public_key()
        kind = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "Ed": OKPAlgorithm}
        algorithm: Any = next(
            of for begin, of in kind.items() if type(key).__name__.lstrip("_").startswith(begin)
        )
        return {**algorithm.to_jwk(key, as_dict=True), "kid": name, "use": "sig", **more}

    def claims(self, **changed: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": AUDIENCE, "sub": "anna", "iat": now, "exp": now + 600,
            "scope": "openid recalib:fit",
        }  # fmt: skip
        claims.update(changed)
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self,
        key: str = "rsa",
        algorithm: str = "RS256",
        headers: dict[str, Any] | None = None,
        **changed: Any,
    ) -> str:
        """Return a valid token with changed claims; a claim of None is omitted."""
        fields = {"kid": key, **(headers or {})}
        header = {name: value for name, value in fields.items() if value is not None}
        return jwt.encode(self.claims(**changed), self.private[key], algorithm, header)


def encoded(header: Any, claims: Any, signature: bytes = b"") -> str:
    """Return a hand-made token, which no library would create."""
    parts = [
        part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, claims)
    ]
    return ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature)
    )


@pytest.fixture(scope="session")
def signing_keys() -> dict[str, Any]:
    """Private keys; `other` is not published by any issuer, and `small` is too small."""
    return {
        "rsa": rsa.generate_private_key(65537, 2048),
        "other": rsa.generate_private_key(65537, 2048),
        "small": rsa.generate_private_key(65537, 1024),  # noqa: S505
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "next": ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


@pytest.fixture
def issuer(signing_keys: dict[str, Any]) -> Iterator[Issuer]:
    issuer = Issuer(signing_keys)
    yield issuer
    issuer.stop()
