"""HTTP connections to a real uvicorn server: order, bodies, TLS, keep-alive, shutdown, clients
that leave, and micro-batching of concurrent connections."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import shutil
import socket
import ssl
import termios
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import prometheus_client
import psutil
import pytest
import trustme
import uvicorn
from numpy.typing import NDArray

from recalib.references import DatasetRoots
from recalib.settings import Settings
from service.app import create_app
from service.http.limited_protocol import LOAD_SHEDDING, RECEIVE_SECONDS, LimitedProtocol
from service.reader_pool import reader_pool
from service.serving import micro_batch
from tests.service.conftest import npz
from tests.service.raw_http import (
    CALIBRATE,
    TIMEOUT_SECONDS,
    Connection,
    batch,
    chunked_request,
    http_request,
    json_request,
    npy_request,
)

_KEEP_ALIVE_SECONDS = 1
_MAX_BODY_BYTES = 400_000


class Server:
    """The application in the event loop of a separate thread; uvicorn servers start there."""

    def __init__(self, settings: Settings) -> None:
        self.app: Any = create_app(settings)
        factory = uvicorn.Config(self.app).get_loop_factory()  # as in production
        self.loop = factory() if factory else asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

        of_lifespan = {
            RECEIVE_SECONDS: settings.receive_seconds,
            LOAD_SHEDDING: self.app.state.recalib.load_shedding,
        }

        class Protocol(LimitedProtocol):
            """Also without the lifespan's state."""

            def __init__(
                self, config: Any, server_state: Any, app_state: Any, _loop: Any = None
            ) -> None:
                super().__init__(config, server_state, {**of_lifespan, **app_state}, _loop)

        self._protocol = Protocol

    @contextmanager
    def listen(self, **options: Any) -> Iterator[tuple[uvicorn.Server, int]]:
        """Run a uvicorn server with the options of `recalib serve`; yield it and its port."""
        config = uvicorn.Config(
            self.app,
            port=0,
            http=self._protocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            **{"timeout_graceful_shutdown": TIMEOUT_SECONDS, **options},
        )
        server = uvicorn.Server(config)
        running = asyncio.run_coroutine_threadsafe(server.serve(), self.loop)
        try:
            wait_until(lambda: server.started or running.done())
            yield server, server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            running.result(TIMEOUT_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the event loop from reading its sockets."""
        waiting, resume = threading.Event(), threading.Event()

        def wait() -> None:
            waiting.set()
            resume.wait(TIMEOUT_SECONDS)

        self.loop.call_soon_threadsafe(wait)
        # Requests that are sent before the loop waits would be read separately.
        assert waiting.wait(TIMEOUT_SECONDS)
        try:
            yield
        finally:
            resume.set()

    def probabilities(self, logits: NDArray[Any]) -> NDArray[Any]:
        """Return the champion's result for a batch alone."""
        loaded = self.app.state.recalib.calibrators.get("digits")
        result: NDArray[Any] = loaded.calibrator.predict_float32(logits)
        return result

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TIMEOUT_SECONDS)


