"""Pages of the console: what they show, who may see it, and forms that change something."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from recalib.core.access import ApiKey, hash_secret
from recalib.registry import Registry, tables
from recalib.settings import Settings
from service.app import create_app
from service.console import pictures, visits
from service.console.visits import COOKIE
from tests.service.conftest import Service, npz
from tests.service.test_evaluations import with_sites
from tests.training.watched import WATCHING, Stream, a_champion
from training.monitoring_job import watch

PAGES = (
    "models", "models/digits", "models/digits/monitoring", "models/digits/versions",
    "models/digits/versions/1", "models/digits/datasets", "models/digits/compare",
    "models/digits/refit",
    "models/digits/promote/1", "models/digits/fit", "models/digits/settings",
    "models/digits/batches", "training",
    "new-model", "jobs", "audit", "keys", "server",
)  # fmt: skip


class Browser:
    """A client that keeps cookies and fills forms in."""

    def __init__(self, app: Any, base_url: str = "http://localhost") -> None:
        self.client = TestClient(app, base_url, follow_redirects=False)

    def get(self, path: str) -> Any:
        return self.client.get(f"/console/{path}")

    def send(self, path: str, form_of: str | None = None, **fields: str) -> Any:
        """Send a form with the hidden fields of the page that has it."""
        hidden = self.hidden(self.get(path if form_of is None else form_of).text)
        return self.client.post(f"/console/{path}", data={**hidden, **fields})

    @staticmethod
    def hidden(page: str) -> dict[str, str]:
        """Return the hidden fields of the forms of a page."""
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
        return {name: unescape(value) for name, value in found}


@pytest.fixture
def browser(ready: Service) -> Browser:
    return Browser(ready.client.app)


@pytest.mark.parametrize("path", PAGES)
def test_pages_load_nothing_foreign_and_allow_no_inline_code(shared: Service, path: str) -> None:
    answer = Browser(shared.client.app).get(path)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert all(
        part in policy
        for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'")
    )
    assert not re.search(
        r"<style|style=|<script(?! src=\"/console/)| on\w+=|(src\w*|href|action)=\"https?://",
        answer.text,
    )
    for file in re.findall(r'(?:src|href)="(/console/static/[^"]+)"', answer.text):
        assert Browser(shared.client.app).get(file.removeprefix("/console/")).status_code == 200


def test_the_first_page_leads_to_the_models(shared: Service) -> None:
    answer = Browser(shared.client.app).client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/models")


def test_errors_are_pages(shared: Service) -> None:
    browser = Browser(shared.client.app)
    for path in ("models/none", "models/digits/versions/9", "models/digits/versions/x", "static/x"):
        answer = browser.get(path)
        assert answer.status_code == 404, path
        assert "<h1>Not found</h1>" in answer.text


def test_a_promotion_states_its_effect_and_is_audited(browser: Browser, ready: Service) -> None:
    ready.fitted(map="vector", promote=False)
    assert "version 2" in browser.get("models/digits/promote/2").text
    assert browser.send("models/digits/promote/2", reason="looks better").status_code == 303
    assert ready.client.get("/v1/models/digits/aliases").json()["items"][0]["version"] == 2
    assert "looks better" in browser.get("audit").text
    location = browser.get("models/digits/rollback").headers["location"]
    assert location == "/console/models/digits/promote/1"


def test_a_version_shows_its_reliability_with_the_numbers(browser: Browser, ready: Service) -> None:
    sums = ready.client.get("/v1/models/digits/calibrators/1").json()["card"]["reliability"]
    page = browser.get("models/digits/versions/1").text
    for stage in ("before", "after"):
        rows = re.findall(rf'<td>{stage}</td><td class="n">(\d+)</td>', page)
        assert list(map(int, rows)) == [count for count in sums[stage]["count"] if count]
    pictures = re.findall(r'src="/console/([^"]+)"', browser.get("models/digits/versions").text)
    assert "models/digits/versions/1/reliability.svg?small=1&amp;" in pictures


def test_a_version_shows_its_rule_of_rejection(browser: Browser, ready: Service) -> None:
    ready.fitted(max_risk=0.5)
    rule = ready.client.get("/v1/models/digits/calibrators/2").json()["card"]["rejection"]
    page = browser.get("models/digits/versions/2").text
    share = 100 * rule["accepted"] / rule["rows"]
    assert f"confidence of at least {rule['threshold']:.4g} are accepted, {share:.1f}% of" in page
    assert "at most 50% is wrong, with a probability of 0.9" in page
    assert "Rejection" not in browser.get("models/digits/versions/1").text


def test_a_person_who_opens_a_page_starts_what_draws(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first picture takes seconds. A page that follows the server does not keep it running."""
    started: list[object] = []
    monkeypatch.setattr(pictures._Painter, "warm", lambda painter: started.append(painter))
    for mode, times in (("cors", 0), ("navigate", 2)):
        for path in ("models", "models/digits"):
            browser.client.get(f"/console/{path}", headers={"Sec-Fetch-Mode": mode})
        assert len(started) == times


