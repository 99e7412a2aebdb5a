"""HTTP/1.1 as uvicorn speaks it, but for requests that can be answered as soon as they are read.

A request on a short way (`service.http.fast_routes`) whose body says how long it is, and is not
large, and that nothing but its own bytes has to be waited for, becomes no task and no queue of
messages. It joins a round: what has arrived on all connections when the event loop has read them
once is answered together, each answer in one write. On a busy server these take longer than the
work (`benchmarks/serving`); on one that is not, a round is one request. Every other request goes
uvicorn's way, and so does what turns out to be one of them; nothing of it is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from recalib.errors import LimitedError, UnauthorizedError
from recalib.observability.logs import log_fields
from service.access.oidc import SigningKeyUnknownError
from service.http.fast_routes import LEFT, Answer, Asked, Joint, ShortWays, Way, by_name
from service.http.problems import error_response
from service.metrics import record_request, record_requests
from service.request_ids import HEADER, request_id_of, traceparent_of
from service.state import State

__all__ = ["AtOnce", "Round"]

#: Requests after which a round is answered, however many more there are to read.
_MOST = 256
#: Bytes of a body that may be kept until the rest of it comes.
_KEPT = 256 * 1024
#: Bytes of an answer from which copying it costs more than writing its headers by themselves.
_APART = 16 * 1024

_Headers = Iterable[tuple[bytes, bytes]]
_Body = tuple[bytes | memoryview, ...]


class Head(msgspec.Struct, frozen=True):
    """A parsed request head on a fast route."""

    way: Way
    path: Mapping[str, str]
    query: Mapping[str, str]
    #: The request target, for error messages.
    target: str
    headers: Mapping[bytes, bytes]
    #: Whether the connection outlives the answer.
    stays: bool


class _Held(msgspec.Struct, frozen=True):
    """A request whose headers have been read, on a short way."""

    way: Way
    path: Mapping[str, str]
    query: Mapping[str, str]
    #: By `time.perf_counter`.
    arrived: float


class _Entry(msgspec.Struct, frozen=True):
    """A request of a round."""

    connection: AtOnce
    head: Head
    #: By `time.perf_counter`.
    arrived: float
    request_id: str
    traceparent: str | None
    outcome: Answer | Joint | Exception


class Round:
    """Requests to be answered when all that has arrived has been read; of one event loop."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(self, entry: _Entry, loop: asyncio.AbstractEventLoop) -> None:
        """Answer a request with the others of this round."""
        if not self._entries:
            loop.call_soon(self.answer)
        self._entries.append(entry)
        if len(self._entries) >= _MOST:
            self.answer()

    def answer(self) -> None:
        """Answer what there is, each connection's requests in their order."""
        entries, self._entries = self._entries, []
        done: dict[tuple[str, int], list[tuple[float, str | None, str | None]]] = {}
        for entry, outcome in zip(entries, _outcomes(entries), strict=True):
            status = entry.connection.finish(entry, outcome)
            about = entry.arrived, entry.request_id, entry.traceparent
            done.setdefault((entry.head.way.template, status), []).append(about)
        for (template, status), requests in done.items():
            record_requests("POST", template, status, requests)


def _outcomes(entries: list[_Entry]) -> list[Answer | Exception]:
    """Return the outcome of each, with all parts of the same work done at once."""
    parts: dict[Any, list[Any]] = {}
    for entry in entries:
        if isinstance(entry.outcome, Joint):
            parts.setdefault(entry.outcome.work, []).append(entry.outcome.part)
    done = {work: iter(_done(work, of_work)) for work, of_work in parts.items()}
    return [
        next(done[one.outcome.work]) if isinstance(one.outcome, Joint) else one.outcome
        for one in entries
    ]


def _done(work: Any, parts: list[Any]) -> list[Answer | Exception]:
    try:
        answers: list[Answer | Exception] = work(parts)
    except Exception as error:
        return [error] * len(parts)
    return answers


