"""The client's address behind proxies: what is believed, over REST and gRPC."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from starlette.testclient import TestClient

from recalib.errors import InputError
from recalib.settings import Settings
from service.access.trusted_proxies import TrustedProxies
from service.app import create_app
from tests.service.issuers import AUDIENCE, Issuer, issuer, signing_keys
from tests.service.stubs import SERVICES, Rpc

__all__ = ["issuer", "signing_keys"]

_LIST = SERVICES["Models"].methods_by_name["ListModels"]
_PROXIES = "10.0.0.0/8 2001:db8::1 127.0.0.1"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("198.51.100.7", "203.0.113.9", "198.51.100.7"),
        ("", "203.0.113.9", ""),
        ("testclient", "203.0.113.9", "testclient"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "127.0.0.1, 203.0.113.8,203.0.113.9 , 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("2001:db8::1", "2001:db8::9, [2001:DB8:0::1]:80", "2001:db8::9"),
        ("2001:db8::2", "203.0.113.9", "2001:db8::2"),
        ("::ffff:10.0.0.1", "203.0.113.9:5000", "203.0.113.9"),
        ("10.0.0.1", "\xff, fe80::1%eth0, \xff", "10.0.0.1"),
    ],
)
def test_rightmost_address_that_is_no_proxy_is_the_client(
    peer: str, forwarded: str | None, client: str
) -> None:
    headers = {} if forwarded is None else {b"x-forwarded-for": forwarded.encode("latin-1")}
    assert TrustedProxies(_PROXIES).client(peer, headers) == client
    assert TrustedProxies().client(peer, headers) == peer


def test_scheme_is_believed_from_proxies_only() -> None:
    proxies, headers = TrustedProxies(_PROXIES), {b"x-forwarded-proto": b"https"}
    assert proxies.scheme("10.0.0.1", headers) == "https"
    assert proxies.scheme("198.51.100.7", headers) is None
    assert proxies.scheme("10.0.0.1", {b"x-forwarded-proto": b"javascript"}) is None
    assert proxies.scheme("10.0.0.1", {}) is None


@pytest.mark.parametrize("proxies", ["*", "proxy.example", "10.0.0.1/8", "10.0.0.1, 10.0.0.2"])
def test_proxies_are_addresses_and_networks(proxies: str) -> None:
    with pytest.raises(InputError, match="RECALIB_TRUSTED_PROXIES"):
        TrustedProxies(proxies)


@pytest.fixture
def client(
    issuer: Issuer, sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """A server behind a proxy at 127.0.0.1, from which the requests of these tests come."""
    shutil.copy(sqlite_template, tmp_path / "recalib.db")
    settings = Settings(
        home=tmp_path,
        database_url=f"sqlite:///{tmp_path / 'recalib.db'}",
        blob_url="memory://",
        oidc_issuer=issuer.url,
        oidc_audience=AUDIENCE,
        grpc_port=0,
        require_keys=True,
        refresh_seconds=3600,
        trusted_proxies="127.0.0.1",
    )
    app = create_app(settings)
    # Time allows an address further attempts.
    monkeypatch.setattr(app.state.recalib.access._failed, "_clock", lambda: 1000.0)
    with TestClient(app, client=("127.0.0.1", 1), follow_redirects=False) as client:
        yield client


def _rest(client: Any, token: str, forwarded: str) -> int:
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": forwarded}
    status: int = client.get("/v1/models", headers=headers).status_code
    return status


def test_bad_tokens_of_one_client_do_not_stop_new_tokens_of_others(
    client: Any, issuer: Issuer
) -> None:
    """Also if the client writes the address of another before its own."""
    statuses = [_rest(client, issuer.token("other"), f"10.0.0.{n}, 10.9.9.9") for n in range(60)]
    assert statuses == [401] * 30 + [429] * 30
    assert [_rest(client, issuer.token(sub=f"user-{n}"), f"10.0.0.{n}") for n in range(20)] == (
        [200] * 20
    )
    assert _rest(client, issuer.token(sub="late"), "10.9.9.9") == 429


def test_bad_tokens_over_grpc_count_for_the_real_client(client: Any, issuer: Issuer) -> None:
    bad, request = issuer.token("other"), GetMessageClass(_LIST.input_type)()
    with Rpc(f"127.0.0.1:{client.app.state.grpc_port}") as rpc:

        def ask(token: str, forwarded: str) -> grpc.StatusCode:
            metadata = [("authorization", f"Bearer {token}"), ("x-forwarded-for", forwarded)]
            try:
                rpc.models.list_models(request, metadata=metadata)
            except grpc.RpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        codes = [ask(bad, "10.0.0.1, 10.9.9.9, 127.0.0.1") for _ in range(31)]
        assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 30 + [
            grpc.StatusCode.RESOURCE_EXHAUSTED
        ]
        assert ask(issuer.token(sub="b"), "10.0.0.1") is grpc.StatusCode.OK
        assert ask(issuer.token(sub="c"), "10.9.9.9") is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _rest(client, issuer.token(sub="d"), "10.9.9.9") == 429  # one count for both


def test_redirect_keeps_the_scheme_of_the_client(client: Any, issuer: Issuer) -> None:
    headers = {"Authorization": f"Bearer {issuer.token()}", "X-Forwarded-Proto": "https"}
    answer = client.get("/v1/models/", headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (307, "https://testserver/v1/models")
