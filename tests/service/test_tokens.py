"""Verification of tokens: valid ones, invalid ones, and an unavailable issuer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recalib.core.access import Principal
from recalib.errors import ForbiddenError, InputError, UnauthorizedError, UnavailableError
from recalib.settings import Settings
from service.access.jwks import IssuerKeys
from service.access.oidc import ALGORITHMS, MAX_TOKEN_LENGTH, OidcConfig, SigningKeyUnknownError
from service.access.oidc_tokens import TokenVerifier
from tests.service.issuers import AUDIENCE, Issuer, encoded, issuer, signing_keys

__all__ = ["issuer", "signing_keys"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_verifier(issuer: Issuer, clock: Clock) -> Callable[..., TokenVerifier]:
    """Return a factory of verifiers that have fetched the keys once."""

    def make(**values: Any) -> TokenVerifier:
        oidc = _oidc(issuer, **values)
        tokens = TokenVerifier(oidc, IssuerKeys(oidc, clock))
        tokens.keys.refresh()
        return tokens

    return make


@pytest.fixture
def shared_verifier(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer
) -> tuple[TokenVerifier, str]:
    return make_verifier(), issuer.token()


def _oidc(issuer: Issuer, **values: Any) -> OidcConfig:
    config = OidcConfig.of(
        Settings(**{"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, **values})
    )
    assert config is not None
    return config


def test_good_token_gives_the_principal_and_scopes(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer
) -> None:
    tokens = make_verifier()
    anna = Principal("oidc:anna", frozenset({"fit"}))
    assert tokens.principal(issuer.token()) == anna
    assert tokens.principal(issuer.token("ec", "ES256")) == anna
    assert tokens.principal(issuer.token(aud=["x", AUDIENCE])) == anna
    token = issuer.token(scope=["recalib:predict", "recalib:label", "recalib:nonsense", 3])
    assert tokens.principal(token).scopes == {"predict", "label"}
    assert tokens.principal(issuer.token(scope=None)).scopes == frozenset()
    assert tokens.principal(issuer.token(scope={"recalib:fit": 1})).scopes == frozenset()


def test_claim_names_are_settings(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer
) -> None:
    tokens = make_verifier(
        oidc_scope_claim="realm_access.roles",
        oidc_scopes="fit=ml-team predict=ml-team admin=https://x/?a=b",
        oidc_models_claim="https://example.com/models",
    )
    roles: dict[str, Any] = {"realm_access": {"roles": ["ml-team", "admin"]}}
    named = {"https://example.com/models": ["resnet", "vit"]}
    principal = tokens.principal(issuer.token(**roles, **named))
    assert principal == Principal(
        "oidc:anna", frozenset({"fit", "predict"}), frozenset(named.popitem()[1])
    )
    # A token without models is valid for none; a star is valid for all.
    nothing = tokens.principal(issuer.token(**roles))
    assert nothing.models == frozenset()
    with pytest.raises(ForbiddenError):
        nothing.check_model("resnet")
    every = tokens.principal(issuer.token(**roles, **{"https://example.com/models": "*"}))
    assert every.models is None
    url = tokens.principal(issuer.token(realm_access={"roles": "https://x/?a=b"}))
    assert url.scopes == {"admin"}
    assert tokens.principal(issuer.token(realm_access=["admin"])).scopes == frozenset()


@pytest.mark.parametrize("algorithm", ["RS512", "PS256", "EdDSA"])
def test_allowed_algorithms_are_accepted(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer, algorithm: str
) -> None:
    key = "ed" if algorithm == "EdDSA" else "rsa"
    issuer.published = [key, "ec"]
    token = issuer.token(key, algorithm)
    assert make_verifier(oidc_algorithms=algorithm).principal(token).name == "oidc:anna"
    with pytest.raises(UnauthorizedError, match="not signed by one of RS256, ES256"):
        make_verifier(oidc_algorithms="RS256 ES256").principal(token)


_NOW = time.time


def _bad(issuer: Issuer) -> dict[str, str]:
    """Return invalid tokens by the reason."""
    good = issuer.token()
    head, claims, signature = good.split(".")
    public = issuer.private["rsa"].public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def by_hmac(secret: bytes, algorithm: str = "HS256") -> str:
        begin = encoded({"alg": algorithm, "kid": "rsa"}, issuer.claims()).rpartition(".")[0]
        signature = hmac.new(secret, begin.encode(), hashlib.sha256).digest()
        return f"{begin}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    admin = json.loads(base64.urlsafe_b64decode(claims + "=="))
    admin = encoded({}, {**admin, "scope": "recalib:admin"}).split(".")[1]
    deep = b'{"alg":"RS256","kid":' + b"[" * 2000 + b"]" * 2000 + b"}"
    return {
        "unsigned": encoded({"alg": "none"}, issuer.claims()),
        "unsigned, by another spelling": encoded({"alg": "nOnE", "kid": "rsa"}, issuer.claims()),
        "the signature left out": f"{head}.{claims}.",
        "the public key as a secret": by_hmac(pem),
        "the public key as a secret, in DER": by_hmac(der),
        "HMAC that says it is RSA": by_hmac(pem, "RS256"),
        "an empty secret": by_hmac(b""),
        "another's signature": issuer.token("other", headers={"kid": "rsa"}),
        "an embedded key in the header": issuer.token(
            "other", headers={"kid": "rsa", "jwk": issuer.public("other"), "jku": issuer.url}
        ),
        "a key of another kind": issuer.token("ec", "ES256", headers={"kid": "rsa"}),
        "no key named, of two": issuer.token(headers={"kid": None}),
        "claims put in its place": f"{head}.{admin}.{signature}",
        "a bit of the signature": f"{head}.{claims}.{'A' if signature[0] != 'A' else 'B'}"
        f"{signature[1:]}",
        "expired": issuer.token(exp=int(_NOW()) - 31),
        "not yet in force": issuer.token(nbf=int(_NOW()) + 60),
        "from the future": issuer.token(iat=int(_NOW()) + 60),
        "another audience": issuer.token(aud="recalib2"),
        "no audience": issuer.token(aud=None),
        "another issuer": issuer.token(iss="https://evil.example"),
        "the issuer with a slash": issuer.token(iss=f"{issuer.url}/"),
        **{f"no {claim}": issuer.token(**{claim: None}) for claim in ("exp", "iat", "iss", "sub")},
        "a subject of two lines": issuer.token(sub="anna\r\nX-Evil: 1"),
        "a subject that hides itself": issuer.token(sub="ad\u202emin"),
        "an empty subject": issuer.token(sub=""),
        "a long subject": issuer.token(sub="x" * 256),
        "an end that is no number": issuer.token(exp="never"),
        "an end beyond numbers": jwt.encode(
            {**issuer.claims(), "exp": float("inf")}, issuer.private["rsa"], "RS256", {"kid": "rsa"}
        ),
        "critical that is not known": issuer.token(headers={"crit": ["x"], "x": 1}),
        "a key id that is none": encoded({"alg": "RS256", "kid": {"a": 1}}, {}),
        "an algorithm that is none": encoded({"alg": ["RS256"], "kid": "rsa"}, {}),
        "a header that is a list": encoded([], {}),
        "a header that is deep": encoded(deep, {}),
        "claims that are a list": jwt.PyJWS().encode(
            b"[]", issuer.private["rsa"], "RS256", {"kid": "rsa"}
        ),
        "dots": "..",
        "no base64": "a!.b!.c!",
        "huge": good + "A" * MAX_TOKEN_LENGTH,
    }


def test_bad_tokens_are_rejected(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer
) -> None:
    tokens = make_verifier()
    requests = issuer.key_requests
    for why, token in _bad(issuer).items():
        # Twice: a rejected token is not cached as valid.
        for _ in range(2):
            with pytest.raises(UnauthorizedError) as excinfo:
                tokens.principal(token)
            message = str(excinfo.value)
            assert message.isprintable(), why
            assert len(message) < 120, why
            assert ("longer than" in message) == (why == "huge"), why
    assert issuer.key_requests == requests
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        small = issuer.token("small", headers={"kid": "small"})
    issuer.published = ["small", "rsa"]
    with pytest.raises(UnauthorizedError):
        make_verifier().principal(small)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.text("eyJ.A=-_ \x00é", max_size=60), data=st.data())
def test_arbitrary_text_is_rejected_without_a_fault(
    shared_verifier: tuple[TokenVerifier, str], text: str, data: st.DataObject
) -> None:
    """Arbitrary text, and a valid token with one changed character."""
    tokens, good = shared_verifier
    place = data.draw(st.integers(0, len(good) - 1))
    changed = good[:place] + text[:1] + good[place + 1 :]
    for candidate in (text, changed):
        if candidate == good:
            continue
        try:
            assert tokens.principal(candidate).name == "oidc:anna"
        except (UnauthorizedError, SigningKeyUnknownError):
            continue
        # The last character of a signature has unused bits.
        assert place == len(good) - 1


def test_cached_tokens_expire(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = make_verifier(oidc_leeway_seconds=5)
    end = int(time.time()) + 100
    token = issuer.token(exp=end)
    assert tokens.principal(token)
    monkeypatch.setattr(time, "time", lambda: end + 4.9)
    assert tokens.principal(token)
    monkeypatch.setattr(time, "time", lambda: end + 5.1)
    # PyJWT has a separate clock, so the test only checks that the cache entry expires.
    checked: list[str] = []
    monkeypatch.setattr(tokens, "claims", lambda token, _: checked.append(token) or _expired())
    with pytest.raises(UnauthorizedError):
        tokens.principal(token)
    assert checked == [token]


def _expired() -> Any:
    raise UnauthorizedError("the token is not good: it has expired")


def test_unknown_keys_are_fetched_at_a_limited_rate(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock
) -> None:
    tokens = make_verifier()
    assert issuer.key_requests == 1
    unknown = issuer.token("next", "ES256")
    # The keys were just fetched, so the key is unknown.
    with pytest.raises(UnauthorizedError, match="none of the issuer's"):
        tokens.principal(unknown)
    clock.now += 10
    issuer.published = ["rsa", "ec", "next"]
    with pytest.raises(SigningKeyUnknownError):
        tokens.principal(unknown)
    tokens.keys.refresh()
    assert tokens.principal(unknown).name == "oidc:anna"
    assert issuer.key_requests == 2
    # Invented key ids do not cause more fetches.
    for kid in range(50):
        with pytest.raises(UnauthorizedError):
            tokens.principal(issuer.token("next", "ES256", headers={"kid": f"k{kid}"}))
    assert issuer.key_requests == 2


def test_withdrawn_key_is_rejected_after_the_next_refresh(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock
) -> None:
    tokens = make_verifier()
    token = issuer.token()
    assert tokens.principal(token)
    issuer.published = ["ec"]
    assert not tokens.keys.is_due
    clock.now += 300
    assert tokens.keys.is_due
    tokens.keys.refresh()
    with pytest.raises(UnauthorizedError):
        tokens.principal(token)
    # A single remaining key needs no key id.
    assert tokens.principal(issuer.token("ec", "ES256", headers={"kid": None}))


def test_keys_stay_valid_while_the_issuer_is_unavailable(
    make_verifier: Callable[..., TokenVerifier],
    issuer: Issuer,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its keys stay valid for the configured time only."""
    tokens = make_verifier(oidc_keys_seconds=3600)
    known, unknown = issuer.token(), issuer.token("next", "ES256")
    assert tokens.principal(known)
    issuer.stop()
    clock.now += 1000
    with caplog.at_level(logging.WARNING), pytest.raises(UnavailableError):
        tokens.keys.refresh()
    assert {record.action for record in caplog.records} == {"issuer_failed"}  # type: ignore[attr-defined]
    assert tokens.principal(known)
    assert tokens.principal(issuer.token(sub="berta")).name == "oidc:berta"
    # It is unknown whether the issuer has this key.
    with pytest.raises(UnavailableError, match="does not return its keys"):
        tokens.principal(unknown)
    clock.now += 2599
    assert tokens.principal(known)
    clock.now += 1
    with pytest.raises(UnavailableError, match="any more"):
        tokens.principal(known)
    issuer.start()
    tokens.keys.refresh()
    assert tokens.principal(known)


