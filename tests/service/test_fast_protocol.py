"""Requests answered as they are read, on real sockets: nothing a client sees may tell the two ways
of being answered apart."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httptools
import numpy as np
import prometheus_client
import pytest
import trustme
import uvicorn

from service.http.fast_protocol import AtOnce
from tests.service.short_app import LIMIT, App, post

IDLE_SECONDS = 1


class Connection:
    """A client that sends bytes as they are given and reads whole answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._answers: list[Received] = []
        self._reading = Received(self._answers)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.02)

    async def answers(self, count: int) -> list[Received]:
        """Return the next answers."""
        async with asyncio.timeout(10):
            while len(self._answers) < count:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise ConnectionError("closed")
                while data:
                    data = self._reading.take(data)
                    if self._reading.whole:
                        self._reading = Received(self._answers)
        found, self._answers[:] = self._answers[:count], self._answers[count:]
        return found

    async def closed(self) -> bool:
        async with asyncio.timeout(10):
            return await self.reader.read(1) == b""


class Received:
    """One answer, as a parser of its own reads it."""

    def __init__(self, into: list[Received]) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = self._in_body = False
        self._into = into
        self._parser = httptools.HttpResponseParser(self)

    def take(self, data: bytes) -> bytes:
        """Read no further than the end of this answer; return the rest."""
        while data and not self.whole:
            # By bytes up to the body, and then not beyond it.
            step = max(1, int(self.headers.get("content-length", 0)) - len(self.body))
            step = step if self._in_body else 1
            self._parser.feed_data(data[:step])
            data = data[step:]
        return data

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True
        self.status = self._parser.get_status_code()
        self._into.append(self)

    @property
    def text(self) -> str:
        return self.body.decode()


Act = Callable[[App, Callable[[], Awaitable[Connection]]], Awaitable[None]]


@dataclass
class Certificates:
    chain: Path
    key: Path
    #: A client's, which trusts them.
    trust: ssl.SSLContext


@pytest.fixture(params=["auto", "asyncio"])
def served(request: pytest.FixtureRequest) -> Callable[[Act], None]:
    """Run a test's coroutine against a server, on uvloop and on asyncio's own event loop."""
    return _running(request.param)