def test_versions_are_compared_on_data_sets(browser: Browser, ready: Service) -> None:
    for field in ("version:identity", "dataset:validation"):
        answer = browser.send("models/digits/compare", **{field: "on"})
        assert (answer.status_code, "none" in answer.text) == (422, True)
    chosen = {"version:identity": "on", "version:1": "on", "dataset:validation": "on"}
    chosen |= {"baseline": "identity", "key": "k"}
    answer = browser.send("models/digits/compare", **chosen, **{"dataset:none": "on"})
    assert (answer.status_code, 'value="k"' in answer.text) == (404, True)
    answer = browser.send("models/digits/compare", **chosen)  # enqueues no evaluation twice
    assert answer.status_code == 303, answer.text
    assert "queued" in browser.get("models/digits/compare").text
    ready.work()
    (found,) = ready.client.get("/v1/models/digits/evaluations").json()["items"]
    assert found["versions"] == ["identity", "1"]
    change, page = found["results"][1]["changes"]["nll"], browser.get("models/digits/compare").text
    assert f"{change['value']:+.4f} [{change['low']:+.4f}, {change['high']:+.4f}]" in page
    report = browser.get(f"models/digits/compare/{found['id']}")
    assert "style-src 'unsafe-inline'" in report.headers["content-security-policy"]
    assert "script" not in report.headers["content-security-policy"]


def test_comparison_shows_each_segment_with_its_interval(browser: Browser, ready: Service) -> None:
    with_sites(ready)
    chosen = {"version:identity": "on", "version:1": "on", "dataset:sites": "on", "key": "k"}
    refused = browser.send("models/digits/compare", **chosen, segments="site, sight")
    assert refused.status_code == 422
    assert "segments: found no column sight" in unescape(refused.text)
    assert 'name="segments" value="site, sight"' in refused.text
    assert browser.send("models/digits/compare", **chosen, segments="site").status_code == 303
    (found,) = ready.client.get("/v1/models/digits/evaluations").json()["items"]
    path = f"models/digits/compare/{found['id']}"
    assert "No segments yet." in browser.get(f"{path}/segments").text
    ready.work()
    assert f'{path}/segments">Segments: site</a>' in browser.get("models/digits/compare").text
    page = browser.get(f"{path}/segments").text
    assert "All 2 intervals of a version hold together with 95%" in page
    results = ready.client.get(f"/v1/models/digits/evaluations/{found['id']}").json()["results"]
    for result in results:
        for part in result["segments"]:
            assert f">{part['segment']}</th>" in page
            ece = part["metrics"]["ece"]
            assert f'{ece["value"]:.4f} <span class="change">[{ece["low"]:.4f}, ' in page
            assert f"noise floor {ece['floor']:.4f}" in page


def test_monitoring_shows_the_latest_window_by_confidence(service: Service) -> None:
    model = a_champion(service.registry, WATCHING)
    Stream(service.registry, model).send(1_500, ago=4_000, seconds=1_000, labelled=0.5)
    watch(service.registry, model)
    page = Browser(service.client.app).get("models/resnet/monitoring").text
    assert "1,500 predictions" in page
    for name in ("window", "calibration set"):
        shares = re.findall(rf'value="([\d.e-]+)" aria-label="share of the {name}"', page)
        assert len(shares) > 5
        assert sum(map(float, shares)) == pytest.approx(1)
    labelled = re.findall(r'value="([\d.e-]+)" aria-label="share with a label"', page)
    assert np.mean([float(share) for share in labelled]) == pytest.approx(0.5, abs=0.1)


