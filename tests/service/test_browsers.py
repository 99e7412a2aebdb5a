"""Requests that web pages of other sites send through a user's browser."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from recalib.settings import Settings
from service.app import create_app
from service.http.browsers import BrowserChecks
from tests.service.conftest import Service

PAGE = "https://page.example"
MODEL = {"name": "new", "classes": 3}


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:80", "127.1.2.3", "[::1]:8000", "[::1]"]
)
def test_loopback_names_are_accepted_without_keys(shared: Service, host: str) -> None:
    assert shared.client.get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "localhost:x",
        "[::2]",
        "",
    ],
)
def test_other_names_are_misdirected_without_keys(shared: Service, host: str) -> None:
    """A page whose name resolves to this machine reads nothing (DNS rebinding)."""
    answer = shared.client.get("/livez", headers={"Host": host})
    assert answer.status_code == 421
    assert "RECALIB_ALLOWED_HOSTS" in answer.json()["detail"]
    assert list(shared.client.get("/v2", headers={"Host": host}).json()) == ["error"]


def test_every_name_is_accepted_with_keys() -> None:
    checks = BrowserChecks(Settings(require_keys=True))
    assert checks.refusal("GET", {b"host": b"recalib.example"}) is None
    named = BrowserChecks(Settings(allowed_hosts="recalib.example other"))
    assert named.refusal("GET", {b"host": b"Recalib.example:8000"}) is None
    assert named.refusal("GET", {b"host": b"testserver"}) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": PAGE},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": PAGE},
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/a/calibrate", "/v2/models/a/infer"])
def test_page_of_another_site_changes_nothing(
    shared: Service, headers: dict[str, str], path: str
) -> None:
    assert shared.client.post(path, json=MODEL, headers=headers).status_code == 403
    reading = shared.client.get("/v1/models", headers=headers)
    assert reading.status_code == 200
    assert "access-control-allow-origin" not in reading.headers
    with_keys = BrowserChecks(Settings(require_keys=True))
    encoded = {name.lower().encode(): value.encode() for name, value in headers.items()}
    assert with_keys.refusal("DELETE", {b"host": b"a", **encoded}) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://testserver"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"},
    ],
)
def test_own_pages_and_other_clients_are_accepted(shared: Service, headers: dict[str, str]) -> None:
    model = {"name": "digits", "classes": 4}
    answer = shared.client.post("/v1/models", json=model, headers=headers)
    assert answer.status_code == 409  # accepted: it exists


def test_setting_opens_cors_for_an_origin(database_url: str, blob_url: str) -> None:
    settings = Settings(
        database_url=database_url, blob_url=blob_url, grpc_port=-1, cors_origins=PAGE
    )
    headers = {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}
    question = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-a"}
    with TestClient(create_app(settings)) as client:
        answer = client.post("/v1/models", json=MODEL, headers=headers)
        assert answer.status_code == 201
        assert answer.headers["access-control-allow-origin"] == PAGE
        asked = client.options("/v1/models", headers={**headers, **question})
        assert asked.status_code == 200
        other = {**headers, "Origin": "https://other.example"}
        assert client.post("/v1/models", json=MODEL, headers=other).status_code == 403
        refused = client.options("/v1/models", headers={**other, **question})
        assert refused.status_code == 400
