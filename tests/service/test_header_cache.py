"""Requests whose head has been read before are answered as by the parser."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from typing import Any, cast

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from service.http.fast_protocol import AtOnce
from service.http.header_cache import Head, Heads
from tests.service.short_app import App, post


class Forgetful(Heads):
    """Keeps nothing."""

    def keep(self, data: bytes, head: Head, headers: int) -> None:
        pass


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("sockname", "peername") else default


class Line:
    """A connection to an application, as its event loop has it."""

    def __init__(self, app: App) -> None:
        config = uvicorn.Config(cast("Any", app), proxy_headers=False, log_level="critical")
        config.load()
        self.wire = Wire()
        self.protocol = AtOnce(config=config, server_state=ServerState(), app_state={})
        self.protocol.connection_made(self.wire)

    async def receive(self, data: bytes) -> None:
        if not self.wire.closed:
            self.protocol.data_received(data)
        for _ in range(20):  # until the tasks of ASGI have ended
            await asyncio.sleep(0)

    def end(self) -> None:
        self.protocol.connection_lost(cast("Any", None))


def app_with(heads: Heads) -> App:
    app = App()
    app.state.round.heads = heads
    return app


async def said(app: App, pieces: list[bytes]) -> str:
    """Return all that is answered, but for the names that the server gives to requests."""
    line = Line(app)
    for piece in pieces:
        await line.receive(piece)
    line.end()
    text = line.wire.written.decode()
    return re.sub(r"x-request-id: [0-9a-f]{24}\r\n", "", text) + f"closed: {line.wire.closed}"


def with_lines(request: bytes, end: bytes) -> bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    return head.replace(b"\r\n", end) + end * 2 + body


REQUESTS = [
    post("a", b"12345"),
    post("a", b"1234\n"),
    post("a", b"1\r\n\r\n"),
    post("a", b"123456"),
    post("mirror", b"12345"),
    post("mirror", b"GET /"),
    post("mirror", post("a")),
    post("joint", b"12345"),
    post("bad"),
    post("broken"),
    post("token"),
    post("a?x=1", b"12345", "X-One: p", "x-one: q"),
    post("a", b"12345", "X-Request-ID: mine"),
    post("a", b"12345", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    post("a", b"12345", "X-Long: " + "x" * 2100),
    post("a", b"12345", "Connection: close"),
    post("a", b"12345", "X-One: p", " folded"),
    post("a", b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    + b"3\r\nabc\r\n0\r\n\r\n",
    post("a", b"12345", version="1.0"),
    post("a", b"12345").replace(b"POST", b"PUT"),
    with_lines(post("mirror", b"12345"), b"\n"),
    with_lines(post("mirror", b"a\r\n\r\nb"), b"\n"),
    b"\r\n" + post("a", b"12345"),
]


@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=8),
    st.lists(st.integers(0, 1200), max_size=6),
    st.booleans(),
)
def test_what_is_said_is_what_the_parser_says(
    requests: list[bytes], cuts: list[int], apart: bool
) -> None:
    pieces = requests
    if not apart:
        whole = b"".join(requests)
        places = sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})
        pieces = [whole[start:end] for start, end in pairwise(places)]

    async def both() -> None:
        found = []
        for heads in (Heads(), Forgetful()):
            app = app_with(heads)
            for request in REQUESTS:  # so that all are known that may be
                await said(app, [request, request])
            found.append(await said(app, pieces))
        assert found[0] == found[1]

    asyncio.run(both())


def test_a_head_that_comes_again_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    on_url = AtOnce.on_url

    def counting(self: AtOnce, url: bytes) -> None:
        parsed.append(url)
        on_url(self, url)

    monkeypatch.setattr(AtOnce, "on_url", counting)

    async def act() -> None:
        app = App()
        for _ in range(2):
            line = Line(app)
            for body in (b"abcde", b"vwxyz", b"12345"):
                await line.receive(post("mirror", body))
                assert line.wire.written.endswith(body)
            line.end()
        assert len(parsed) == 1
        # Another length is another head; a name of its own comes once.
        await said(app, [post("mirror", b"123"), post("mirror", b"456")])
        assert len(parsed) == 2
        named = post("mirror", b"123", "X-Request-ID: mine")
        assert (await said(app, [named, named])).count("x-request-id: mine") == 2
        assert len(parsed) == 4
        # What ASGI has to answer goes through the parser each time.
        await said(app, [post("later"), post("later")])
        assert len(parsed) == 6

    asyncio.run(act())


def test_no_more_heads_are_kept_than_some() -> None:
    async def act() -> None:
        app = App()
        heads = app.state.round.heads
        for at in range(600):
            await said(app, [post(f"n{at}")])
            assert heads.of_whole(post(f"n{at}")) is not None
        assert 0 < sum(heads.of_whole(post(f"n{at}")) is not None for at in range(600)) <= 256

    asyncio.run(act())
