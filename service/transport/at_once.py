"""HTTP/1.1 as uvicorn speaks it, but for requests that can be answered as soon as they are read.

A request on a short way (`service.transport.short`) that arrives in one piece, as small ones do,
and that nothing has to be waited for, is answered where its last byte is parsed. It needs no task
and no queue of messages, and its answer goes out in one write, after those that came with it have
been read: on a busy server these take longer than the work (`benchmarks/serving`). Every other
request goes uvicorn's way, and so does what turns out to be one of them; nothing of it is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.state import State
from service.transport.instruments import note
from service.transport.problems import answer_to
from service.transport.short import Answer, ShortWays, Way, asked_of

__all__ = ["AtOnce"]

_Headers = Iterable[tuple[bytes, bytes]]


class _Held(NamedTuple):
    """A request whose headers have been read, on a short way."""

    way: Way
    path: Mapping[str, str]
    query: Mapping[str, str]
    #: By `time.perf_counter`.
    arrived: float


class AtOnce(HttpToolsProtocol):
    """One connection; the application has `short_ways`, and its state as `state.recalib`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        app: Any = self.app
        self._ways: ShortWays = app.short_ways
        self._state: State = app.state.recalib
        #: Never from one piece of data to the next.
        self._held: _Held | None = None
        self._body = b""
        #: What is written when all that has arrived, on any connection, has been read.
        self._answers: list[bytes] = []
        self._last = False
        #: uvicorn sets a timer for each answer; ours looks when the last one was.
        self._quiet_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self._quiet_since = None
        super().data_received(data)
        if self._held is not None:
            self._let_go()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def shutdown(self) -> None:
        self._flush()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self._flush()
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        # The scope is made when it is needed.
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        if self._may_be_held():
            found = self._ways.of_target(self.url)
            if found is not None:
                self._held = _Held(*found, time.perf_counter())
                self._body = b""
                return
        self._hand_over()

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
        else:
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        held = self._held
        if held is None:
            super().on_message_complete()
            return
        answer = self._answer_to(held)
        if answer is None:
            self._let_go()
            super().on_message_complete()
            return
        self._held = None
        status, headers, body = answer
        self._write(status, headers, body)
        note("POST", held.way.template, status, held.arrived)

    def _may_be_held(self) -> bool:
        """Whether the request may be answered before anything else is done on this connection."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
            # A client that does not read its answers has to be waited for.
            and not self.flow.write_paused
            and not self._last
            and not self.transport.is_closing()
        )

    def _hand_over(self) -> None:
        """Have uvicorn begin with the request whose headers have been read."""
        self._flush()
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def _let_go(self) -> None:
        """Give what is held to uvicorn, as though it had just been read."""
        self._held = None
        if not self.transport.is_closing():
            self._hand_over()
            if self._body:
                super().on_body(self._body)

    def _answer_to(self, held: _Held) -> tuple[int, _Headers, bytes] | None:
        """Return status, headers and body, or None for what cannot be answered at once."""
        if len(self._body) > self._state.settings.max_body_bytes:
            return None
        try:
            asked = asked_of(held.path, held.query, self.headers, self._body)
            answer = held.way.endpoint(self._state, asked)
        except Exception as error:
            refusal = answer_to(self.url.decode("ascii"), error)
            return refusal.status_code, refusal.raw_headers, bytes(refusal.body)
        return (200, answer.headers, answer.body) if isinstance(answer, Answer) else None

    def _write(self, status: int, headers: _Headers, body: bytes) -> None:
        parts = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        if not self.parser.should_keep_alive():
            self._last = True
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", body)
        if not self._answers:
            self.loop.call_soon(self._flush)
        self._answers.append(b"".join(parts))
        self.server_state.total_requests += 1

    def _flush(self) -> None:
        """Write the answers that there are."""
        if not self._answers:
            return
        self.transport.write(b"".join(self._answers))
        self._answers.clear()
        if self._last:
            self.transport.close()
            return
        self._quiet_since = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._when_quiet)

    def _when_quiet(self) -> None:
        """Close the connection if nothing came for as long as it is kept."""
        self._timer = None
        if self._quiet_since is None:
            return
        left = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if left <= 0:
            self.timeout_keep_alive_handler()
        else:
            self._timer = self.loop.call_later(left, self._when_quiet)
