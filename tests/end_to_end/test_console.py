"""Journeys through the console of a real server, in Chromium."""

from __future__ import annotations

import contextlib
import http.server
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from recalib.client import Client
from recalib.registry import Registry, tables
from tests.end_to_end.programs import PATIENCE_SECONDS, Programs, Server, recalib_command
from tests.fitting.conftest import draw
from tests.service.issuers import CLIENT, Issuer, signing_keys

__all__ = ["signing_keys"]

pytestmark = pytest.mark.slow

_ADMIN = "recalib_" + secrets.token_urlsafe(32)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Programs of a home with the key `admin`."""
    programs = Programs(tmp_path_factory.mktemp("console"))
    command = recalib_command("keys", "create", "admin", "--scope", "admin", "--secret-file")
    (programs.folder / "admin").write_text(_ADMIN)
    options = (str(programs.folder / "admin"), "--home", str(programs.home))
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def registry(home: Programs) -> Iterator[Registry]:
    registry = Registry(f"sqlite:///{home.home / 'recalib.db'}", (home.home / "blobs").as_uri())
    yield registry
    registry.close()


@pytest.fixture(scope="module")
def issuer_elsewhere(signing_keys: dict[str, Any]) -> Iterator[Issuer]:
    """An issuer of tokens on another site."""
    issuer = Issuer(signing_keys, "localhost")
    yield issuer
    issuer.stop()


@pytest.fixture(scope="module")
def world(
    home: Programs, registry: Registry, issuer_elsewhere: Issuer
) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server with keys, and five days of predictions of the model `defects`.

    The keys are `admin`, `fit`, and `bound`, which administers the model `others` alone.
    """
    with registry.transaction() as tx:
        keys = {"admin": _ADMIN, "fit": tx.api_keys.create("fit", ["fit"])}
        keys["bound"] = tx.api_keys.create("bound", ["admin"], ["others"])
    settings = {"oidc_issuer": issuer_elsewhere.url, **CLIENT}
    with home.serve("--require-keys", "--grpc-port", -1, **settings) as server:
        with Client(server.url, api_key=keys["admin"]) as client:
            client.create_model("others", 4)
            client.create_model("defects", 4)
            _upload(client, home.folder, 1)
            client.wait(client.fit("defects", "validation").id)
            _replay(home, server, keys["admin"])
        yield server, keys


def _upload(client: Client, folder: Path, seed: int) -> None:
    logits, labels = draw(2_000, 4, 2.0, seed=seed)
    np.savez(folder / "validation.npz", logits=logits, labels=labels)
    client.upload_dataset("defects", "validation", folder / "validation.npz")


def _replay(programs: Programs, server: Server, key: str) -> None:
    """Load a log whose logits grow after two thirds of its time."""
    logits, labels = draw(12_000, 4, 1.0, seed=2)
    logits[8_000:] *= 2.5
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = shifted / shifted.sum(1, keepdims=True)
    # A replay takes its time for the hours of a log, not for its rows.
    times = time.time() - np.linspace(7 * 86_400, 2 * 86_400, len(labels))
    columns = np.column_stack([times, labels, times + 60, probabilities])
    names = ["time", "label", "label_time", *(f"probability_{k}" for k in range(4))]
    log = programs.folder / "log.csv"
    np.savetxt(log, columns, delimiter=",", header=",".join(names), comments="", fmt="%.6f")
    options = ("--into", "defects", "--server", server.url, "--key", key)
    command = recalib_command("replay", log, *options)
    subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.fixture
def page(chromium: Browser, world: tuple[Server, dict[str, str]]) -> Iterator[Page]:
    """A new browser profile at the sign-in form; errors of scripts and policies fail the test."""
    context = chromium.new_context(base_url=world[0].url, color_scheme="light")
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield page
    context.close()
    assert problems == []


def _sign_in(page: Page, key: str) -> None:
    page.goto("/")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console/models")


