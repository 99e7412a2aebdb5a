"""nginx in front of a server: what it refuses, what it lets through, and whom it slows down."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.end_to_end.edge import edge
from tests.end_to_end.programs import (
    Programs,
    Server,
    half_an_upload,
    recalib_command,
    received,
    until,
)
from tests.end_to_end.test_tls import Certificates
from tests.fitting.conftest import draw
from tests.hostile.bystander import Bystander
from tests.hostile.clients import HEAD, POST, Client, ask, peak_growth_mib
from tests.hostile.conftest import serve
from tests.service.conftest import npz
from tests.service.stubs import Rpc

pytestmark = pytest.mark.slow

_SECONDS = 1
_HOST = b"Host: localhost\r\n"
_CLOSE = b"Connection: close\r\n\r\n"
_CHUNKED = POST + b"Transfer-Encoding: chunked\r\n" + _CLOSE


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("edge"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def server(programs: Programs) -> Iterator[Server]:
    """The server behind the proxy, with a model."""
    with serve(programs, trusted_proxies="127.0.0.1", grpc_port=0) as server:
        server.model()
        yield server


@pytest.fixture(scope="module")
def proxied(programs: Programs, server: Server) -> Iterator[Server]:
    """The same server at the addresses of the proxy."""
    with edge(server, programs.folder / "nginx", seconds=_SECONDS) as proxied:
        yield proxied


#: What the server alone refuses, and the status from the proxy and the server behind it.
_REFUSED = {
    "no Host": (b"GET /livez HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (HEAD + _HOST + b"\r\n", 400),
    "other Host": (b"GET /livez HTTP/1.1\r\nHost: evil.example\r\n" + _CLOSE, 421),
    "slash in Host": (b"GET /livez HTTP/1.1\r\nHost: local/host\r\n" + _CLOSE, 400),
    "HTTP/2.0": (b"GET /livez HTTP/2.0\r\n" + _HOST + b"\r\n", 505),
    "gzip, chunked": (_CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", 501),
    "identity": (_CHUNKED.replace(b"chunked", b"identity"), 501),
    "chunked in HTTP/1.0": (_CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n", 400),
    "chunked twice": (POST + b"Transfer-Encoding: chunked\r\n" * 2 + _CLOSE, 400),
    "chunked and a length": (POST + b"Content-Length: 3\r\n" + _CHUNKED[len(POST) :], 400),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n" + _CLOSE + b"{}", 400),
    "signed length": (POST + b"Content-Length: +2\r\n" + _CLOSE + b"{}", 400),
    "odd chunk": (_CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", 400),
    "space before a colon": (HEAD + b"A : b\r\n" + _CLOSE, 400),
    "folded header": (HEAD + b"A: b\r\n c\r\n" + _CLOSE, 400),
    "odd header name": (HEAD + b"A(b: c\r\n" + _CLOSE, 400),
    "NUL in a header": (HEAD + b"A: b\0c\r\n" + _CLOSE, 400),
    "CR in a header": (HEAD + b"A: b\rc\r\n" + _CLOSE, 400),
    "space in the URL": (b"GET /livez a HTTP/1.1\r\n" + _HOST + _CLOSE, 400),
    "encoded slash": (b"GET /v1/models/a%2fb HTTP/1.1\r\n" + _HOST + _CLOSE, 400),
    "above the root": (b"GET /../livez HTTP/1.1\r\n" + _HOST + _CLOSE, 400),
    "TRACE": (b"TRACE /livez HTTP/1.1\r\n" + _HOST + _CLOSE, 405),
    "CONNECT": (b"CONNECT localhost:1 HTTP/1.1\r\n" + _HOST + _CLOSE, 400),
    "no HTTP": (b"\x16\x03\x01\x02\r\n\r\n", 400),
    "long URL": (b"GET /" + b"a" * 8_192 + b" HTTP/1.1\r\n" + _HOST + _CLOSE, 414),
    "longer URL": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + _HOST + _CLOSE, 414),
    "101 headers": (HEAD + b"A: b\r\n" * 100 + _CLOSE, 431),
    "long header": (HEAD + b"A: " + b"b" * 65_536 + b"\r\n\r\n", 431),
}
#: What the server alone refuses, and nginx normalises, with the reason why that is safe.
_NORMALISED = {
    # nginx ends each line with CRLF: the server reads one request, as nginx did.
    "bare LF": HEAD.replace(b"\r\n", b"\n") + b"Connection: close\n\n",
    "bare LF in chunks": POST.replace(b"models", b"models/digits/labels")
    + b"Transfer-Encoding: chunked\r\n"
    + _CLOSE
    + b"2\n[]\n0\n\n",
    # nginx speaks HTTP/1.1 to the server, and to the client as the standard says (RFC 9110, 6.2).
    "HTTP/1.2": b"GET /livez HTTP/1.2\r\n" + _HOST + _CLOSE,
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_the_server_refuses_is_refused_with_a_problem(
    server: Server, proxied: Server, name: str
) -> None:
    content, expected = _REFUSED[name]
    for target in (server, proxied):
        with contextlib.closing(Client(target)) as client:
            status, headers, body = client.send(content).response()
        assert status >= 400
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status
    assert status == expected


@pytest.mark.parametrize("name", _NORMALISED)
def test_what_nginx_normalises_is_all_that_is_served_in_addition(
    server: Server, proxied: Server, name: str
) -> None:
    statuses = []
    for target in (server, proxied):
        with contextlib.closing(Client(target)) as client:
            statuses.append(client.send(_NORMALISED[name]).response()[0])
    assert statuses == [400, 200]


def test_head_at_the_limits_of_the_server_passes(proxied: Server) -> None:
    target = b"/livez?" + b"a" * (8_192 - 7)
    head = b"GET " + target + b" HTTP/1.1\r\n" + _HOST + b"Authorization: " + b"b" * 8_050 + b"\r\n"
    # nginx adds three headers.
    assert ask(proxied, head.replace(b"Authorization", b"A") + b"A: b\r\n" * 93) == 200


def test_endless_heads_and_half_requests_do_not_reach_the_server(proxied: Server) -> None:
    """Others are answered meanwhile, and all connections are closed in time."""
    with (
        peak_growth_mib(proxied) as growth,
        contextlib.ExitStack() as stack,
        Bystander(proxied) as bystander,
    ):
        clients = []
        half_body = POST + b"Content-Length: 9000\r\n\r\n" + b"a" * 8_000
        for start in (b"", HEAD, b"\r\n", *[HEAD + b"A: " + b"b" * 9_000] * 800, half_body):
            clients.append(Client(proxied, f"127.0.1.{1 + len(clients) % 4}").send(start))
            stack.callback(clients[-1].close)
        threads = []
        for start in (HEAD + b"A: b\r\n", b"GET /", HEAD + b"A"):
            flood = Client(proxied).send(start)
            stack.callback(flood.close)
            arguments = (b"a: b\r\n" * 10_000 if start.endswith(b"\n") else b"a" * 60_000, 200)
            threads.append(threading.Thread(target=flood.flood, args=arguments))
            threads[-1].start()
        for thread in threads:
            thread.join()
        until(lambda: all(client.is_closed() for client in clients), "the connections to close")
    assert growth() < 16
    assert bystander.livez.longest < 15


def test_connections_of_an_address_are_limited(programs: Programs, server: Server) -> None:
    """Half bodies of one address get 503 above the limit; another address is answered."""
    half = POST + b"Content-Length: 9\r\n\r\n{"
    folder = programs.folder / "limited"
    # A busy machine may take longer than ten seconds to connect so many clients.
    with edge(server, folder, seconds=60) as proxied, contextlib.ExitStack() as stack:
        clients = [Client(proxied, "127.0.0.7") for _ in range(300)]
        for client in clients:
            stack.callback(client.close)
            client.send(half)
        status, headers, body = clients[-1].response()
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(body)["title"] == "Service Unavailable"
        assert ask(proxied) == 200


def _wrong_keys(proxied: Server, address: str, *headers: str) -> list[int]:
    """Send 40 wrong keys from an address; return the statuses."""
    lines = [*headers, "Authorization: Bearer wrong", "Connection: close", "", ""]
    head = b"GET /v1/models HTTP/1.1\r\n" + _HOST + "\r\n".join(lines).encode()
    statuses = []
    for _ in range(40):
        with contextlib.closing(Client(proxied, address)) as client:
            statuses.append(client.send(head).response()[0])
    return statuses


def test_wrong_keys_count_for_the_client_over_rest_and_grpc(proxied: Server) -> None:
    """And for no address that the client names."""
    assert _wrong_keys(proxied, "127.0.0.8", "X-Forwarded-For: 127.0.0.9")[30:].count(429) >= 5
    assert _wrong_keys(proxied, "127.0.0.9")[:5] == [401] * 5

    def code(forwarded: str) -> grpc.StatusCode:
        metadata = [("authorization", "Bearer wrong"), ("x-forwarded-for", forwarded)]
        with Rpc(proxied.grpc_url) as rpc, pytest.raises(grpc.RpcError) as excinfo:
            rpc.models.list_models(pb.ListModelsRequest(), metadata=metadata)
        found: grpc.StatusCode = excinfo.value.code()
        return found

    # These come from 127.0.0.1, which is trusted as the proxy is.
    assert code("203.0.113.5") is grpc.StatusCode.UNAUTHENTICATED
    assert code("127.0.0.8") is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_idle_streams_stay_open(proxied: Server) -> None:
    """Longer than the time of a body over REST; a client's stream and one of the server."""
    with Rpc(proxied.grpc_url) as rpc:
        go_on = threading.Event()

        def pieces() -> Iterator[Any]:
            go_on.wait(60)
            yield pb.CalibrateRequest(model="unknown")

        answers = rpc.calibration.calibrate_stream(pieces())
        events = rpc.events.stream_events(pb.StreamEventsRequest())
        time.sleep(2.5 * _SECONDS)
        go_on.set()
        with pytest.raises(grpc.RpcError) as excinfo:
            next(answers)
        assert excinfo.value.code() is grpc.StatusCode.NOT_FOUND
        proxied.ask("PATCH", "/v1/models/digits", json={"description": "late"})
        assert next(events).type == "model.updated"
        events.cancel()