def _upload(browser: Browser, file: tuple[str, bytes], model: str = "birds", **fields: str) -> Any:
    page = browser.get(f"models/{model}/datasets").text
    token = re.findall(r'name="form_token" value="(\w+)"', page)[-1]
    body = {"form_token": token, **fields}
    url = f"/console/models/{model}/datasets"
    return browser.client.post(url, data=body, files={"file": file})


def test_from_a_new_model_to_a_champion(
    browser: Browser, ready: Service, data: tuple[NDArray[Any], NDArray[Any]]
) -> None:
    answer = browser.send("new-model", name="birds", classes="owl, crow, tit, wren")
    assert answer.headers["location"] == "/console/models/birds/datasets"
    answer = _upload(browser, ("val.npz", npz(*data)))
    assert answer.status_code == 200, answer.text
    assert "600 rows, every one checked" in answer.text
    form = "models/birds/fit?dataset=val"
    chosen = {"dataset": "val", "map": "temperature", "objective": "nll", "sets": "aps"}
    chosen |= {"coverage": "0.8", "sets_by": "class"}
    answer = browser.send("models/birds/fit", form, promote="if_better", **chosen)
    assert answer.status_code == 303, answer.text
    ready.work()
    assert "succeeded" in browser.get(answer.headers["location"].removeprefix("/console/")).text
    assert "champion" in browser.get("models/birds/versions").text
    page = browser.get("models/birds/versions/1").text
    assert "aps: sets hold the label of 80% of new rows of each class, by thresholds of 300" in page


def test_errors_of_forms_name_the_field(browser: Browser, ready: Service) -> None:
    for classes, field in (("1", "classes"), ("owl,owl", "classes"), ("", "classes")):
        answer = browser.send("new-model", name="birds", classes=classes)
        assert answer.status_code == 422
        assert field in answer.text
    ready.model("birds")
    for file, text in (
        (("val.zip", b"x"), ".npz"),
        (("val.npz", b"x"), "npz"),
        (("val.csv", b""), "nothing"),
        (("", b""), "none"),
    ):
        answer = _upload(browser, file)
        assert answer.status_code == 422, file
        assert text in answer.text
        assert 'type="file"' in answer.text
    assert _upload(browser, ("val.npz", bytes(1_100_000))).status_code == 413
    assert _upload(browser, ("val.npz", b"x"), form_token="0" * 64).status_code == 403
    assert ready.client.get("/v1/models/birds/datasets").json()["items"] == []
    answer = browser.send("models/digits/fit", dataset="none", map="temperature", objective="nll")
    assert answer.status_code == 404


def test_monitoring_is_set_with_a_form(browser: Browser, ready: Service) -> None:
    """The form holds every setting; what is not valid is named at its field."""
    form = browser.get("models/digits/settings").text
    before = ready.client.get("/v1/models/digits").json()["monitoring"]
    assert re.findall(r'aria-describedby="help-(\w+)"', form) == list(before)
    sent = {name: _text_of(value) for name, value in before.items()}
    sent |= {"tolerance": "0.03", "segments": "web\r\nshop", "refit_every_seconds": ""}
    assert browser.send("models/digits/settings", **sent).status_code == 303
    after = ready.client.get("/v1/models/digits").json()["monitoring"]
    assert after == before | {"tolerance": 0.03, "segments": ["web", "shop"]}
    for field, text in (("tolerance", "0.7"), ("alpha", "<i>"), ("segments", "a\na")):
        answer = browser.send("models/digits/settings", **(sent | {field: text}))
        assert answer.status_code == 422, answer.text
        assert f'aria-describedby="help-{field} error-{field}" aria-invalid' in answer.text
        assert "<i>" not in answer.text
    assert browser.send("models/digits/settings", **(sent | {"segments": ""})).status_code == 409


