"""Requests of web pages, in a user's browser, to a server process."""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.end_to_end.programs import Server
from tests.hostile.clients import Client

pytestmark = pytest.mark.slow


def _status(server: Server, method: str, path: str, *headers: str) -> int:
    """Return the status of a request without a body; check that an error is a problem."""
    lines = [f"{method} {path} HTTP/1.1", *headers, "Content-Length: 0", "Connection: close"]
    with contextlib.closing(Client(server)) as client:
        client.send("\r\n".join([*lines, "", ""]).encode())
        status, fields, body = client.response()
    if status >= 400:
        assert fields["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status
    return status


def test_another_host_name_is_misdirected_without_keys(server: Server) -> None:
    """A page whose name resolves to this machine reads and changes nothing (DNS rebinding)."""
    for method, path in (("GET", "/v1/models"), ("GET", "/livez"), ("POST", "/v1/models")):
        assert _status(server, method, path, "Host: evil.example") == 421
    assert _status(server, "GET", "/v1/models", "Host: localhost:1") == 200


def test_page_of_another_site_changes_nothing(server: Server) -> None:
    """A POST without a body needs no permission of the browser (CORS)."""
    refit = "/v1/models/digits/monitoring/refit"
    pages = ("Sec-Fetch-Site: cross-site", "Origin: https://evil.example", "Origin: null")
    for page in pages:
        assert _status(server, "POST", refit, "Host: localhost", page) == 403
    jobs = server.ask("GET", "/v1/jobs?model=digits")["items"]
    assert jobs == []
    own = "Origin: http://localhost", "Sec-Fetch-Site: same-origin"
    assert _status(server, "POST", refit, "Host: localhost", *own) == 409  # no champion yet


def test_server_with_keys_accepts_any_host_and_no_other_site(locked: Server) -> None:
    assert _status(locked, "GET", "/livez", "Host: evil.example") == 200
    assert _status(locked, "GET", "/v1/models", "Host: recalib.example") == 401
    page = "Sec-Fetch-Site: cross-site"
    assert _status(locked, "POST", "/v1/models", "Host: recalib.example", page) == 403