Connect = Callable[..., Connection]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server(ready_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("connections") / "ready"
    shutil.copytree(ready_sqlite, folder)
    settings = Settings(
        database_url=f"sqlite:///{folder / 'recalib.db'}",
        blob_url=(folder / "blobs").as_uri(),
        grpc_port=-1,
        max_body_bytes=_MAX_BODY_BYTES,
        max_rows=20_000,
        refresh_seconds=3600,
        load_seconds=60,
        dataset_roots=folder.as_uri(),
    )
    server = Server(settings)
    yield server
    server.close()


@pytest.fixture(scope="module")
def port(server: Server) -> Iterator[int]:
    """The port without TLS, with the champion loaded."""
    with server.listen(lifespan="on") as (_, port):
        connection = Connection(port, None)
        assert connection.request(json_request(batch(1))).status == 200
        connection.close()
        yield port


@pytest.fixture(scope="module")
def tls(
    server: Server, port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, ssl.SSLContext]]:
    """The port with TLS, and a client's context that trusts its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    chain, key = folder / "chain.pem", folder / "key.pem"
    certificate.cert_chain_pems[0].write_to_path(chain)
    certificate.private_key_pem.write_to_path(key)
    with server.listen(lifespan="off", ssl_certfile=chain, ssl_keyfile=key) as (_, tls_port):
        yield tls_port, trust


@pytest.fixture
def connect(port: int) -> Iterator[Connect]:
    """Open connections; all are closed at the end of the test."""
    with ExitStack() as stack:

        def connect(port: int = port, trust: ssl.SSLContext | None = None) -> Connection:
            connection = Connection(port, trust)
            stack.callback(connection.close)
            return connection

        yield connect


def test_pipelined_requests_are_answered_in_order(server: Server, connect: Connect) -> None:
    """Fast and slow requests, errors, and routes of FastAPI, all sent before the first answer."""
    small, large = [batch(1 + seed, seed) for seed in range(4)], batch(17_500)
    requests = [
        json_request(small[0]),
        npy_request(large),  # computed in a thread
        json_request(small[1]),
        http_request("/v1/models/digits", b"", method="GET"),
        json_request(small[2][:, :3]),  # too few classes
        json_request(small[2]),
        json_request(small[2], model="unknown"),
        json_request(small[3]),
    ]
    connection = connect()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(connection.send, b"".join(requests))
        responses = [connection.receive() for _ in requests]
    assert [response.status for response in responses] == [200, 200, 200, 200, 422, 200, 404, 200]
    for index, logits in [(0, small[0]), (1, large), (2, small[1]), (5, small[2]), (7, small[3])]:
        expected = server.probabilities(logits)
        np.testing.assert_allclose(responses[index].rows, expected, rtol=1e-5, atol=1e-7)
    assert json.loads(responses[3].body)["name"] == "digits"


def test_body_in_pieces_is_read_whole(server: Server, connect: Connect) -> None:
    logits = batch(3)
    content = json_request(logits)
    connection = connect()
    for cut in (5, content.index(b"\r\n\r\n") + 4, len(content) - 3):
        response = connection.request(content[:cut], content[cut:])
        np.testing.assert_allclose(response.rows, server.probabilities(logits), rtol=1e-5)


@pytest.mark.parametrize("size", [7, 100_000])
def test_chunked_body_is_read_whole(server: Server, connect: Connect, size: int) -> None:
    logits = batch(2_000)
    content = chunked_request(logits, size)
    connection = connect()
    for _ in range(2):  # the connection stays usable
        response = connection.request(content[:1000], content[1000:-4], content[-4:])
        expected = server.probabilities(logits)
        np.testing.assert_allclose(response.rows, expected, rtol=1e-5, atol=1e-7)


def test_chunked_body_over_the_limit_is_rejected(connect: Connect) -> None:
    """Its length is known only when it has arrived."""
    content = chunked_request(batch(8_000), 50_000)
    assert len(content) > _MAX_BODY_BYTES
    connection = connect()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(connection.send, content)
        assert connection.receive().status == 413


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
def test_arrays_of_all_sizes_arrive_whole(
    server: Server, connect: Connect, tls: tuple[int, ssl.SSLContext], encrypted: bool
) -> None:
    """Sizes around one write of a socket, one TLS record and the limit of the event loop."""
    connections = [connect(*tls) if encrypted else connect() for _ in range(4)]
    for rows in (1, 1_000, 1_250, 4_000, 10_000, 17_500):
        batches = [batch(rows, seed) for seed in range(len(connections))]
        requests = [npy_request(logits) for logits in batches]
        with ThreadPoolExecutor(len(connections)) as pool:
            responses = list(pool.map(Connection.request, connections, requests))
        for logits, response in zip(batches, responses, strict=True):
            expected = server.probabilities(logits)
            np.testing.assert_allclose(response.rows, expected, rtol=1e-5, atol=1e-7)


def test_expect_continue_is_answered_before_the_body_arrives(
    server: Server, connect: Connect
) -> None:
    logits = batch(1)
    content = json_request(logits, "Expect: 100-continue")
    connection = connect()
    assert connection.request(content[:-10]).status == 100
    response = connection.request(content[-10:])
    np.testing.assert_allclose(response.rows, server.probabilities(logits), rtol=1e-5)


def test_connection_close_ends_the_connection_after_the_response(connect: Connect) -> None:
    connection = connect()
    connection.send(json_request(batch(1)) + json_request(batch(1), "Connection: close"))
    first, last = connection.receive(), connection.receive()
    assert (first.status, last.status) == (200, 200)
    assert "connection" not in first.headers
    assert last.headers["connection"] == "close"
    assert connection.is_closed()


def test_idle_connection_is_closed_and_busy_one_is_not(connect: Connect) -> None:
    idle, busy = connect(), connect()
    assert idle.request(json_request(batch(1))).status == 200
    until = time.monotonic() + 2 * _KEEP_ALIVE_SECONDS
    while time.monotonic() < until:
        assert busy.request(json_request(batch(1))).status == 200
        time.sleep(_KEEP_ALIVE_SECONDS / 20)
    assert idle.is_closed()
    assert busy.request(json_request(batch(1))).status == 200


def test_body_is_finished_during_shutdown(server: Server, connect: Connect) -> None:
    logits = batch(2)
    content = json_request(logits, "Expect: 100-continue")
    with server.listen(lifespan="off") as (uvicorn_server, port):
        connection = connect(port)
        assert connection.request(content[:-10]).status == 100  # the endpoint is reading the body
        uvicorn_server.should_exit = True
        wait_until(lambda: not _accepts(port))
        response = connection.request(content[-10:])
        np.testing.assert_allclose(response.rows, server.probabilities(logits), rtol=1e-5)
        assert connection.is_closed()


def test_request_that_outlasts_a_graceful_stop_gets_503_and_no_traceback(
    server: Server, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one line for all such requests, with their number."""
    with server.listen(lifespan="off", timeout_graceful_shutdown=0) as (uvicorn_server, port):
        connections = [connect(port) for _ in range(2)]
        for connection, path in zip(connections, (CALIBRATE, "/v1/models"), strict=True):
            head = ("Content-Type: application/json", "Expect: 100-continue")
            assert connection.request(http_request(path, b"{}", *head)[:-1]).status == 100
        uvicorn_server.should_exit = True
        for connection in connections:
            answer = connection.receive()
            assert answer.status == 503
            assert answer.headers["retry-after"]
            assert connection.is_closed()
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "2 running task(s)" in line.getMessage()
    assert line.exc_info is None


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", CALIBRATE, "/v1/models/{model}/calibrate"),
        ("POST", "/v2/models/digits/infer", "/v2/models/{model}/infer"),
        ("POST", "/v1/models", "/v1/models"),
        ("PUT", "/v1/models/digits/datasets/partial", "/v1/models/{model}/datasets/{name}"),
    ],
    ids=["calibrate", "infer", "FastAPI route", "upload"],
)
def test_client_that_leaves_before_the_end_of_its_body_counts_as_499(
    connect: Connect, caplog: pytest.LogCaptureFixture, method: str, path: str, route: str
) -> None:
    before = _left_early(method, route)
    leaving, other = connect(), connect()
    content_type = "application/x-npz" if method == "PUT" else "application/json"
    content = http_request(path, b"x" * 1000, f"Content-Type: {content_type}", method=method)
    leaving.send(content[:-900], content[-900:-1])
    leaving.close()
    wait_until(lambda: _left_early(method, route) == before + 1)
    # What the server logs after it has counted is there once it answers again.
    assert other.request(json_request(batch(1))).status == 200
    assert _tracebacks(caplog) == []