def test_from_an_alarm_to_a_rollback_by_keyboard(
    page: Page, world: tuple[Server, dict[str, str]]
) -> None:
    """A stale champion, another version, its promotion with a reason, and the way back."""
    server, keys = world
    with Client(server.url, api_key=keys["admin"]) as client:
        job = client.wait(client.fit("defects", "validation", map="vector", promote=False).id)
        version = job.result["version"]
    page.goto("/")
    page.get_by_label("API key").focus()  # no field has the focus where people sign in at an issuer
    page.keyboard.type(keys["admin"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/models")
    expect(page.get_by_role("row", name="defects").locator(".state")).to_have_text("stale")
    page.get_by_role("link", name="defects").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Versions", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Promote").first.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Reason").focus()
    page.keyboard.type("the defects of spring")
    page.get_by_role("button", name="Promote").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/models/defects")
    with Client(server.url, api_key=keys["admin"]) as client:
        assert [alias.version for alias in client.list_aliases("defects")] == [version]
    page.get_by_role("link", name="Roll back to version 1").click()
    page.get_by_label("Reason").fill("it was not spring")
    page.get_by_role("button", name="Promote").click()
    page.wait_for_url("**/console/models/defects")
    expect(page.get_by_text("it was not spring")).to_be_visible()


def test_from_the_first_model_to_a_champion(
    page: Page, world: tuple[Server, dict[str, str]], tmp_path: Path
) -> None:
    """Create a model, choose a file, fit, and see the job end and the version serve."""
    logits, labels = draw(1_500, 3, 2.5, seed=3)
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    _sign_in(page, world[1]["admin"])
    page.get_by_role("link", name="New model").click()
    page.get_by_label("Name", exact=True).fill("birds")
    page.get_by_label("Number of classes").fill("owl, crow, tit")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("File with logits").set_input_files(tmp_path / "val.npz")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("status").get_by_text("1,500 rows")).to_be_visible()
    page.get_by_role("status").get_by_role("link", name="Fit").click()
    page.get_by_label("Map").select_option("temperature")
    page.get_by_role("button", name="Fit").click()
    # The page of the job follows it.
    expect(page.locator(".state").first).to_have_text("succeeded", timeout=60_000)
    page.get_by_role("link", name="birds").click()
    expect(page.get_by_role("row", name="champion")).to_contain_text("1")


