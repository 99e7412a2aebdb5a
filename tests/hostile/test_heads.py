"""A server without a proxy: odd, endless and slow heads, half bodies, and too many requests."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
import struct
import threading
import time
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.end_to_end.programs import Programs, Server, paused, recalib_command, until
from tests.end_to_end.test_tls import Certificates
from tests.hostile.bystander import Bystander
from tests.hostile.clients import HEAD, POST, RECEIVE_SECONDS, Client, ask, peak_growth_mib
from tests.hostile.conftest import serve

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)

#: Limits of growth of the server's memory, in MiB. A refused request holds one read of the socket
#: (256 KiB) at a time; an open connection holds its parser and up to 64 KiB of head.
_MAX_FLOOD_MIB = 48
_MAX_HELD_MIB = 320
#: Default of RECALIB_MAX_BODIES_BYTES.
_MAX_BODIES_MIB = 128
#: Longest wait of another client, on a machine that other programs keep busy.
_MAX_WAIT_SECONDS = 15.0
_MIB = 2**20


@pytest.fixture
def programs(shared_programs: Programs) -> Programs:
    return shared_programs


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (HEAD + b"Host: localhost\r\n\r\n", 400),
        (b"GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /v1/models/a%2fb HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /" + b"a" * 8_192 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (HEAD + b"A: b\r\n" * 100 + b"\r\n", 431),
        (HEAD + b"A: " + b"b" * 65_536 + b"\r\n\r\n", 431),
    ],
    ids=[
        "no Host", "two Hosts", "HTTP/2.0", "HTTP/0.9", "gzip, chunked", "chunked in HTTP/1.0",
        "encoded slash", "long URL", "101 headers", "long header",
    ],
)  # fmt: skip
def test_odd_head_is_refused_with_a_problem(server: Server, head: bytes, status: int) -> None:
    with contextlib.closing(Client(server)) as client:
        found, headers, body = client.send(head).response()
    assert found == status
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert json.loads(body)["status"] == status


def test_head_at_the_limits_is_accepted(server: Server) -> None:
    target = b"/livez?" + b"a" * (8_192 - 7)
    head = b"GET " + target + b" HTTP/1.0\r\n" + b"A: " + b"b" * 500 + b"\r\n"
    assert ask(server, head + b"A: b\r\n" * 98) == 200
    assert ask(server, HEAD + b"A: " + b"b" * 65_000 + b"\r\n") == 200
    encoded = b"GET /v1/models?cursor=a%2fb HTTP/1.1\r\nHost: localhost\r\n"
    assert ask(server, encoded) in (200, 422)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /", b"a" * 65_536),
        (HEAD + b"A: ", b"b" * 65_536),
        (HEAD + b"A", b"a" * 65_536),
        (HEAD, b"a: b\r\n" * 10_000),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nA: ", b"b" * 65_536),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2;", b"b" * 65_536),
    ],
    ids=["URL", "header value", "header name", "headers", "trailer", "chunk extension"],
)
def test_endless_head_is_refused_while_it_is_sent(
    server: Server, start: bytes, piece: bytes
) -> None:
    with (
        peak_growth_mib(server) as growth,
        Bystander(server) as bystander,
        contextlib.closing(Client(server)) as client,
    ):
        client.send(start + piece)
        client.flood(piece, 200)
        with contextlib.suppress(ConnectionError):  # reset, if this client sends on
            assert client.response()[0] == 431
    assert growth() < _MAX_FLOOD_MIB
    assert bystander.livez.longest < _MAX_WAIT_SECONDS


def test_header_in_a_trailer_does_not_count(locked: Server, key: str) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    request += b"Transfer-Encoding: chunked\r\n"
    authorization = b"Authorization: Bearer " + key.encode() + b"\r\n"
    ends = {b"\r\n0\r\n" + authorization + b"\r\n": 401, authorization + b"\r\n0\r\n\r\n": 200}
    for end, status in ends.items():
        with contextlib.closing(Client(locked)) as client:
            assert client.send(request + end).response()[0] == status


def test_early_refusal_reaches_a_client_that_sends_a_large_body(
    server: Server, locked: Server, key: str
) -> None:
    """401 from the head, 413 from the announced length, and 413 from the received length."""
    size = 100 * _MIB
    announced = b"Content-Length: %d\r\n\r\n" % size
    chunk = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size
    cases = (
        (locked, announced, b" 401 "),
        (server, announced, b" 413 "),
        (server, chunk, b" 413 "),
    )
    for target, end, status in cases:
        with peak_growth_mib(target) as growth, contextlib.closing(Client(target)) as client:
            client.send(POST + end)
            for _ in range(100):  # without reading
                client.send(bytes(_MIB))
            assert status in client.answer()
        assert growth() < _MAX_FLOOD_MIB


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"", b""),
        (HEAD, b"a"),
        (b"\r\n", b"\r\n"),
        (HEAD + b"\r\n" + HEAD, b"a"),
        (HEAD + b"\r\n", b"\r\n"),
        (POST + b"Content-Length: 5000\r\n\r\n{", b""),
        (POST + b"Content-Length: 50000\r\n\r\n{", b""),
    ],
    ids=["silent", "head", "empty lines", "second head", "late empty lines", "small body", "body"],
)
def test_slow_client_is_disconnected(server: Server, start: bytes, piece: bytes) -> None:
    """A client that sends a byte of a head at times is slow too."""
    started = time.monotonic()
    with contextlib.closing(Client(server)) as client:
        client.send(start)
        while not client.is_closed():
            assert time.monotonic() - started < 20 * RECEIVE_SECONDS
            time.sleep(0.1)
            client.flood(piece, 1 if piece else 0)
    assert time.monotonic() - started > 0.9 * RECEIVE_SECONDS


def test_body_that_moves_is_accepted(server: Server) -> None:
    """It takes longer than the interval in which it has to move."""
    body = b'{"name": "slow", "classes": 4' + b" " * 6_000 + b"}"
    with contextlib.closing(Client(server)) as client:
        client.send(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        started, sent = time.monotonic(), 0
        while sent < len(body):  # at an even rate, also after a pause of this process
            time.sleep(0.05 * RECEIVE_SECONDS)
            share = (time.monotonic() - started) / (2.5 * RECEIVE_SECONDS)
            end = int(len(body) * min(share, 1.0))
            client.send(body[sent:end])
            sent = end
        assert client.response()[0] == 201


def test_load_is_shed_except_health_metrics_and_labels(programs: Programs, server: Server) -> None:
    """Requests that arrive at once get a place or 503, and the connection stays usable."""
    listing = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = b'[{"prediction_id": "unknown", "label": 1}]'
    labels = POST.replace(b"/v1/models", b"/v1/models/unknown/labels")
    labels += b"Content-Length: %d\r\n\r\n" % len(body) + body
    metrics = HEAD.replace(b"/livez", b"/metrics") + b"\r\n"
    reserved = {0: (HEAD + b"\r\n", b" 200 OK"), 4: (metrics, b" 200 OK"), 7: (labels, b" 404 ")}
    with (
        serve(programs, max_requests=4, receive_seconds=5) as small,
        contextlib.ExitStack() as stack,
    ):
        clients = [Client(small) for _ in range(50)]
        for client in clients:
            stack.callback(client.close)
            assert b" 200 OK" in client.send(HEAD + b"\r\n").answer()
        half = Client(small).send(POST + b"Content-Length: 9\r\n\r\n{")
        stack.callback(half.close)
        pipelined = Client(small)
        stack.callback(pipelined.close)
        last = listing[:-2] + b"Connection: close\r\n\r\n"
        with paused(psutil.Process(small.pid)):
            for index, client in enumerate(clients):
                client.send(reserved[index % 10][0] if index % 10 in reserved else listing)
            pipelined.send(listing * 2 + last)
        answers = [client.answer() for client in clients]
        for index, (_, status) in reserved.items():
            assert [status in answer for answer in answers[index::10]] == [True] * 5, answers[index]
        pairs = list(zip(clients, answers, strict=True))
        shed = [client for client, answer in pairs if b" 503" in answer]
        assert 0 < len(shed) <= 35
        for client, answer in pairs:
            if client in shed:
                assert b"retry-after: 1\r\n" in answer
                assert b"connection: close" not in answer
        assert b" 200 OK" in shed[0].send(listing).answer()
        responses = b"".join(iter(lambda: pipelined.socket.recv(65_536), b""))
        assert responses.count(b"HTTP/1.1 ") == 3
        assert responses.lower().count(b"connection: close") == 1
        assert 'recalib_limited_requests_total{limit="load"}' in small.client.get("/metrics").text


def test_soft_limit_of_descriptors_is_raised(programs: Programs, server: Server) -> None:
    limited = Programs.__new__(Programs)
    limited.__dict__.update(programs.__dict__)
    limited.command = lambda *arguments: [
        "prlimit", "--nofile=256:4096", *recalib_command(*arguments)
    ]  # fmt: skip
    with serve(limited) as small:
        text = Path(f"/proc/{small.pid}/limits").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("Max open files"))
    assert line.split()[3:5] == ["4096", "4096"]


def test_half_requests_do_not_stop_others(server: Server) -> None:
    """Half heads and half bodies of 200 kB: others are answered, and all are closed in time."""
    heads, bodies = 2_000, 800
    half_body = POST + b"Content-Length: 200000\r\n\r\n" + b"a" * 190_000
    with (
        peak_growth_mib(server) as growth,
        contextlib.ExitStack() as stack,
        Bystander(server) as bystander,
    ):
        clients = []
        for start in (*[HEAD + b"A: " + b"b" * 30_000] * heads, *[half_body] * bodies):
            clients.append(Client(server, f"127.0.1.{1 + len(clients) % 4}"))
            stack.callback(clients[-1].close)
            with contextlib.suppress(ConnectionError):
                clients[-1].send(start)
        until(lambda: ask(server) == 200, "another client")
        until(lambda: all(client.is_closed() for client in clients), "the connections to close")
    log.info("%d bodies: livez %s; peak +%.0f MiB", bodies, bystander.livez, growth())
    assert growth() < _MAX_HELD_MIB + min(_MAX_BODIES_MIB, 0.2 * bodies)
    assert bystander.livez.longest < _MAX_WAIT_SECONDS


def test_incomplete_bodies_take_bounded_memory_and_leave_room_for_others(
    programs: Programs, server: Server
) -> None:
    """The caller with the most bytes loses its oldest body; another caller's is answered."""
    count = 300
    half_body = POST + b"Content-Length: 1000000\r\n\r\n" + b" " * 900_000
    limits = {"max_body_bytes": 4 * _MIB, "max_bodies_bytes": 16 * _MIB, "receive_seconds": 300}
    with (
        serve(programs, **limits) as small,
        peak_growth_mib(small) as growth,
        contextlib.ExitStack() as stack,
    ):
        clients = []
        for _ in range(count):
            clients.append(Client(small, "127.0.2.1"))
            stack.callback(clients[-1].close)
            clients[-1].send(half_body)
        assert b" 503 " in clients[0].answer()  # at once, though no part follows
        complete = POST + b"Content-Length: 900000\r\n\r\n" + b" " * 900_000

        def is_read() -> bool:
            """Another caller's body is read; a server that lags may refuse it first."""
            with contextlib.closing(Client(small, "127.0.2.2")) as other:
                return b" 422 " in other.send(complete).answer()

        until(is_read, "another caller's answer")
        log.info("%d half bodies of 900 kB: peak +%.0f MiB", count, growth())
        assert growth() < 160  # 80 on a quiet machine; all bodies: 258
        assert 'recalib_limited_requests_total{limit="memory"}' in small.client.get("/metrics").text
        for client in clients:
            client.close()