@pytest.mark.slow
@pytest.mark.parametrize("leave", [Connection.close, Connection.abort])
def test_client_that_leaves_stops_the_check_of_its_reference(
    request: pytest.FixtureRequest,
    server: Server,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    leave: Any,
) -> None:
    """The reader process, which is in the middle of the files, ends at once."""
    folder = DatasetRoots(server.app.state.recalib.settings.dataset_roots).fixed[0]
    Path(folder.removeprefix("file://"), "a.npz").write_bytes(npz(batch(4), np.arange(4)))
    path = f"/v1/models/digits/datasets/{leave.__name__}"
    route = "/v1/models/{model}/datasets/{name}"
    body = json.dumps({"uri": f"{folder}/a.npz"}).encode()
    content = http_request(path, body, "Content-Type: application/json", method="PUT")
    assert connect().request(content).status == 201
    reader = reader_pool("references")
    (pid,) = reader.pids
    child = psutil.Process(pid)
    child.suspend()  # as if its files were endless
    request.addfinalizer(reader.close)  # also after a failure
    before = _left_early("PUT", route)
    leaving = connect()
    leaving.send(content)
    # A call that has not reached its child is cancelled without it.
    wait_until(lambda: _waiting_bytes(pid) > 0)
    leave(leaving)
    wait_until(lambda: reader.calls == 0 and not child.is_running())
    wait_until(lambda: _left_early("PUT", route) == before + 1)
    assert connect().request(content).status == 200
    assert _tracebacks(caplog) == []
    actions = [getattr(record, "action", "") for record in caplog.get_records("call")]
    assert "upload_reader_failed" not in actions  # the child has not crashed


