"""How a server stops when it is told to."""

from __future__ import annotations

import contextlib
import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.end_to_end.programs import Programs, Server, until


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_answers_what_runs_and_leaves_nothing(programs: Programs, workers: int) -> None:
    """It exits with 0, a request that is being received is answered, and all children end."""
    with programs.serve("--workers", workers, "--job-workers", 1 if workers == 1 else 0) as server:
        until(lambda: server.children("worker") or workers > 1, "the embedded worker")
        with _half_a_request(server) as half:
            server.process.terminate()
            until(lambda: _has_noticed(server, workers), "the server to hear of it")
            half.sendall(b"}")
            with half.makefile("rb") as answer:
                assert answer.readline().startswith(b"HTTP/1.1 201")
        assert server.process.wait() == 0
    until(lambda: not programs.alive(), "all processes to end")
    # Libraries leave their own traces, whose names are not ours.
    assert list(programs.temporary.glob("recalib-*")) == []


def test_sigterm_while_it_starts(programs: Programs) -> None:
    """From the line that announces it on, the server stops cleanly."""
    process = programs.start("serve", "--port", 0, "--json")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait() == 0
    until(lambda: not programs.alive(), "all processes to end")
    # Libraries leave their own traces, whose names are not ours.
    assert list(programs.temporary.glob("recalib-*")) == []


def _half_a_request(server: Server) -> socket.socket:
    """Send all of a request but its last byte, over a connection of its own."""
    place = urlsplit(server.url)
    body = json.dumps({"name": "digits", "classes": 4}).encode()
    head = (
        f"POST /v1/models HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection((place.hostname, place.port))
    connection.sendall(head.encode() + body[:-1])
    # Answered on another connection, so the server has had the time to accept this one as well.
    for _ in range(20):
        with socket.create_connection((place.hostname, place.port)) as other:
            other.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert other.recv(100)
    return connection


def _has_noticed(server: Server, workers: int) -> bool:
    if workers > 1:  # the one that has no request to answer goes first
        return len(server.children("--multiprocessing-fork")) < workers
    place = urlsplit(server.url)
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection((place.hostname, place.port)).close()
        return False
    return True