def test_settings_are_tried_before_they_are_set(browser: Browser, ready: Service) -> None:
    before = ready.client.get("/v1/models/digits").json()["monitoring"]
    sent = {name: _text_of(value) for name, value in before.items()} | {"tolerance": "0.2"}
    answer = browser.send("models/digits/settings", **sent, **{"try": ""})
    assert answer.status_code == 303, answer.text
    ready.work()
    path = answer.headers["location"].removeprefix("/console/")
    shown = browser.get(path).text
    assert "What could not be replayed" in shown
    assert "no matured label is retained" in shown
    assert ready.client.get("/v1/models/digits").json()["monitoring"] == before
    form = browser.get(f"models/digits/settings?job={path.removeprefix('jobs/')}").text
    assert re.search(r'name="tolerance"[^>]* value="0.2"', form)


def test_a_batch_is_listed_and_its_result_is_saved(browser: Browser, ready: Service) -> None:
    request = {"dataset": "validation"}
    batch = ready.client.post("/v1/models/digits/batches", json=request).json()
    assert batch["id"][:8] in browser.get("models/digits/batches").text
    ready.work()
    shown = browser.get("models/digits/batches").text
    link = re.search(r'href="/console/(models/digits/batches/\w+/content)"', shown)
    assert link is not None
    answer = browser.get(link[1])
    assert answer.content[:4] == b"PAR1"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert browser.get("models/digits/batches/none/content").status_code == 404


def _text_of(value: Any) -> str:
    return "\n".join(value) if isinstance(value, list) else "" if value is None else str(value)


def test_a_form_that_is_sent_twice_acts_once(browser: Browser, ready: Service) -> None:
    fields = browser.hidden(browser.get("models/digits/refit").text)
    for _ in range(2):
        answer = browser.client.post("/console/models/digits/refit", data=fields)
        assert answer.status_code == 303
    kinds = [job["kind"] for job in ready.client.get("/v1/jobs").json()["items"]]
    assert kinds.count("refit") == 1


def test_errors_of_an_action_stand_on_its_page(browser: Browser) -> None:
    answer = browser.send("models/digits/drop/1", reason="no candidate")
    assert answer.status_code == 404
    assert 'role="alert"' in answer.text
    assert "<textarea" in answer.text


def test_forms_need_the_token_of_their_session(shared: Service) -> None:
    browser = Browser(shared.client.app)
    browser.get("models")
    for token in ("", "0" * 64, "ä"):
        fields = {"form_token": token, "reason": "forged"}
        answer = browser.client.post("/console/models/digits/promote/1", data=fields)
        assert answer.status_code == 403
    foreign = {"Origin": "https://evil.example"}
    assert browser.client.post("/console/models/digits/refit", headers=foreign).status_code == 403