def test_millions_of_headers_and_a_url_of_74_mib_leave_memory_flat(server: Server) -> None:
    with (
        peak_growth_mib(server) as growth,
        Bystander(server) as bystander,
        contextlib.ExitStack() as stack,
    ):
        floods = [(HEAD, b"a: b\r\n" * 10_000, 200)] * 4 + [(b"GET /", b"a" * _MIB, 74)]
        threads = []
        for start, piece, count in floods:
            client = Client(server).send(start)
            stack.callback(client.close)
            threads.append(threading.Thread(target=client.flood, args=(piece, count)))
            threads[-1].start()
        for thread in threads:
            thread.join()
    assert growth() < _MAX_FLOOD_MIB
    assert bystander.livez.longest < _MAX_WAIT_SECONDS


def test_tls_connections_that_are_reset_leave_nothing(programs: Programs, tmp_path: Path) -> None:
    """A reset right after the handshake: the server stops well, and its log has no traceback."""
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(cafile=str(certificates.root))
    options = {"tls_certificate": certificates.chain, "tls_key": certificates.key}
    with serve(programs, verify=context, **options) as server:
        for _ in range(40):
            plain = socket.create_connection(("127.0.0.1", server.client.base_url.port or 0))
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
                # No time to linger: closing sends a reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with httpx2.Client(base_url=server.url, verify=context) as other:
            assert other.get("/livez").status_code == 200