def test_tokens_are_unavailable_if_the_issuer_never_answered(issuer: Issuer) -> None:
    tokens = TokenVerifier(_oidc(issuer))
    issuer.stop()
    token = issuer.token()
    with pytest.raises(SigningKeyUnknownError):
        tokens.principal(token)
    with pytest.raises(UnavailableError):
        tokens.keys.refresh()
    with pytest.raises(UnavailableError, match="yet"):
        tokens.principal(token)


_KEYS, _DESCRIPTION = "/keys", "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("path", "status", "headers", "body", "message"),
    [
        (_KEYS, 500, {}, b"", "500"),
        (_KEYS, 200, {}, b"<html>", "does not return its keys"),
        (_KEYS, 200, {}, b"[" * 100_000, "does not return its keys"),
        (_KEYS, 200, {}, b"[]", "no list"),
        (_KEYS, 200, {}, b'{"keys": []}', "no key"),
        (_KEYS, 200, {}, b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "rsa"}, 3]}', "no key"),
        (_KEYS, 200, {}, b'{"keys": [' + b"{}, " * 200 + b"{}]}", "no list of at most 100"),
        (_KEYS, 200, {}, b" " * 300_000, "too much"),
        (_KEYS, 302, {"Location": "http://127.0.0.1:1/"}, b"", "302"),
        (_DESCRIPTION, 200, {}, b'{"issuer": "https://evil.example"}', "another issuer"),
        (_DESCRIPTION, 200, {}, b"3", "another issuer"),
    ],
)
def test_invalid_issuer_answers_are_ignored(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock,
    path: str, status: int, headers: dict[str, str], body: bytes, message: str,
) -> None:  # fmt: skip
    """The issuer counts as unavailable, and the known keys stay."""
    tokens = make_verifier()
    clock.now += 300
    issuer.overrides[path] = (status, headers, body)
    with pytest.raises(UnavailableError, match=message):
        tokens.keys.refresh()
    assert tokens.principal(issuer.token())


