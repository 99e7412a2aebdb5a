"""Shutdown of a server by signals."""

from __future__ import annotations

import json
import queue
import signal
import socket
import time
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from uvicorn.config import STARTUP_FAILURE

from recalib.settings import Settings
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.run import _run_server, _Supervisor
from tests.end_to_end.programs import Programs, Server, until
from tests.fitting.conftest import draw
from tests.service.stubs import Rpc
from tests.service.test_grpc_workflow import array, matrix, question

pytestmark = pytest.mark.slow

ROWS = draw(10, 4, 3.0)[0].astype(np.float32)


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_finishes_requests_and_leaves_no_process(programs: Programs, workers: int) -> None:
    """The server exits with status 0, and all children end.

    A request that is being received is answered, a stream in the middle comes to its end, and
    meanwhile health says that nothing is served.
    """
    with programs.serve("--workers", workers) as server:
        server.model()
        server.upload(*draw(400, 4, 3.0))
        server.finished(server.ask_fit())
        with _half_a_request(server) as half, Rpc(server.grpc_url) as rpc:
            watching = rpc.health.watch(health_pb2.HealthCheckRequest())
            assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
            pieces: queue.Queue[Any] = queue.Queue()
            answers = rpc.calibration.calibrate_stream(iter(pieces.get, None))
            pieces.put(question(ROWS))
            first = next(answers)
            answering = server.listening(server.url)
            server.process.terminate()
            assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert list(watching) == []
            # The supervisor keeps the port open as long as its processes live.
            parent = {server.process.pid} if workers > 1 else set()
            assert len(answering - parent) == workers
            until(lambda: server.listening(server.url) <= parent, "the server to hear of it")
            pieces.put(pb.CalibrateRequest(matrix=matrix(ROWS)))
            np.testing.assert_array_equal(array(next(answers)), array(first))
            pieces.put(None)
            assert list(answers) == []
            half.sendall(b"}")
            with half.makefile("rb") as answer:
                assert answer.readline().startswith(b"HTTP/1.1 201")
        assert server.process.wait() == 0
        assert "Traceback" not in server.log()
    until(lambda: not programs.alive(), "all processes to end")
    # Libraries leave other files.
    assert list(programs.temporary.glob("recalib-*")) == []


def test_sigterm_during_start(programs: Programs) -> None:
    """From its announcement on, repeated signals stop the server cleanly."""
    process = programs.start("serve", "--port", 0, "--json")
    assert process.stdout is not None
    process.stdout.readline()
    while process.poll() is None:
        process.terminate()
        time.sleep(0.005)
    assert process.returncode == 0
    assert "Traceback" not in programs.log_of(process)
    until(lambda: not programs.alive(), "all processes to end")
    # Libraries leave other files.
    assert list(programs.temporary.glob("recalib-*")) == []


@pytest.mark.parametrize("stopped", [False, True])
def test_failing_server_processes_end_the_server(
    monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """The exit status reports the failure, unless the server was stopped meanwhile."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # which this process' own are
    monkeypatch.setattr(_Supervisor, "init_processes", lambda self: self.processes.append(failed))
    failed = mock.Mock(exitcode=STARTUP_FAILURE, **{"is_alive.return_value": False})
    settings = Settings(workers=2)
    with socket.socket() as listener:
        if stopped:
            monkeypatch.setattr(_Supervisor, "handle_signals", _Supervisor.handle_term)
            _run_server(settings, listener)
        else:
            with pytest.raises(SystemExit) as excinfo:
                _run_server(settings, listener)
            assert excinfo.value.code == STARTUP_FAILURE


def _half_a_request(server: Server) -> socket.socket:
    """Send all but the last byte of a request over a new connection."""
    place = urlsplit(server.url)
    body = json.dumps({"name": "another", "classes": 4}).encode()
    head = (
        f"POST /v1/models HTTP/1.1\r\nHost: {place.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection((place.hostname, place.port))
    connection.sendall(head.encode() + body[:-1])
    # A response on another connection shows that the server has accepted this one as well.
    for _ in range(20):
        with socket.create_connection((place.hostname, place.port)) as other:
            other.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert other.recv(100)
    return connection