def _waiting_bytes(pid: int) -> int:
    """Return the bytes that a process has not read from its standard input, a pipe."""
    count = array("i", [0])
    with Path(f"/proc/{pid}/fd/0").open("rb", buffering=0) as pipe:
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def test_client_that_resets_its_connection_affects_no_other(
    server: Server, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    leaving, other = connect(), connect()
    logits = batch(2)
    with server.paused():
        leaving.send(json_request(batch(1)) * 50)
        other.send(json_request(logits))
    leaving.abort()
    np.testing.assert_allclose(other.receive().rows, server.probabilities(logits), rtol=1e-5)
    assert _tracebacks(caplog) == []


def test_request_waits_until_the_refusal_of_the_one_before_is_sent(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, lost, last = connect(), connect(), connect()
    closing = json_request(batch(1)).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    load_shedding = server.app.state.recalib.load_shedding
    with monkeypatch.context() as patch:
        patch.setattr(load_shedding, "adjust", lambda lag: None)
        patch.setattr(load_shedding, "limit", 0)
        patch.setattr("service.access.load_shedding._MAX_HOLD_SECONDS", 1.0)
        patch.setattr("service.access.load_shedding._MIN_HOLD_SECONDS", 1.0)
        with server.paused():
            for each in (connection, lost):
                each.send(json_request(batch(1)))
            last.send(closing)
        wait_until(lambda: load_shedding._held == 3)
    lost.abort()
    connection.send(json_request(batch(1)))
    refusal = connection.receive()
    assert refusal.status == 503
    assert refusal.headers["retry-after"] == "1"
    assert refusal.headers["x-content-type-options"] == "nosniff"
    assert connection.receive().status == 200
    response = last.receive()
    assert (response.status, response.headers["connection"]) == (503, "close")
    assert last.socket.recv(1) == b""
    wait_until(lambda: load_shedding._held == 0)


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", "/livez", "/livez"),
        ("POST", CALIBRATE, "/v1/models/{model}/calibrate"),
    ],
)
@pytest.mark.usefixtures("port")
def test_response_that_cannot_be_sent_counts_as_499(
    server: Server, caplog: pytest.LogCaptureFixture, method: str, path: str, route: str
) -> None:
    """uvloop raises if uvicorn writes to a connection that was reset."""
    body = json.dumps({"logits": [[0, 1, 2, 3]]}).encode()
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        raise RuntimeError("unable to perform operation on <...>; the handler is closed")

    before = _left_early(method, route)
    call = server.app(scope, receive, send)
    asyncio.run_coroutine_threadsafe(call, server.loop).result(TIMEOUT_SECONDS)
    assert _left_early(method, route) == before + 1
    assert _tracebacks(caplog) == []


def _left_early(method: str, route: str) -> float:
    """Return the number of requests that were counted with status 499."""
    labels = {"method": method, "route": route, "status": "499"}
    value = prometheus_client.REGISTRY.get_sample_value("recalib_http_requests_total", labels)
    return value or 0.0


def _tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = caplog.get_records("call")
    return [record.getMessage() for record in records if record.exc_info]


def test_requests_of_concurrent_connections_share_a_call_and_get_their_own_rows(
    server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that cannot be calibrated get errors, and the others results."""
    rows_of_calls = []
    compute = micro_batch.compute

    def counting(ids: Any, loaded: Any, origin: Any, share: float, logits: Any) -> Any:
        rows_of_calls.append(len(logits))
        return compute(ids, loaded, origin, share, logits)

    monkeypatch.setattr(micro_batch, "compute", counting)
    batches = [batch(1 + seed % 4, seed) for seed in range(16)]
    invalid = {
        3: (json_request(batches[3][:, :3]), 422),
        7: (http_request(CALIBRATE, b'{"logits": [[1, 2'), 422),
        11: (json_request(batches[11], model="unknown"), 404),
    }
    valid = [index for index in range(len(batches)) if index not in invalid]
    connections = [connect() for _ in batches]
    for connection in connections:  # so that the server has accepted it
        assert connection.request(http_request("/livez", b"", method="GET")).status == 200
    for _ in range(3):
        rows_of_calls.clear()
        with server.paused():
            for index, (connection, logits) in enumerate(zip(connections, batches, strict=True)):
                content, _ = invalid.get(index, (json_request(logits), 200))
                connection.send(content)
        responses = [connection.receive() for connection in connections]
        for index, (_, status) in invalid.items():
            assert responses[index].status == status
        for index in valid:
            expected = server.probabilities(batches[index])
            np.testing.assert_allclose(responses[index].rows, expected, rtol=1e-5)
        assert rows_of_calls == [sum(len(batches[index]) for index in valid)]