class AtOnce(HttpToolsProtocol):
    """One connection; the application has `short_ways`, `state.recalib` and `state.round`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        app: Any = self.app
        self._ways: ShortWays = app.short_ways
        self._state: State = app.state.recalib
        self._round: Round = app.state.round
        self._held: _Held | None = None
        #: Of what is held, the body as far as it has come.
        self._pieces: list[bytes] = []
        #: Requests in the round, and whether one of them is the connection's last.
        self._waiting = 0
        self._last = False
        #: uvicorn sets a timer for each answer; ours looks when the last one was.
        self._quiet_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self._quiet_since = None
        super().data_received(data)
        if self._held is not None and not self._will_be_whole():
            self._let_go()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
        if self._held is not None:
            record_request("POST", self._held.way.template, LEFT, self._held.arrived)
            self._held = None

    def shutdown(self) -> None:
        self._answer_waiting()
        if self._held is not None:  # uvicorn waits for the rest of what it knows of
            self._let_go()
        super().shutdown()

    def send_400_response(self, msg: str) -> None:
        self._answer_waiting()
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
                self._pieces = []
                return
        self._hand_over()

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        held = self._held
        if held is None:
            super().on_message_complete()
            return
        target, stays = self.url.decode("ascii"), self.parser.should_keep_alive()
        body, headers = b"".join(self._pieces), by_name(self.headers)
        head = Head(held.way, held.path, held.query, target, headers, stays)
        outcome = self._outcome_of(head, body)
        if outcome is None:
            self._let_go()
            super().on_message_complete()
            return
        self._held = None
        names = request_id_of(self.headers), traceparent_of(self.headers)
        self._join(_Entry(self, head, held.arrived, *names, outcome))

    def finish(self, entry: _Entry, outcome: Answer | Exception) -> int:
        """Write the answer to a request of a round; return its status."""
        self._waiting -= 1
        self.server_state.total_requests += 1
        name = (HEADER, entry.request_id.encode())
        stays = entry.head.stays
        if isinstance(outcome, Answer):
            status = 200
            self._write(status, (*outcome.headers, name), (outcome.body, outcome.rest), stays)
        else:
            with log_fields(request_id=entry.request_id):
                refusal = error_response(entry.head.target, outcome)
            status = refusal.status_code
            headers = (*refusal.raw_headers, name)
            self._write(status, headers, (refusal.body,), stays)
        return status

    def _join(self, entry: _Entry) -> None:
        self._waiting += 1
        self._last = not entry.head.stays
        self._round.add(entry, self.loop)

    def _may_be_held(self) -> bool:
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and self._is_free()
        )

    def _is_free(self) -> bool:
        """Whether a request may be answered before anything else is done on this connection."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            # A client that does not read its answers has to be waited for.
            and not self.flow.write_paused
            and not self._last
            and not self.transport.is_closing()
        )

    def _hand_over(self) -> None:
        """Have uvicorn begin with the request whose headers have been read."""
        self._answer_waiting()
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def _will_be_whole(self) -> bool:
        """Whether the body is known to end, and soon enough to be kept until then."""
        lengths = (int(value) for name, value in self.headers if name == b"content-length")
        return 0 < next(lengths, 0) <= min(_KEPT, self._state.settings.max_body_bytes)

    def _let_go(self) -> None:
        """Give what is held to uvicorn, as though it had just been read."""
        self._held = None
        if not self.transport.is_closing():
            self._hand_over()
            if self._pieces:
                super().on_body(b"".join(self._pieces))

    def _answer_waiting(self) -> None:
        """Answer what came before on this connection."""
        if self._waiting:
            self._round.answer()

    def _outcome_of(self, head: Head, body: bytes) -> Answer | Joint | Exception | None:
        """Return the answer or what is to be done for it; None for what has to be waited for."""
        if len(body) > self._state.settings.max_body_bytes:
            return None
        caller, access = None, self._state.access
        address = "" if self.client is None else self.client[0]
        try:
            asked = Asked(head.path, head.query, head.headers, body)
            if access.is_wary:
                caller = access.principal(asked.header(b"authorization"), address)
                access.limiter.check_body(caller, len(body))
                access.limiter.take_request(caller)
            outcome = head.way.endpoint(self._state, asked)
        except SigningKeyUnknownError:
            return None
        except UnauthorizedError as error:
            return self._unknown(asked, address, error)
        except Exception as error:
            return error
        if caller is not None and not isinstance(outcome, Answer | Joint):
            # It comes again, with those that have to be waited for.
            access.limiter.give_request_back(caller)
        return outcome if isinstance(outcome, Answer | Joint) else None

    def _unknown(self, asked: Asked, address: str, error: UnauthorizedError) -> Exception:
        """Return what somebody unknown is told."""
        try:
            self._state.access.note_failure(asked.header(b"authorization"), address)
        except LimitedError as limited:
            return limited
        return error

    def _write(self, status: int, headers: _Headers, body: _Body, stays: bool) -> None:
        if self.transport.is_closing():
            return
        parts = [STATUS_LINE[status]]
        for name, value in (*self.server_state.default_headers, *headers):
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if stays else b"connection: close\r\n\r\n")
        if sum(map(len, body)) < _APART:
            self.transport.write(b"".join((*parts, *body)))
        else:
            self.transport.writelines((b"".join(parts), *body))
        if not stays:
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
