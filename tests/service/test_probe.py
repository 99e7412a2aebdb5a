"""The health check command for container engines."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme

from recalib.settings import Settings
from service.health.probe import ask, main


class Answers(BaseHTTPRequestHandler):
    """Answers /readyz with the status and body of the test."""

    status = 200
    body = b"{}"

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), type("Mine", (Answers,), {}))
    yield server
    if hasattr(server, "serving"):
        server.shutdown()
    server.server_close()


def start(server: HTTPServer) -> None:
    server.serving = threading.Thread(target=server.serve_forever, args=(0.01,))  # type: ignore[attr-defined]
    server.serving.start()  # type: ignore[attr-defined]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])  # noqa: S104
def test_ready_server_exits_with_zero(
    server: HTTPServer, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a server that listens on all addresses, where the probe asks at loopback."""
    start(server)
    monkeypatch.setenv("RECALIB_HOST", host)
    monkeypatch.setenv("RECALIB_PORT", str(server.server_port))
    assert main() == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [(b'{"detail": "the registry is away"}', "the registry is away"), (b"<html>", "<html>")],
)
def test_unready_server_is_reported(
    server: HTTPServer,
    body: bytes,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.RequestHandlerClass.status, server.RequestHandlerClass.body = 503, body  # type: ignore[attr-defined]
    start(server)
    monkeypatch.setenv("RECALIB_PORT", str(server.server_port))
    assert main() == 1
    error = capsys.readouterr().err
    assert "answered 503" in error
    assert message in error


def test_unreachable_server_is_reported(server: HTTPServer) -> None:
    port = server.server_port
    server.server_close()
    assert "does not answer" in ask(Settings(port=port))


def test_invalid_settings_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECALIB_DATABASE_URL_FILE", "/no/such/file")
    assert main() == 1
    assert "RECALIB_DATABASE_URL_FILE" in capsys.readouterr().err


def test_tls_server_is_probed(server: HTTPServer, tmp_path: Path) -> None:
    """The certificate has a name that the probe does not use."""
    issued = trustme.CA().issue_cert("recalib.example.com")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    start(server)
    of_tls = Settings(port=server.server_port, tls_certificate=str(certificate), tls_key=str(key))
    assert ask(of_tls) == ""
    assert "does not answer" in ask(Settings(port=server.server_port))
