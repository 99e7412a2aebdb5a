"""Tokens of an issuer: good ones, bad ones of every kind, and an issuer that is away."""

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

from recalib.access import Principal
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
def made(issuer: Issuer, clock: Clock) -> Callable[..., TokenVerifier]:
    """Makes what checks tokens, the issuer asked once."""

    def make(**said: Any) -> TokenVerifier:
        oidc = _oidc(issuer, **said)
        tokens = TokenVerifier(oidc, IssuerKeys(oidc, clock))
        tokens.keys.look()
        return tokens

    return make


@pytest.fixture
def made_once(made: Callable[..., TokenVerifier], issuer: Issuer) -> tuple[TokenVerifier, str]:
    return made(), issuer.token()


def _oidc(issuer: Issuer, **said: Any) -> OidcConfig:
    found = OidcConfig.of(
        Settings(**{"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, **said})
    )
    assert found is not None
    return found


def test_a_good_token_says_who_and_what_for(
    made: Callable[..., TokenVerifier], issuer: Issuer
) -> None:
    tokens = made()
    anna = Principal("oidc:anna", frozenset({"fit"}))
    assert tokens.principal(issuer.token()) == anna
    assert tokens.principal(issuer.token("ec", "ES256")) == anna
    assert tokens.principal(issuer.token(aud=["x", AUDIENCE])) == anna
    both = issuer.token(scope=["recalib:predict", "recalib:label", "recalib:nonsense", 3])
    assert tokens.principal(both).scopes == {"predict", "label"}
    assert tokens.principal(issuer.token(scope=None)).scopes == frozenset()
    assert tokens.principal(issuer.token(scope={"recalib:fit": 1})).scopes == frozenset()


def test_what_scopes_and_models_are_called_is_a_setting(
    made: Callable[..., TokenVerifier], issuer: Issuer
) -> None:
    tokens = made(
        oidc_scope_claim="realm_access.roles",
        oidc_scopes="fit=ml-team predict=ml-team admin=https://x/?a=b",
        oidc_models_claim="https://example.com/models",
    )
    roles: dict[str, Any] = {"realm_access": {"roles": ["ml-team", "admin"]}}
    named = {"https://example.com/models": ["resnet", "vit"]}
    found = tokens.principal(issuer.token(**roles, **named))
    assert found == Principal(
        "oidc:anna", frozenset({"fit", "predict"}), frozenset(named.popitem()[1])
    )
    # One that names no models is for none; a star is for all.
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
def test_other_algorithms_are_taken_where_they_are_allowed(
    made: Callable[..., TokenVerifier], issuer: Issuer, algorithm: str
) -> None:
    key = "ed" if algorithm == "EdDSA" else "rsa"
    issuer.shown = [key, "ec"]
    token = issuer.token(key, algorithm)
    assert made(oidc_algorithms=algorithm).principal(token).name == "oidc:anna"
    with pytest.raises(UnauthorizedError, match="not signed by one of RS256, ES256"):
        made(oidc_algorithms="RS256 ES256").principal(token)


_NOW = time.time


def _bad(issuer: Issuer) -> dict[str, str]:
    """Return tokens that are not good, by why."""
    good = issuer.token()
    head, claims, signature = good.split(".")
    public = issuer.private["rsa"].public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def by_hmac(secret: bytes, algorithm: str = "HS256") -> str:
        begin = encoded({"alg": algorithm, "kid": "rsa"}, issuer.claims()).rpartition(".")[0]
        made = hmac.new(secret, begin.encode(), hashlib.sha256).digest()
        return f"{begin}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"

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
        "a key of its own in the header": issuer.token(
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
        **{f"no {one}": issuer.token(**{one: None}) for one in ("exp", "iat", "iss", "sub")},
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


def test_bad_tokens_are_refused(made: Callable[..., TokenVerifier], issuer: Issuer) -> None:
    tokens = made()
    asked = issuer.asked
    for why, token in _bad(issuer).items():
        # Again as well: what was refused once is not remembered as good.
        for _ in range(2):
            with pytest.raises(UnauthorizedError) as caught:
                tokens.principal(token)
            said = str(caught.value)
            assert said.isprintable(), why
            assert len(said) < 120, why
    assert issuer.asked == asked
    with pytest.warns(jwt.warnings.InsecureKeyLengthWarning):
        small = issuer.token("small", headers={"kid": "small"})
    issuer.shown = ["small", "rsa"]
    with pytest.raises(UnauthorizedError):
        made().principal(small)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.text("eyJ.A=-_ \x00é", max_size=60), data=st.data())
def test_no_text_gets_in_and_none_is_a_fault(
    made_once: tuple[TokenVerifier, str], text: str, data: st.DataObject
) -> None:
    """Whatever is sent, and a good token with any character of it changed."""
    tokens, good = made_once
    place = data.draw(st.integers(0, len(good) - 1))
    changed = good[:place] + text[:1] + good[place + 1 :]
    for one in (text, changed):
        if one == good:
            continue
        try:
            assert tokens.principal(one).name == "oidc:anna"
        except (UnauthorizedError, SigningKeyUnknownError):
            continue
        # The last character of a signature has bits that mean nothing.
        assert place == len(good) - 1


def test_an_end_is_kept_though_a_token_is_remembered(
    made: Callable[..., TokenVerifier], issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = made(oidc_leeway_seconds=5)
    end = int(time.time()) + 100
    token = issuer.token(exp=end)
    assert tokens.principal(token)
    monkeypatch.setattr(time, "time", lambda: end + 4.9)
    assert tokens.principal(token)
    monkeypatch.setattr(time, "time", lambda: end + 5.1)
    # PyJWT has a clock of its own: that it is not remembered any more is what is seen.
    checked: list[str] = []
    monkeypatch.setattr(tokens, "_checked", lambda one: checked.append(one) or _expired())
    with pytest.raises(UnauthorizedError):
        tokens.principal(token)
    assert checked == [token]


def _expired() -> Any:
    raise UnauthorizedError("the token is not good: it has expired")


def test_a_new_key_is_looked_for_and_not_too_often(
    made: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock
) -> None:
    tokens = made()
    assert issuer.asked == 1
    unknown = issuer.token("next", "ES256")
    # The issuer has just been asked: there is no such key.
    with pytest.raises(UnauthorizedError, match="none of the issuer's"):
        tokens.principal(unknown)
    clock.now += 10
    issuer.shown = ["rsa", "ec", "next"]
    with pytest.raises(SigningKeyUnknownError):
        tokens.principal(unknown)
    tokens.keys.look()
    assert tokens.principal(unknown).name == "oidc:anna"
    assert issuer.asked == 2
    # Made-up ones ask no more often than that.
    for kid in range(50):
        with pytest.raises(UnauthorizedError):
            tokens.principal(issuer.token("next", "ES256", headers={"kid": f"k{kid}"}))
    assert issuer.asked == 2


def test_a_key_that_the_issuer_gives_up_is_refused_at_the_next_look(
    made: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock
) -> None:
    tokens = made()
    token = issuer.token()
    assert tokens.principal(token)
    issuer.shown = ["ec"]
    assert not tokens.keys.is_due
    clock.now += 300
    assert tokens.keys.is_due
    tokens.keys.look()
    with pytest.raises(UnauthorizedError):
        tokens.principal(token)
    # The one that is left need not be named.
    assert tokens.principal(issuer.token("ec", "ES256", headers={"kid": None}))


def test_an_issuer_that_is_away(
    made: Callable[..., TokenVerifier],
    issuer: Issuer,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its keys stay good for the time that is set, and no longer."""
    tokens = made(oidc_keys_seconds=3600)
    known, unknown = issuer.token(), issuer.token("next", "ES256")
    assert tokens.principal(known)
    issuer.stop()
    clock.now += 1000
    with caplog.at_level(logging.WARNING), pytest.raises(UnavailableError):
        tokens.keys.look()
    assert {one.action for one in caplog.records} == {"issuer_failed"}  # type: ignore[attr-defined]
    assert tokens.principal(known)
    assert tokens.principal(issuer.token(sub="berta")).name == "oidc:berta"
    # Whether it has this key cannot be known.
    with pytest.raises(UnavailableError, match="cannot be asked for its keys"):
        tokens.principal(unknown)
    clock.now += 2599
    assert tokens.principal(known)
    clock.now += 1
    with pytest.raises(UnavailableError, match="any more"):
        tokens.principal(known)
    issuer.start()
    tokens.keys.look()
    assert tokens.principal(known)


def test_an_issuer_that_was_never_there(issuer: Issuer) -> None:
    tokens = TokenVerifier(_oidc(issuer))
    issuer.stop()
    token = issuer.token()
    with pytest.raises(SigningKeyUnknownError):
        tokens.principal(token)
    with pytest.raises(UnavailableError):
        tokens.keys.look()
    with pytest.raises(UnavailableError, match="yet"):
        tokens.principal(token)


_KEYS, _DESCRIPTION = "/keys", "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("path", "status", "headers", "body", "said"),
    [
        (_KEYS, 500, {}, b"", "500"),
        (_KEYS, 200, {}, b"<html>", "cannot be asked"),
        (_KEYS, 200, {}, b"[" * 100_000, "cannot be asked"),
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
def test_what_an_issuer_must_not_say(
    made: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock, path: str, status: int,
    headers: dict[str, str], body: bytes, said: str,
) -> None:  # fmt: skip
    """It is as though it were away: keys that are there stay."""
    tokens = made()
    clock.now += 300
    issuer.instead[path] = (status, headers, body)
    with pytest.raises(UnavailableError, match=said):
        tokens.keys.look()
    assert tokens.principal(issuer.token())


def test_keys_are_not_fetched_from_where_others_could_answer(
    made: Callable[..., TokenVerifier], issuer: Issuer, clock: Clock
) -> None:
    tokens = made()
    for place in ("http://example.com/keys", "file:///etc/passwd", "", None, "https://"):
        said = {"issuer": issuer.url, "jwks_uri": place}
        issuer.instead[_DESCRIPTION] = (200, {}, json.dumps(said).encode())
        with pytest.raises(UnavailableError, match="names its keys' place"):
            tokens.keys.look()


def test_where_keys_are_may_be_said(made: Callable[..., TokenVerifier], issuer: Issuer) -> None:
    issuer.instead[_DESCRIPTION] = (404, {}, b"")
    assert made(oidc_jwks_url=f"{issuer.url}/keys").principal(issuer.token())


@pytest.mark.parametrize(
    ("said", "named"),
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
    ],
)
def test_what_cannot_be_is_refused_at_the_start(said: dict[str, Any], named: str) -> None:
    good = {"oidc_issuer": "https://login.example.com", "oidc_audience": "recalib"}
    assert OidcConfig.of(Settings(**good)) is not None
    with pytest.raises(InputError) as caught:
        OidcConfig.of(Settings(**{**good, **said}))
    assert caught.value.field == named


def test_no_algorithm_takes_a_secret() -> None:
    assert not [one for one in ALGORITHMS if one.startswith("HS") or one.lower() == "none"]