def test_pages_fit_every_width_and_pass_axe(
    page: Page, world: tuple[Server, dict[str, str]], tmp_path: Path
) -> None:
    _sign_in(page, world[1]["admin"])
    paths = (
        "models", "models/defects", "models/defects/monitoring", "models/defects/versions",
        "models/defects/versions/1", "models/defects/datasets", "models/defects/refit",
        "models/defects/promote/1", "models/defects/fit", "models/defects/settings",
        "models/defects/compare",
        "models/defects/batches", "training", "new-model", "jobs", "audit", "keys", "server",
    )  # fmt: skip
    for path in paths:
        page.goto(f"/console/{path}", wait_until="load")
        for width, theme in ((390, "light"), (1600, "light"), (1600, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            violations = Axe().run(page).response["violations"]
            assert [item["id"] for item in violations] == [], (path, width, theme, violations)


def test_pictures_are_drawn_in_both_themes(
    page: Page, world: tuple[Server, dict[str, str]]
) -> None:
    _sign_in(page, world[1]["fit"])
    for path in ("monitoring", "versions", "versions/1"):
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.goto(f"/console/models/defects/{path}")
            # The policy of the page forbids to wait for a text that the page evaluates.
            image = "document.querySelector('picture img')"
            assert page.evaluate(f"{image}.decode().then(() => {image}.naturalWidth)") > 200


def test_a_link_from_another_site_arrives_signed_in(
    page: Page, world: tuple[Server, dict[str, str]]
) -> None:
    server, keys = world
    _sign_in(page, keys["fit"])
    with _site(f'<a href="{server.url}/console/models/defects">alert</a>') as url:
        page.goto(url)
        page.get_by_role("link", name="alert").click()
        expect(page.get_by_role("heading", name="defects")).to_be_visible()


def test_a_link_from_another_site_leads_over_the_issuer_to_its_page(
    page: Page, world: tuple[Server, dict[str, str]]
) -> None:
    with _site(f'<a href="{world[0].url}/console/models/defects">alert</a>') as url:
        for _ in range(2):
            page.goto(url)
            page.get_by_role("link", name="alert").click()
            if page.get_by_role("link", name="Sign in at localhost").is_visible():
                page.get_by_role("link", name="Sign in at localhost").click()
                page.get_by_label("User").fill("carol")
                page.get_by_label("User").press("Enter")
            expect(page.get_by_role("heading", name="defects")).to_be_visible()
            expect(page.get_by_text("oidc:carol")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("alert")).to_have_text("You have signed out.")


@contextlib.contextmanager
def _site(content: str) -> Iterator[str]:
    """Serve a page under another host name; yield its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_: object) -> None:
            pass

    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield f"http://localhost:{site.server_address[1]}"
    site.shutdown()
    site.server_close()


def test_a_key_of_another_model_reaches_nothing_of_this_one(
    chromium: Browser, world: tuple[Server, dict[str, str]]
) -> None:
    """It is not shown, not offered, and refused if asked; nor is what concerns all models."""
    server, keys = world
    context = chromium.new_context(base_url=server.url)
    page = context.new_page()
    _sign_in(page, keys["bound"])
    expect(page.get_by_role("link", name="others")).to_be_visible()
    expect(page.get_by_text("defects")).to_have_count(0)
    for name in ("Jobs", "Audit", "Keys", "New model"):
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    of_defects = ("", "/versions/1", "/timeline.svg", "/promote/1", "/refit")
    for path in (*(f"models/defects{part}" for part in of_defects), "jobs", "audit", "keys"):
        assert page.request.get(f"/console/{path}").status == 403, path
    page.get_by_role("link", name="others").click()
    page.get_by_role("link", name="Data sets").click()
    token = page.locator("main input[name=form_token]").get_attribute("value")
    for path in ("models/defects/promote/1", "models/defects/refit", "keys/admin/revoke"):
        form = {"form_token": token or "", "reason": "not mine"}
        assert page.request.post(f"/console/{path}", form=form).status == 403, path
    page.goto("/console/models/defects")
    expect(page.get_by_role("heading", name="Forbidden")).to_be_visible()
    context.close()


def test_a_key_that_fits_is_offered_no_promotion(
    page: Page, world: tuple[Server, dict[str, str]]
) -> None:
    _sign_in(page, world[1]["fit"])
    page.goto("/console/models/defects/versions")
    expect(page.get_by_role("link", name="Fit a version")).to_be_visible()
    expect(page.get_by_role("link", name="Promote")).to_have_count(0)
    assert page.request.get("/console/models/defects/promote/1").status == 403


def test_a_session_that_has_ended_leads_back_to_the_page(
    page: Page, world: tuple[Server, dict[str, str]], registry: Registry
) -> None:
    """To one that was asked, and to that of a form that was sent."""
    _sign_in(page, world[1]["admin"])

    def end_and_sign_in(name: str) -> None:
        with registry.transaction() as tx:
            tx.connection.execute(tables.sessions.update().values(expires_at=0.0))
        page.get_by_role("main").get_by_text(name, exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("The session has ended.")
        page.get_by_label("API key").fill(world[1]["admin"])
        page.get_by_role("button", name="Sign in").click()

    page.goto("/console/models/defects")
    end_and_sign_in("Versions")
    page.wait_for_url("**/console/models/defects/versions")
    page.goto("/console/models/defects/refit")
    end_and_sign_in("Request a refit")
    page.wait_for_url("**/console/models/defects/refit")
    expect(page.get_by_role("button", name="Request a refit")).to_be_visible()


def test_a_slow_job_is_followed_and_cancelled(
    page: Page, world: tuple[Server, dict[str, str]], tmp_path: Path
) -> None:
    logits, labels = draw(60_000, 4, 2.0, seed=4)
    np.savez(tmp_path / "large.npz", logits=logits, labels=labels)
    with Client(world[0].url, api_key=world[1]["admin"]) as client:
        client.upload_dataset("others", "large", tmp_path / "large.npz")
    _sign_in(page, world[1]["admin"])
    page.goto("/console/models/others/fit?dataset=large")
    page.get_by_label("Map").select_option("auto")
    page.get_by_role("button", name="Fit").click()
    page.evaluate("window.isSamePage = true")
    expect(page.locator(".state").first).to_have_text("running", timeout=60_000)
    assert page.evaluate("window.isSamePage")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    page.wait_for_url("**/console/jobs/*")
    expect(page.locator(".state").first).to_have_text("cancelled", timeout=60_000)
    expect(page.get_by_role("link", name="Cancel")).to_have_count(0)


def test_a_lost_server_is_said(chromium: Browser, programs: Programs) -> None:
    with programs.serve("--grpc-port", -1) as server:
        page = chromium.new_page(base_url=server.url)
        page.goto("/console/jobs")
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        server.kill()
        expect(page.get_by_text("The server does not answer")).to_be_visible(timeout=60_000)
        page.close()


def test_pages_work_without_scripts(
    chromium: Browser, world: tuple[Server, dict[str, str]]
) -> None:
    context = chromium.new_context(base_url=world[0].url, java_script_enabled=False)
    page = context.new_page()
    _sign_in(page, world[1]["admin"])
    page.get_by_role("link", name="Keys").click()
    page.get_by_label("Name of the caller").fill("robot")
    page.get_by_label("predict").check()
    page.get_by_role("button", name="Create").click()
    headers = {"Authorization": f"Bearer {page.locator('pre').inner_text()}"}
    assert world[0].client.get("/metrics", headers=headers).status_code == 200
    page.get_by_role("row", name="robot").get_by_role("link", name="Revoke").click()
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row", name="robot").locator(".state")).to_have_text("revoked")
    assert world[0].client.get("/metrics", headers=headers).status_code == 401
    context.close()
