"""Deliveries to real receivers: failures, redirects, slow and large answers, and absence."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sqlalchemy import text
from standardwebhooks import Webhook as Verifier

from recalib.contract.events import Webhook
from recalib.errors import UnavailableError
from recalib.registry import Registry
from recalib.webhooks import AllowedTargets, encode_secret
from tests.end_to_end.programs import until
from training import webhook_delivery
from training.webhook_delivery import WebhookSender, deliveries

_LOOPBACK = AllowedTargets("127.0.0.0/8")
_Answer = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, body: bytes = b"", **headers: str) -> _Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answer


class Receiver:
    """An HTTP server on loopback that gives the answers of a list, then 204."""

    def __init__(self, port: int = 0) -> None:
        self.answers: list[_Answer] = []
        #: Path, headers and body of each request.
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.received.append((self.path, headers, body))
                answer = receiver.answers.pop(0) if receiver.answers else status(204)
                answer(self)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def events(self) -> list[int]:
        return [json.loads(body)["id"] for _, _, body in self.received]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def subscribe(registry: Registry, url: str, format: str = "recalib") -> tuple[Webhook, bytes]:
    with registry.transaction() as tx:
        return tx.webhooks.create(url, None, [], format, "anna")


def record(registry: Registry, *types: str) -> None:
    with registry.transaction() as tx:
        for type_ in types:
            tx.events.record(type_, "resnet", {"job": "j"})


def deliver(registry: Registry, allowed: AllowedTargets = _LOOPBACK, attempts: int = 3) -> bool:
    """Deliver all events without their pauses; return whether there were any."""
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE webhooks SET retry_at = NULL"))
        tx.connection.execute(text("UPDATE webhook_deliveries SET next_attempt_at = 1"))
    sender = WebhookSender(registry, allowed, attempts)
    lease = sender.claim()
    if lease is not None:
        asyncio.run(sender.deliver(lease, threading.Event()))
    return lease is not None


def outcomes(registry: Registry, webhook: Webhook) -> list[tuple[str, int | None, str]]:
    with registry.reading() as tx:
        rows = tx.webhooks.deliveries(webhook.id, None, None, 100)
    return [(row.state, row.status, row.error) for row in reversed(rows)]


@pytest.mark.both_databases
@pytest.mark.slow
def test_receiver_that_fails_then_answers_gets_each_event(
    registry: Registry, receiver: Receiver
) -> None:
    """Messages are signed, and repeated ones have the same id."""
    webhook, secret = subscribe(registry, f"http://127.0.0.1:{receiver.port}/hook?x=1")
    record(registry, "job.queued", "job.failed")
    receiver.answers = [
        status(500, b"broken \x1b[2J"),
        status(200),
        status(400, b"never"),
        status(200),
    ]
    assert deliver(registry)
    assert outcomes(registry, webhook) == [
        ("pending", 500, "status 500: broken \x1b[2J"),
        ("pending", None, ""),
    ]
    for _ in range(2):
        assert deliver(registry)
    assert not deliver(registry)
    assert outcomes(registry, webhook) == [("delivered", 200, ""), ("delivered", 200, "")]
    # After a failure, the event that was tried less often is first.
    assert receiver.events() == [1, 2, 1, 1]
    for path, headers, body in receiver.received:
        assert path == "/hook?x=1"
        assert headers["content-type"] == "application/json"
        event = Verifier(encode_secret(secret)).verify(body, headers)
        assert headers["webhook-id"] == f"event-{event['id']}"
        assert event["model"] == "resnet"


def test_redirects_are_not_followed(registry: Registry, receiver: Receiver) -> None:
    webhook, _ = subscribe(registry, f"http://127.0.0.1:{receiver.port}/")
    record(registry, "job.failed")
    receiver.answers = [status(307, Location=f"http://127.0.0.1:{receiver.port}/secret")]
    deliver(registry)
    assert [path for path, _, _ in receiver.received] == ["/"]
    assert outcomes(registry, webhook) == [
        ("pending", 307, "status 307: redirects are not followed")
    ]


def test_private_targets_are_refused_at_delivery(registry: Registry, receiver: Receiver) -> None:
    """The name resolves to loopback: its URL was accepted, but nothing is sent."""
    webhook, _ = subscribe(registry, f"http://localhost:{receiver.port}/")
    record(registry, "job.failed")
    deliver(registry, AllowedTargets(""))
    assert receiver.received == []
    ((state, code, error),) = outcomes(registry, webhook)
    assert (state, code) == ("pending", None)
    assert "not a public address" in error
    deliver(registry, AllowedTargets("localhost"))
    assert receiver.events() == [1]


def test_connection_goes_to_the_checked_address(
    registry: Registry, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is resolved once, so an answer that changes afterwards has no effect."""
    lookups: list[str] = []
    original = socket.getaddrinfo

    def lookup(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host != "receiver.test":
            return original(host, port, *arguments, **options)
        if options.get("flags"):
            raise socket.gaierror(-2, "not numeric")
        lookups.append(host)
        address = "127.0.0.1" if len(lookups) == 1 else "169.254.169.254"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    webhook, _ = subscribe(registry, f"http://receiver.test:{receiver.port}/")
    record(registry, "job.failed")
    deliver(registry)
    assert outcomes(registry, webhook) == [("delivered", 204, "")]
    assert lookups == ["receiver.test"]
    assert receiver.received[0][1]["host"] == f"receiver.test:{receiver.port}"


def test_slow_and_large_answers_are_bounded(
    registry: Registry, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then does not extend the time; of a large answer a little is kept."""
    monkeypatch.setattr(webhook_delivery, "_REQUEST_SECONDS", 0.5)

    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(500)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        for _ in range(100):
            request.wfile.write(b"x")
            request.wfile.flush()
            time.sleep(0.05)

    def flood(request: BaseHTTPRequestHandler) -> None:
        request.send_response(500)
        request.end_headers()
        for _ in range(10_000):
            request.wfile.write(bytes(10_000).replace(b"\0", b"y"))

    webhook, _ = subscribe(registry, f"http://127.0.0.1:{receiver.port}/")
    record(registry, "job.failed")
    receiver.answers = [drip, flood]
    deliver(registry)
    assert outcomes(registry, webhook)[0][2] == "no answer within 0.5 seconds"
    deliver(registry)
    assert outcomes(registry, webhook) == [("pending", 500, f"status 500: {200 * 'y'}")]


def test_gone_receiver_disables_the_webhook(registry: Registry, receiver: Receiver) -> None:
    webhook, _ = subscribe(registry, f"http://127.0.0.1:{receiver.port}/", "slack")
    record(registry, "job.failed", "job.queued")
    receiver.answers = [status(410)]
    deliver(registry)
    assert not deliver(registry)
    assert json.loads(receiver.received[0][2]) == {"text": "job.failed of resnet: job j"}
    with registry.reading() as tx:
        assert tx.webhooks.get(webhook.id).reason == "the receiver has answered 410 Gone"


@pytest.mark.both_databases
@pytest.mark.slow
def test_receiver_that_was_away_misses_nothing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers deliver; the webhook is disabled during the absence, then enabled."""
    first = Receiver()
    port = first.port
    webhook, _ = subscribe(registry, f"http://127.0.0.1:{port}/")
    monkeypatch.setattr("recalib.registry.webhooks._FIRST_RETRY_SECONDS", 0.01)

    def is_enabled() -> bool:
        with registry.reading() as tx:
            return tx.webhooks.get(webhook.id).enabled

    def pending() -> int:
        with registry.reading() as tx:
            return len(tx.webhooks.deliveries(webhook.id, "pending", None, 100))

    with deliveries(registry, _LOOPBACK, 3, 0.02), deliveries(registry, _LOOPBACK, 3, 0.02):
        record(registry, "job.queued")
        until(lambda: first.received, "the first event")
        until(lambda: not pending(), "its record")
        first.close()
        for number in range(20):
            record(registry, f"test.turn_{number}")
        until(lambda: not is_enabled(), "the end of the attempts")
        second = Receiver(port)
        try:
            with registry.transaction() as tx:
                last = tx.events.last()
                tx.webhooks.change(webhook.id, None, True)
            until(lambda: set(second.events()) >= set(range(2, last + 1)), "all events")
            until(lambda: not pending(), "their records")
        finally:
            second.close()
    # One lease at a time: no event is sent twice while no worker dies.
    assert sorted(second.events()) == list(range(2, last + 1))


def test_outage_of_the_registry_logs_one_line(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook_delivery, "_OUTAGE_SECONDS", 0.001)
    stop, sender = threading.Event(), WebhookSender(registry, _LOOPBACK, 3)
    failures = [UnavailableError("away")] * 3

    def claim() -> None:
        if failures:
            raise failures.pop()
        stop.set()

    monkeypatch.setattr(sender, "claim", claim)
    asyncio.run(sender.run(stop, 0.001))
    assert caplog.messages == ["Webhooks wait: away"]