def test_keys_are_fetched_only_from_secure_urls(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock
) -> None:
    tokens = make_verifier()
    for place in ("http://example.com/keys", "file:///etc/passwd", "", None, "https://"):
        document = {"issuer": issuer.url, "jwks_uri": place}
        issuer.overrides[_DESCRIPTION] = (200, {}, json.dumps(document).encode())
        with pytest.raises(UnavailableError, match="its description has jwks_uri"):
            tokens.keys.refresh()


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_people_are_sent_only_to_secure_urls(issuer: Issuer, name: str) -> None:
    keys = IssuerKeys(_oidc(issuer, oidc_client_id="console"))
    keys.refresh()
    for place in ("http://example.com/x", "javascript:alert(1)", None):
        document = {**keys.metadata, name: place}
        issuer.overrides[_DESCRIPTION] = (200, {}, json.dumps(document).encode())
        with pytest.raises(UnavailableError, match=f"its description has {name}"):
            keys.refresh()


def test_key_url_can_be_configured(
    make_verifier: Callable[..., TokenVerifier], issuer: Issuer
) -> None:
    issuer.overrides[_DESCRIPTION] = (404, {}, b"")
    assert make_verifier(oidc_jwks_url=f"{issuer.url}/keys").principal(issuer.token())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"oidc_audience": ""}, "RECALIB_OIDC_AUDIENCE"),
        ({"oidc_issuer": "http://example.com"}, "RECALIB_OIDC_ISSUER"),
        ({"oidc_issuer": "https://"}, "RECALIB_OIDC_ISSUER"),
        ({"oidc_issuer": "http://[::1"}, "RECALIB_OIDC_ISSUER"),
        ({"oidc_jwks_url": "file:///keys"}, "RECALIB_OIDC_JWKS_URL"),
        ({"oidc_algorithms": "RS256 HS256"}, "RECALIB_OIDC_ALGORITHMS"),
        ({"oidc_algorithms": "none"}, "RECALIB_OIDC_ALGORITHMS"),
        ({"oidc_algorithms": " "}, "RECALIB_OIDC_ALGORITHMS"),
        ({"oidc_scopes": "root=x"}, "RECALIB_OIDC_SCOPES"),
        ({"oidc_scopes": "fit="}, "RECALIB_OIDC_SCOPES"),
        ({"oidc_scopes": " "}, "RECALIB_OIDC_SCOPES"),
        ({"oidc_issuer": "", "oidc_client_id": "console"}, "RECALIB_OIDC_CLIENT_ID"),
        ({"oidc_client_scopes": "email"}, "RECALIB_OIDC_CLIENT_SCOPES"),
    ],
)
def test_invalid_settings_are_rejected_at_start(values: dict[str, Any], named: str) -> None:
    good = {"oidc_issuer": "https://login.example.com", "oidc_audience": "recalib"}
    assert OidcConfig.of(Settings(**good)) is not None
    with pytest.raises(InputError) as excinfo:
        OidcConfig.of(Settings(**{**good, **values}))
    assert excinfo.value.field == named


def test_symmetric_algorithms_are_not_supported() -> None:
    assert not [name for name in ALGORITHMS if name.startswith("HS") or name.lower() == "none"]