def test_upload_reaches_the_server_while_it_is_sent(programs: Programs, proxied: Server) -> None:
    """Its error arrives before its end, and nothing of it stays."""
    with contextlib.closing(half_an_upload(proxied, npz(*draw(200_000, 4, 1.0)))):
        until(lambda: received(programs) > 0, "the first half of the upload")
    until(lambda: received(programs) == 0, "the temporary file to go")
    logits, labels = draw(200, 4, 1.0)
    proxied.upload(logits, labels)


def test_tls_of_rest_and_grpc(programs: Programs, server: Server, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(cafile=str(certificates.root))
    files = (certificates.chain, certificates.key)
    with edge(server, tmp_path / "nginx", certificate=files, verify=context) as proxied:
        assert proxied.client.get("/v1/models/digits").json()["classes"] == 4
        redirect = proxied.client.get("/v1/models/")
        assert redirect.headers["location"].startswith("https://")
        credentials = grpc.ssl_channel_credentials(certificates.root.read_bytes())
        with grpc.secure_channel(proxied.grpc_url, credentials) as channel:
            get = channel.unary_unary(
                "/recalib.v1.Models/GetModel",
                request_serializer=pb.GetModelRequest.SerializeToString,
                response_deserializer=pb.Model.FromString,
            )
            assert get(pb.GetModelRequest(model="digits"), timeout=60).classes == 4


def test_uploads_of_the_console_have_the_limit_of_the_server(proxied: Server) -> None:
    """Not that of nginx: the server refuses the page of another site, and not the length."""
    head = b"POST /console/models/digits/datasets HTTP/1.1\r\n" + _HOST
    foreign = b"Origin: https://evil.example\r\nContent-Length: 100000000\r\n"
    assert ask(proxied, head + foreign) == 403


def _key(programs: Programs) -> str:
    command = recalib_command("keys", "create", "console", "--scope", "admin")
    environment = programs.environment()
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return output.stdout.strip()


def test_console_below_a_path(programs: Programs, tmp_path: Path) -> None:
    """Links, styles, the cookie, forms and the check of their origin, over TLS."""
    certificates, key = Certificates(tmp_path), _key(programs)
    facts: dict[str, Any] = {
        "certificate": (certificates.chain, certificates.key),
        "verify": ssl.create_default_context(cafile=str(certificates.root)),
    }
    settings = {"trusted_proxies": "127.0.0.1", "public_url": "https://recalib.example/recalib"}
    with (
        serve(programs, "--require-keys", **settings) as server,
        edge(server, tmp_path / "nginx", path="/recalib", **facts) as proxied,
    ):
        client = proxied.client
        origin = {"Origin": proxied.url.removesuffix("/recalib")}
        console = f"{origin['Origin']}/recalib/console/"
        assert client.get("/").headers["location"] == "/recalib/console/models"
        location = client.get("/console/new-model").headers["location"]
        assert location.startswith("/recalib/console/sign-in?next=")
        page = client.get(location.removeprefix("/recalib")).text
        assert set(re.findall(r'(?:href|src|action)="(/\w+/)', page)) == {"/recalib/"}
        for file in re.findall(r'"/recalib(/console/static/[^"]+)"', page):
            assert client.get(file).status_code == 200
        fields = {"key": key, "next": "/console/new-model"}
        foreign = {"Origin": "https://evil.example"}
        assert client.post("/console/sign-in", data=fields, headers=foreign).status_code == 403
        answer = client.post("/console/sign-in", data=fields, headers=origin)
        assert answer.headers["location"] == "/recalib/console/new-model"
        cookie = answer.headers["set-cookie"]
        assert all(part in cookie for part in ("Path=/recalib/console/", "Secure", "HttpOnly"))
        page = client.get(f"{console}new-model").text
        token = re.findall(r'name="form_token" value="(\w+)"', page)[-1]
        fields = {"form_token": token, "name": "birds", "classes": "3"}
        answer = client.post(f"{console}new-model", data=fields, headers=origin)
        assert answer.headers["location"] == "/recalib/console/models/birds/datasets"
        assert client.get("/console/models/birds").status_code == 200


def test_stopped_server_is_a_problem_that_clients_try_again(programs: Programs) -> None:
    with (
        serve(programs, trusted_proxies="127.0.0.1", grpc_port=0) as other,
        edge(other, programs.folder / "stopped") as proxied,
    ):
        other.stop()
        answer = proxied.client.get("/v1/models")
        assert (answer.status_code, answer.headers["retry-after"]) == (502, "1")
        assert answer.json()["title"] == "Bad Gateway"
        with Rpc(proxied.grpc_url) as rpc, pytest.raises(grpc.RpcError) as excinfo:
            rpc.models.list_models(pb.ListModelsRequest())
        assert excinfo.value.code() is grpc.StatusCode.UNAVAILABLE