def test_the_server_page_masks_secrets(
    browser: Browser, ready: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = ready.client.app.state  # type: ignore[attr-defined]
    changed = held.recalib.settings.model_copy(update={"cluster": "tcp://ann:hunter2@engine:8786"})
    monkeypatch.setattr(held, "recalib", replace(held.recalib, settings=changed))
    text = browser.get("server").text
    assert "tcp://***@engine:8786" in text
    assert "hunter2" not in text
    for check in ("tls", "database", "schema", "jobs", "blobs"):
        assert f'<th scope="row">{check}</th>' in text


def test_text_that_no_database_stores_is_refused(browser: Browser) -> None:
    for path in ("models?name=%00", "audit?actor=%00", "models?number=0"):
        assert browser.get(path).status_code == 422, path
    assert browser.send("models/digits/promote/1", reason="a\0b").status_code == 422
    long = browser.send("models/digits/promote/1", reason="a" * 501)
    assert (long.status_code, "reason" in long.text) == (422, True)


def test_names_and_texts_are_escaped(browser: Browser, ready: Service) -> None:
    evil = "<script>alert(1)</script>\"'"
    ready.client.patch("/v1/models/digits", json={"description": evil, "tags": [evil]})
    for path in (
        "models/digits",
        f"models?name={evil}",
        f"jobs?model={evil}",
        f"audit?actor={evil}",
    ):
        assert "<script>alert" not in browser.get(path).text


class Guarded(NamedTuple):
    """A console that requires keys, with two models, `mine` and `theirs`."""

    app: Any
    registry: Registry
    #: Secrets by name.
    keys: dict[str, str]

    def signed_in(self, name: str) -> Browser:
        browser = Browser(self.app)
        answer = browser.send("sign-in", key=self.keys[name])
        assert answer.status_code == 303, answer.text
        return browser


@pytest.fixture
def guarded(database_url: str, blob_url: str, registry: Registry) -> Iterator[Guarded]:
    settings = Settings(
        database_url=database_url, blob_url=blob_url, grpc_port=-1, require_keys=True,
        refresh_seconds=3600, load_seconds=60,
    )  # fmt: skip
    with registry.transaction() as tx:
        keys = {scope: tx.api_keys.create(scope, [scope]) for scope in ("admin", "fit", "predict")}
        keys["bound"] = tx.api_keys.create("bound", ["admin"], ["mine"])
        for name in ("mine", "theirs"):
            tx.models.create(name, None, 4, "test")
    app = create_app(settings)
    with TestClient(app):
        yield Guarded(app, registry, keys)


def test_a_page_asks_for_a_key_and_leads_back(guarded: Guarded) -> None:
    browser = Browser(guarded.app)
    answer = browser.get("models/mine?x=1")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/sign-in?next=%2Fconsole%2Fmodels%2Fmine")
    form = answer.headers["location"].removeprefix("/console/")
    answer = browser.send("sign-in", form, key=guarded.keys["fit"])
    assert answer.headers["location"] == "/console/models/mine?x=1"
    assert browser.get("models/mine").status_code == 200
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=lax", "Path=/console/"))


def test_cookies_are_secure_where_others_could_read_them(guarded: Guarded) -> None:
    for url, is_secure in (("https://localhost", True), ("http://recalib.example", True),
                           ("http://localhost", False)):  # fmt: skip
        cookie = (
            Browser(guarded.app, url).send("sign-in", key=guarded.keys["fit"]).headers["set-cookie"]
        )
        assert ("Secure" in cookie) is is_secure, url


@pytest.mark.parametrize("wanted", ["https://evil.example/console/x", "//evil/console/x", "\\x"])
def test_a_sign_in_leads_to_no_other_site(guarded: Guarded, wanted: str) -> None:
    answer = Browser(guarded.app).send("sign-in", key=guarded.keys["fit"], next=wanted)
    assert answer.headers["location"].startswith("/console/")


def test_a_sign_in_leads_not_to_the_end_of_the_session(guarded: Guarded) -> None:
    fields = {"key": guarded.keys["fit"], "next": "/console/sign-out"}
    answer = Browser(guarded.app).send("sign-in", **fields)
    assert answer.headers["location"] == "/console/models"


def test_a_link_puts_no_words_into_the_form(guarded: Guarded) -> None:
    assert "Call" not in Browser(guarded.app).get("sign-in?because=Call+0800").text


def test_a_wrong_key_opens_no_session(guarded: Guarded) -> None:
    answer = Browser(guarded.app).send("sign-in", key="recalib_wrong")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text


def test_a_session_may_do_what_its_key_may(guarded: Guarded) -> None:
    fit, predict = guarded.signed_in("fit"), guarded.signed_in("predict")
    assert fit.get("models").status_code == 200
    assert ">Keys<" not in fit.get("models").text
    assert fit.get("keys").status_code == fit.get("audit").status_code == 403
    assert fit.get("server").status_code == 403
    assert fit.get("models/mine/promote/1").status_code == 403
    assert predict.get("models").status_code == 403


def test_a_key_for_some_models_sees_no_others(guarded: Guarded) -> None:
    bound = guarded.signed_in("bound")
    text = bound.get("models").text
    assert "mine" in text
    assert "theirs" not in text
    assert bound.get("models/theirs").status_code == bound.get("keys").status_code == 403


def test_a_session_ends_with_its_key_with_its_time_and_by_signing_out(guarded: Guarded) -> None:
    by_key, by_time, by_hand = (guarded.signed_in("admin") for _ in range(3))
    assert by_hand.send("sign-out", "models").status_code == 303
    assert by_hand.get("models").status_code == 303
    with guarded.registry.transaction() as tx:
        token = by_time.client.cookies[COOKIE]
        tx.connection.execute(
            tables.sessions.update()
            .where(tables.sessions.c.digest == hash_secret(token))
            .values(expires_at=time.time() - 1)
        )
    assert by_time.get("models").status_code == 303
    admin = guarded.signed_in("admin")
    assert admin.send("keys/admin/revoke").status_code == 303
    answer = by_key.get("models")
    assert answer.status_code == 303
    assert "revoked" in answer.headers["location"]
    with guarded.registry.transaction() as tx:
        assert tx.sessions.purge() == 1


def test_an_administrator_ends_the_sessions_of_a_key(guarded: Guarded) -> None:
    admin, first, second = (guarded.signed_in(name) for name in ("admin", "fit", "fit"))
    assert re.search(r'sessions">2 <a href="/console/keys/fit/sign-out', admin.get("keys").text)
    assert first.get("keys/fit/sign-out").status_code == 403
    assert admin.send("keys/fit/sign-out").headers["location"] == "/console/keys"
    for browser in (first, second):
        assert "ended" in browser.get("models").headers["location"]
    assert "end_sessions" in admin.get("audit").text
    assert guarded.signed_in("fit").get("models").status_code == 200


def test_signing_in_replaces_the_token_of_the_browser(guarded: Guarded) -> None:
    """A token that someone planted, or of another key, does not become that of the new session."""
    browser = guarded.signed_in("admin")
    before = browser.client.cookies[COOKIE]
    browser.send("sign-in", key=guarded.keys["fit"])
    assert browser.client.cookies[COOKIE] != before
    with guarded.registry.reading() as tx:
        assert tx.sessions.find(before) is None
    assert browser.get("keys").status_code == 403


def test_a_token_is_replaced_and_the_old_one_ends(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = guarded.signed_in("fit")
    old = browser.client.cookies[COOKIE]
    monkeypatch.setattr(visits, "_ROTATION_SECONDS", 0.0)
    browser.get("models")
    monkeypatch.undo()
    assert browser.client.cookies[COOKIE] != old
    assert browser.get("models").status_code == 200
    with guarded.registry.reading() as tx:
        session = tx.sessions.find(old)
        assert session is not None
        assert session.remaining_seconds <= 60


def test_a_key_is_created_shown_once_and_used(guarded: Guarded) -> None:
    admin = guarded.signed_in("admin")
    answer = admin.send("keys", name="robot", scope_predict="on", models="mine", days="30")
    secret = re.search(r"<pre>(.+?)</pre>", answer.text)
    assert secret is not None
    assert secret[1] not in admin.get("keys").text
    headers = {"Authorization": f"Bearer {secret[1]}"}
    assert admin.client.get("/v2/models/mine", headers=headers).status_code == 200
    for field, text in (("days", "soon"), ("concurrency", "1.5"), ("name", "a b")):
        answer = admin.send("keys", **{"name": "other", "scope_fit": "on", field: text})
        assert answer.status_code == 422, answer.text
        assert field in answer.text


def test_a_key_is_limited(guarded: Guarded) -> None:
    admin = guarded.signed_in("admin")
    assert admin.send("keys/fit/limits", rows_per_second="1.5", body_bytes="9").status_code == 303
    form = admin.get("keys/fit/limits").text
    assert 'name="rows_per_second" value="1.5"' in form
    assert admin.send("keys/fit/limits", rows_per_second="", body_bytes="7").status_code == 303
    limits = {key.name: key.limits for key in _keys(guarded)}["fit"]
    assert (limits.rows_per_second, limits.body_bytes) == (None, 7)
    answer = admin.send("keys/fit/limits", concurrency="1.5")
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert admin.get("keys/none/limits").status_code == 404
    assert guarded.signed_in("fit").get("keys/fit/limits").status_code == 403


def _keys(guarded: Guarded) -> list[ApiKey]:
    with guarded.registry.reading() as tx:
        return tx.api_keys.active()


def test_cookies_open_no_other_route(guarded: Guarded) -> None:
    """A page of another site could send them along."""
    assert guarded.signed_in("admin").client.get("/v1/models").status_code == 401


def test_models_are_sorted_by_urgency_searched_and_paged(browser: Browser, ready: Service) -> None:
    for number in range(60):
        ready.model(f"m{number:02}")
    first = browser.get("models").text
    assert "Page 1 of 2, 61 models" in first
    assert first.index("digits") < first.index("m00")
    assert "m59" in browser.get("models?number=2").text
    assert "No model matches" in browser.get("models?name=zzz").text
    by_state = browser.get("models?state=unverified").text
    assert ">digits<" in by_state
    assert ">m00<" not in by_state
