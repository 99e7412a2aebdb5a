"""Tokens in a server: new signing keys, an unavailable issuer, malformed tokens."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from starlette.testclient import TestClient

from recalib.registry import Registry
from recalib.settings import Settings
from service.app import create_app
from tests.service.issuers import AUDIENCE, Issuer, issuer, signing_keys
from tests.service.stubs import SERVICES, Rpc, refused

__all__ = ["issuer", "signing_keys"]


@pytest.fixture
def registry(sqlite_template: Path, tmp_path: Path) -> Iterator[Registry]:
    """SQLite only: the database does not affect tokens."""
    shutil.copy(sqlite_template, tmp_path / "recalib.db")
    registry = Registry(f"sqlite:///{tmp_path / 'recalib.db'}", "memory://")
    yield registry
    registry.close()


@pytest.fixture
def client(issuer: Issuer, registry: Registry, tmp_path: Path) -> Iterator[Any]:
    settings = Settings(
        home=tmp_path,
        oidc_issuer=issuer.url,
        oidc_audience=AUDIENCE,
        grpc_port=0,
        require_keys=True,
        refresh_seconds=3600,
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def rpc(client: Any) -> Iterator[Rpc]:
    with Rpc(f"127.0.0.1:{client.app.state.grpc_port}") as rpc:
        yield rpc


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _metadata(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def _some_time_goes_by(client: Any) -> None:
    """Pass the minimum time between two fetches of the signing keys."""
    keys = client.app.state.recalib.access.tokens.keys
    keys._tried_at = keys._fetched_at = time.monotonic() - 60


_LIST = SERVICES["Models"].methods_by_name["ListModels"].input_type._concrete_class


def test_new_signing_key_is_accepted_after_the_next_fetch(
    client: Any, rpc: Rpc, issuer: Issuer
) -> None:
    """After a key rotation of the issuer, clients do not need to retry."""
    token = issuer.token("next", "ES256")
    assert client.get("/v1/models", headers=_bearer(token)).status_code == 401
    issuer.published = ["next", "ec"]
    assert client.get("/v1/models", headers=_bearer(token)).status_code == 401
    _some_time_goes_by(client)
    assert client.get("/v1/models", headers=_bearer(token)).status_code == 200
    issuer.published = ["rsa", "ec"]
    _some_time_goes_by(client)
    # Over gRPC and on the calibrate route as well.
    again = issuer.token("rsa", scope="recalib:predict recalib:fit")
    assert rpc.models.list_models(_LIST(), metadata=_metadata(again)).items == []
    issuer.published = ["next"]
    _some_time_goes_by(client)
    token = issuer.token("next", "ES256", scope="recalib:predict")
    answer = client.post("/v1/models/m/calibrate", headers=_bearer(token), json={"logits": [[1]]})
    assert answer.status_code == 404, answer.text


def test_api_keys_work_while_the_issuer_is_unavailable(
    client: Any, rpc: Rpc, issuer: Issuer, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.transaction() as tx:
        key = tx.api_keys.create("ci", ["fit"])
    client.app.state.recalib.access.refresh()
    known, unknown = issuer.token(), issuer.token("next", "ES256")
    issuer.stop()
    _some_time_goes_by(client)
    for good in (key, known):
        assert client.get("/v1/models", headers=_bearer(good)).status_code == 200
    answer = client.get("/v1/models", headers=_bearer(unknown))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "does not return its keys" in answer.json()["detail"]
    error = refused(
        grpc.StatusCode.UNAVAILABLE, rpc.models.list_models, _LIST(), metadata=_metadata(unknown)
    )
    assert "does not return its keys" in error.details()
    # When the signing keys are too old, tokens are unavailable; API keys still work.
    monkeypatch.setattr(client.app.state.recalib.access.tokens.keys, "_fetched_at", None)
    assert client.get("/v1/models", headers=_bearer(known)).status_code == 503
    assert client.get("/v1/models", headers=_bearer(key)).status_code == 200
    assert client.get("/livez").status_code == 200


def test_malformed_authorization_headers_are_unauthenticated(
    client: Any, rpc: Rpc, issuer: Issuer
) -> None:
    good = issuer.token()
    for ugly in (
        good * 40,
        f"{good}, Bearer {good}",
        "a.b.c\tx",
        "\xe9.\xff.\x80",
        "." * 50_000,
        "..",
        f"{good} x",
    ):
        header = {b"Authorization": b"Bearer " + ugly.encode("latin-1")}
        assert client.get("/v1/models", headers=header).status_code == 401, ugly[:40]
    # gRPC itself refuses metadata of more than 8 KB.
    for ugly, code in (
        ("..", grpc.StatusCode.UNAUTHENTICATED),
        ("A" * 100_000, grpc.StatusCode.RESOURCE_EXHAUSTED),
    ):
        refused(code, rpc.models.list_models, _LIST(), metadata=_metadata(ugly))
    assert client.get("/v1/models", headers=_bearer(good)).status_code == 200
    assert (
        client.get("/v1/models", headers={"Authorization": f"bEARER  {good} "}).status_code == 200
    )


def test_signatures_are_not_checked_for_rate_limited_addresses(
    client: Any, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cached good token from the address still works; a new one is rate limited."""
    known, new, bad = issuer.token(), issuer.token(sub="berta"), issuer.token("other")
    assert client.get("/v1/models", headers=_bearer(known)).status_code == 200
    access = client.app.state.recalib.access
    clock = [1000.0]
    monkeypatch.setattr(access._failed, "_clock", lambda: clock[0])
    statuses = [client.get("/v1/models", headers=_bearer(bad)).status_code for _ in range(32)]
    assert statuses == [401] * 30 + [429] * 2
    checked: list[str] = []
    check = access.tokens.claims
    monkeypatch.setattr(
        access.tokens, "claims", lambda token, aud: checked.append(token) or check(token, aud)
    )
    assert client.get("/v1/models", headers=_bearer(known)).status_code == 200
    answer = client.get("/v1/models", headers=_bearer(new))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert checked == []
    assert len(access._failed) == 1
    clock[0] += 1
    assert client.get("/v1/models", headers=_bearer(new)).status_code == 200
    clock[0] += 60
    client.get("/v1/models", headers=_bearer(issuer.token(sub="carla")))
    assert len(access._failed) == 0