@pytest.fixture(params=["auto", "asyncio"])
def served_by_tls(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Act], None]:
    """Do the same with connections that are encrypted."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    certificates = Certificates(tmp_path / "chain.pem", tmp_path / "key.pem", trust)
    issued.cert_chain_pems[0].write_to_path(certificates.chain)
    issued.private_key_pem.write_to_path(certificates.key)
    return _running(request.param, certificates)


def _running(loop: str, certificates: Certificates | None = None) -> Callable[[Act], None]:
    async def serve(act: Act) -> None:
        app = App()
        config = uvicorn.Config(
            cast("Any", app),
            port=0,
            http=AtOnce,
            lifespan="off",
            proxy_headers=False,
            log_level="critical",
            timeout_keep_alive=IDLE_SECONDS,
            ssl_certfile=certificates.chain if certificates else None,
            ssl_keyfile=certificates.key if certificates else None,
        )
        server = app.server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        writers = []

        async def connect() -> Connection:
            trust = certificates.trust if certificates else None
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            writers.append(writer)
            return Connection(reader, writer)

        try:
            await act(app, connect)
        finally:
            server.should_exit = True
            await running
            for writer in writers:
                writer.close()

    def run(act: Act) -> None:
        factory = uvicorn.Config(cast("Any", App()), loop=cast("Any", loop)).get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(serve(act))

    return run


def test_one_that_is_there_whole_never_becomes_asgis(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        await connection.send(post("a?x=1&y=%20z", b"12345", "X-One: p", "x-one: q"))
        (answer,) = await connection.answers(1)
        assert (answer.status, answer.text) == (200, "a?x=1,y= z p, q 5")
        assert answer.headers["content-type"] == "text/plain"
        assert answer.headers["x-extra"] == "1"
        assert "date" in answer.headers
        assert app.asgi == []

    served(act)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (post("later"), "later?  2"),
        (post("%61"), "a?  2"),
        (post("a", b"x", version="1.0"), "a?  1"),
        (post("a").replace(b"/short", b"/long"), "POST /long/a/do 2"),
        (post("a").replace(b"POST", b"PUT"), "PUT /short/a/do 2"),
        (post("a", b"", "Connection: upgrade", "Upgrade: h2c"), "a?"),
    ],
    ids=["waits", "escaped", "HTTP/1.0", "elsewhere", "another method", "upgrade"],
)
def test_others_go_by_asgi(served: Callable[[Act], None], request_: bytes, expected: str) -> None:
    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        await connection.send(request_)
        (answer,) = await connection.answers(1)
        assert answer.status == 200
        assert answer.text.startswith(expected)
        assert len(app.asgi) == 1

    served(act)


def test_pieces_large_bodies_and_chunks_lose_nothing(served: Callable[[Act], None]) -> None:
    whole = post("a", b"0123456789")
    chunked = (
        b"POST /short/c/do HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    )

    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        for cut in (5, len(whole) - 10, len(whole) - 3):
            await connection.send(whole[:cut], whole[cut:])
            (answer,) = await connection.answers(1)
            assert answer.text == "a?  10"
        await connection.send(post("d", b"y" * 250_000))
        assert (await connection.answers(1))[0].text == "d?  250000"
        assert app.asgi == []
        await connection.send(post("b", b"z" * (LIMIT - 1)))
        assert (await connection.answers(1))[0].text == f"b?  {LIMIT - 1}"
        await connection.send(chunked[:-12], chunked[-12:])
        assert (await connection.answers(1))[0].text == "c?  7"
        await connection.send(post("b", b"z" * (LIMIT + 1)))
        assert (await connection.answers(1))[0].status == 413
        assert app.asgi == ["/short/b/do", "/short/c/do", "/short/b/do"]

    served(act)


def test_a_large_answer_comes_whole(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        await connection.send(post("mirror", b"xyz" * 50_000) + post("a"))
        large, small = await connection.answers(2)
        assert large.body == b"xyz" * 50_000
        assert small.text == "a?  2"

    served(act)


def test_an_array_goes_out_as_it_lies_in_memory(served: Callable[[Act], None]) -> None:
    served(_send_arrays)


def test_so_does_it_over_tls(served_by_tls: Callable[[Act], None]) -> None:
    served_by_tls(_send_arrays)


async def _send_arrays(app: App, connect: Any) -> None:
    connections = [await connect() for _ in range(4)]
    # Around what one write of a socket, one record of TLS and one buffer of ours take.
    for length in (1, 4000, 5000, 16_000, 40_000, 70_000):
        sent = [np.random.default_rng(at).random(length, np.float32) for at in range(4)]
        for connection, numbers in zip(connections, sent, strict=True):
            connection.writer.write(post("array", numbers.tobytes()) * 2)
        for connection, numbers in zip(connections, sent, strict=True):
            for answer in await connection.answers(2):
                assert answer.body == b"twice: " + (numbers * 2).tobytes()


def test_the_rest_of_a_body_is_waited_for_when_the_server_ends(
    served: Callable[[Act], None],
) -> None:
    whole = post("a", b"0123456789")

    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        await connection.send(whole[:-3])
        (protocol,) = app.server.server_state.connections
        app.server.should_exit = True
        while protocol.cycle is None:  # until it has been told
            await asyncio.sleep(0.01)
        await connection.send(whole[-3:])
        (answer,) = await connection.answers(1)
        assert (answer.text, answer.headers["connection"]) == ("a?  10", "close")
        assert await connection.closed()

    served(act)


def test_who_leaves_before_the_end_is_counted(served: Callable[[Act], None]) -> None:
    def left() -> float:
        return (
            prometheus_client.REGISTRY.get_sample_value(
                "recalib_http_requests_total",
                {"method": "POST", "route": "/short/{name}/do", "status": "499"},
            )
            or 0.0
        )

    async def act(app: App, connect: Any) -> None:
        before = left()
        connection = await connect()
        await connection.send(post("a", b"0123456789")[:-3])
        connection.writer.close()
        async with asyncio.timeout(10):
            while left() == before:
                await asyncio.sleep(0.01)
        assert app.asgi == []

    served(act)


def test_pipelined_requests_are_answered_in_their_order(served: Callable[[Act], None]) -> None:
    names = [
        "a", "token", "later", "joint", "bad", "b", "joint", "later", "later", "c", "broken",
        "joint",
    ]  # fmt: skip

    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        bodies = [b"x" * at for at in range(len(names))]
        await connection.send(b"".join(map(post, names, bodies)))
        answers = await connection.answers(len(names))
        for at, (name, answer) in enumerate(zip(names, answers, strict=True)):
            if name in ("bad", "broken"):
                assert answer.status == {"bad": 422, "broken": 500}[name]
            else:
                assert answer.text == f"{name}?  {at}"

    served(act)


def test_what_arrives_together_is_done_together(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        connections = [await connect() for _ in range(12)]
        for _ in range(20):
            for at, one in enumerate(connections):
                one.writer.write(post("joint", b"x" * at))
            for at, one in enumerate(connections):
                assert (await one.answers(1))[0].text == f"joint?  {at}"
        assert sum(app.joined) == 240
        # How many arrive at a time is the system's to say; all by themselves would be no round.
        assert len(app.joined) < 240

    served(act)


def test_an_error_in_a_round_is_of_its_own_work_alone(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        one, other = await connect(), await connect()
        one.writer.write(post("broken"))
        other.writer.write(post("joint"))
        assert (await one.answers(1))[0].status == 500
        assert (await other.answers(1))[0].text == "joint?  2"

    served(act)


def test_a_connection_ends_when_it_is_asked_to(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        await connection.send(post("joint") + post("a", b"", "Connection: close"))
        first, last = await connection.answers(2)
        assert "connection" not in first.headers
        assert last.headers["connection"] == "close"
        assert await connection.closed()

    served(act)


def test_an_expectation_is_met_before_the_body_comes(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        request = post("a", b"body", "Expect: 100-continue")
        await connection.send(request[:-4])
        (answer,) = await connection.answers(1)
        assert answer.status == 100
        await connection.send(b"body")
        assert (await connection.answers(1))[0].text == "a?  4"

    served(act)


def test_what_is_not_http_is_refused_after_what_was(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        connection = await connect()
        await connection.send(post("joint") + b"\x00\x01nonsense\r\n\r\n")
        good, bad = await connection.answers(2)
        assert (good.status, bad.status) == (200, 400)
        assert await connection.closed()

    served(act)


def test_a_quiet_connection_is_closed_and_a_busy_one_is_not(
    served: Callable[[Act], None],
) -> None:
    async def act(app: App, connect: Any) -> None:
        quiet, busy = await connect(), await connect()
        await quiet.send(post("a"))
        await quiet.answers(1)
        for name in ("a", "joint", "later", "a", "joint", "later"):
            await busy.send(post(name))
            await busy.answers(1)
            await asyncio.sleep(IDLE_SECONDS / 3)
        assert await quiet.closed()
        await busy.send(post("a"))
        assert (await busy.answers(1))[0].status == 200

    served(act)


def test_a_client_that_goes_away_harms_nobody(served: Callable[[Act], None]) -> None:
    async def act(app: App, connect: Any) -> None:
        gone, here = await connect(), await connect()
        gone.writer.write(post("joint") * 50)
        gone.writer.transport.abort()
        await here.send(post("joint"))
        assert (await here.answers(1))[0].status == 200

    served(act)
