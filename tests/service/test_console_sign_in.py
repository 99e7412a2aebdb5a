"""People sign in to the console at an issuer of tokens."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

from recalib.registry import Registry, tables
from recalib.settings import Settings
from service.app import create_app
from service.console import visits
from service.console.visits import COOKIE
from tests.service.issuers import CLIENT, Issuer, issuer, signing_keys
from tests.service.test_console import Browser

__all__ = ["issuer", "signing_keys"]


class Site(NamedTuple):
    """A console with the models `mine` and `theirs`, and the issuer at which people sign in."""

    app: Any
    registry: Registry
    issuer: Issuer

    def begin(self, next: str = "/console/models") -> tuple[Browser, str]:
        """Return a browser that has been sent to the issuer, and where."""
        browser = Browser(self.app)
        answer = browser.get(f"sign-in/issuer?next={next}")
        assert answer.status_code == 303, answer.text
        return browser, answer.headers["location"]

    def signed_in(self, **claims: Any) -> Browser:
        browser, url = self.begin()
        answer = browser.client.get(self.issuer.approve(url, **claims))
        assert answer.headers["location"] == "/console/models", answer.text
        return browser


@pytest.fixture
def site(issuer: Issuer, database_url: str, blob_url: str, registry: Registry) -> Iterator[Site]:
    settings = Settings(
        database_url=database_url, blob_url=blob_url, grpc_port=-1, require_keys=True,
        refresh_seconds=3600, load_seconds=60, oidc_issuer=issuer.url, oidc_models_claim="models",
        **CLIENT,
    )  # fmt: skip
    with registry.transaction() as tx:
        for name in ("mine", "theirs"):
            tx.models.create(name, None, 4, "test")
    app = create_app(settings)
    with TestClient(app):
        yield Site(app, registry, issuer)


def test_a_link_leads_over_the_issuer_to_its_page(site: Site) -> None:
    """With the permissions of the access token, for its models, until the person signs out."""
    browser = Browser(site.app)
    form = browser.get("models/mine?x=1").headers["location"].removeprefix("/console/")
    link = re.search(r'href="/console/(sign-in/issuer[^"]+)"', browser.get(form).text)
    assert link is not None
    url = browser.get(link[1]).headers["location"]
    assert url.startswith(f"{site.issuer.url}/authorize?")
    answer = browser.client.get(site.issuer.approve(url, models=["mine"]))
    assert answer.headers["location"] == "/console/models/mine?x=1"
    assert all(part in answer.headers["set-cookie"] for part in ("HttpOnly", "SameSite=lax"))
    assert "oidc:anna" in browser.get("models/mine").text
    assert browser.get("models/theirs").status_code == 403
    assert browser.get("models/mine/promote/1").status_code == 403
    assert browser.send("sign-out", "models").status_code == 303
    assert browser.get("models/mine").status_code == 303
    with site.registry.reading() as tx:
        (entry,) = tx.audit.page(None, 9, action="sign_in")
    assert (entry.actor, entry.target) == ("oidc:anna", "console")


def test_an_administrator_sees_people_and_ends_their_sessions(site: Site) -> None:
    admin = site.signed_in(sub="ann/b?c", scope="recalib:admin", models="*")
    bob, again = (site.signed_in(sub="bob", models="*") for _ in range(2))
    row = re.search(r"oidc:bob</th>.*?</tr>", admin.get("keys").text, re.DOTALL)
    assert row is not None
    assert re.findall(r"<td[^>]*>(\w+)", row[0]) == ["fit", "all", "2"]
    assert admin.send("keys/oidc:bob/sign-out").headers["location"] == "/console/keys"
    for browser in (bob, again):
        assert "ended" in browser.get("models").headers["location"]
    link = re.search(r'href="/console/(keys/oidc%3Aann/b[^"]+/sign-out)"', admin.get("keys").text)
    assert link is not None
    admin.send(link[1])
    assert "ended" in admin.get("models").headers["location"]
    with site.registry.reading() as tx:
        assert [row.target for row in tx.audit.page(None, 9, action="end_sessions")] == [
            "oidc:ann/b?c", "oidc:bob",
        ]  # fmt: skip


@pytest.mark.sqlite_only
def test_tokens_that_are_not_of_the_attempt_open_no_session(site: Site) -> None:
    """The access token is checked as over the API; person and attempt are those of the ID token."""
    of_id: list[dict[str, Any]] = [
        {"nonce": "0" * 64}, {"nonce": None}, {"sub": "eve"}, {"aud": "recalib"},
        {"azp": "other"}, {"exp": 1}, {"iss": "https://evil.example"},
    ]  # fmt: skip
    cases = [(changes, {}) for changes in of_id] + [({}, {"aud": "other"}), ({}, {"exp": 1})]
    for changes, of_access in cases:
        browser, url = site.begin()
        site.issuer.id_claims = changes
        answer = browser.client.get(site.issuer.approve(url, **of_access))
        assert (answer.status_code, 'role="alert"' in answer.text) == (401, True), changes
        assert COOKIE not in browser.client.cookies


@pytest.mark.sqlite_only
def test_an_answer_of_the_issuer_is_for_the_browser_that_was_sent(site: Site) -> None:
    """Another browser, another attempt and a code that was used open no session."""
    browser, url = site.begin()
    back = site.issuer.approve(url)
    other, _ = site.begin()
    for stranger in (Browser(site.app), other):
        assert stranger.client.get(back).headers["location"].endswith("because=begin")
        assert COOKIE not in stranger.client.cookies
    assert browser.client.get(f"{back}0").headers["location"].endswith("because=begin")
    attempt = browser.client.cookies["recalib_sign_in"]
    assert browser.client.get(back).status_code == 303
    assert "recalib_sign_in" not in browser.client.cookies
    browser.client.cookies.set("recalib_sign_in", attempt, domain="localhost.local")
    assert browser.client.get(back).status_code == 401


@pytest.mark.sqlite_only
def test_what_the_issuer_does_not_grant_is_said(site: Site) -> None:
    browser, url = site.begin()
    back = site.issuer.approve(url)
    refused = re.sub(r"code=[^&]+", "error=access_denied", back)
    assert browser.client.get(refused).status_code == 401
    browser, url = site.begin()
    back = site.issuer.approve(url)
    site.issuer.stop()
    answer = browser.client.get(back)
    assert (answer.status_code, 'type="password"' in answer.text) == (503, True)


def test_a_session_of_a_person_rotates_and_ends_with_time_or_without_the_issuer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = site.signed_in(models="*")
    before = browser.client.cookies[COOKIE]
    monkeypatch.setattr(visits, "_ROTATION_SECONDS", 0.0)
    assert "oidc:anna" in browser.get("models").text
    monkeypatch.undo()
    assert browser.client.cookies[COOKIE] != before
    with site.registry.reading() as tx:
        session = tx.sessions.find(browser.client.cookies[COOKIE])
    assert session is not None
    assert 28_700 < session.remaining_seconds <= 28_800
    access = site.app.state.recalib.access
    verifier = access.tokens
    access.tokens = None
    assert "revoked" in browser.get("models").headers["location"]
    verifier.oidc = replace(verifier.oidc, client_id="")
    access.tokens = verifier
    assert browser.get("sign-in/issuer").status_code == 404
    assert "Sign in at" not in browser.get("sign-in").text
    with site.registry.transaction() as tx:
        tx.connection.execute(tables.sessions.update().values(expires_at=time.time() - 1))
    assert "ended" in browser.get("models").headers["location"]


@pytest.mark.sqlite_only
def test_a_token_in_the_field_of_a_key_opens_no_session(site: Site) -> None:
    """It ends long before a session would."""
    assert Browser(site.app).send("sign-in", key=site.issuer.token()).status_code == 401
