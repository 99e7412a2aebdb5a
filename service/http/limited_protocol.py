"""uvicorn's HTTP protocol with limits on request heads, time and connections.

Only callbacks of asyncio and of httptools are extended. What a request means and how it is answered
remains uvicorn's.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.access.load_shedding import OVERLOAD, SHED
from service.http.connection_limits import LIMITS, ConnectionLimits
from service.http.draining import CONNECTION
from service.http.fast_routes import HEADERS
from service.http.problems import problem

_MAX_HEAD_BYTES = 65_536
_MAX_HEADERS = 100
_MAX_TARGET_BYTES = 8_192
_VERSIONS = ("1.1", "1.0")
#: Slowest body, in bytes per second.
_MIN_RATE = 1_024
#: What is read and discarded of a refused request, so that the client reads the response. A
#: connection that is closed with unread bytes is reset, and the response is lost.
_MAX_DISCARDED_BYTES = 256 * 2**20


class _RefusedError(Exception):
    """Stops the parser; `LimitedProtocol.send_400_response` sends the response."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    Parameters
    ----------
    app_state: the lifespan's state, with `LIMITS`. Requests get a copy with this connection.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION: self}, _loop)
        self._limits: ConnectionLimits = app_state[LIMITS]
        self._load_shedding = self._limits.load_shedding
        self._is_authenticated = False
        # `headers` is this list except while a head is read. It gets the trailers, which are not
        # headers (RFC 9110, 6.5.1).
        self._trailers: list[tuple[bytes, bytes]] = []
        self.headers = self._trailers
        self._received = 0
        #: Bytes of the call of `data_received` that is in progress.
        self._size = 0
        #: Bytes of a head that earlier calls received.
        self._head_bytes = 0
        #: Bytes since the last part of a body: chunk extensions and trailers.
        self._overhead = 0
        #: Whether the body of the current request was incomplete after the last read.
        self._is_receiving = False
        #: Whether the current request was refused because of the load.
        self._is_shed = False
        #: Number of such requests whose response is not sent yet.
        self._shed_count = 0
        #: Whether the client closes the connection after the last of them.
        self._is_last = False
        self._refusal: tuple[HTTPStatus, str] | None = None
        #: Whether the response to a refused request is sent and its rest discarded.
        self._is_discarding = False
        # What the last sweep saw, when it saw it first, and how much had been transferred then.
        self._observed: object = None
        self._since = 0.0
        self._transferred = 0

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        return self.cycle is not None and not self.cycle.response_complete

    def is_receiving(self, scope: Scope) -> bool:
        """Return whether the body of this request is incomplete."""
        cycle = self.cycle  # of the last of several pipelined requests
        return cycle.more_body and not cycle.response_complete and cycle.scope is scope

    def authenticate(self) -> None:
        """Record that a request on this connection was authenticated."""
        if not self._is_authenticated:
            self._is_authenticated = True
            self._limits.authenticate(self)

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._limits.enter(self):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the server has too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.leave(self)
        self._count_receiving(False)
        self._answer_shed()
        super().connection_lost(exc)
        self.app_state.clear()  # it refers to this connection

    def data_received(self, data: bytes) -> None:
        self._size = size = len(data)
        self._received += size
        if self._is_discarding:
            if self._received > _MAX_DISCARDED_BYTES:
                self.transport.abort()
            return
        if self.headers is not self._trailers:
            self._head_bytes += size
        self._overhead += size
        HttpToolsProtocol.data_received(self, data)
        cycle = self.cycle
        if cycle is not None and cycle.more_body is not self._is_receiving:
            self._count_receiving(cycle.more_body)
        if self.headers is not self._trailers:
            self._check_incomplete_head()
        elif self._overhead > _MAX_HEAD_BYTES and self._is_receiving:
            self._refuse(HTTPStatus.BAD_REQUEST, "trailers: found over 64 KiB")
        elif self._trailers:
            self._trailers.clear()

    # httptools' callbacks

    def on_headers_complete(self) -> None:
        headers, url = self.headers, self.url
        self._is_shed = False
        tasks, load_shedding = len(self.tasks), self._load_shedding
        if self._shed_count or (
            tasks >= load_shedding.limit
            and not load_shedding.has_place(tasks, url)
            and not self.is_busy  # then the response in progress is due first
        ):
            self._shed()
            return
        version = self.parser.get_http_version()
        if len(url) > _MAX_TARGET_BYTES or len(headers) > _MAX_HEADERS:
            self._stop(*_too_large(len(url)))
        if self._head_bytes + self._size > _MAX_HEAD_BYTES and self._head_size() > _MAX_HEAD_BYTES:
            self._stop(*_too_large(0))
        by_name = dict(headers)
        is_unique = len(by_name) == len(headers)
        if b"transfer-encoding" in by_name:
            self._check_transfer_encoding(version)
        hosts = 1 if is_unique else [name for name, _ in headers].count(b"host")
        if b"host" not in by_name:
            hosts = 0
        if version not in _VERSIONS:
            self._stop(HTTPStatus.BAD_REQUEST, "HTTP version: accepted: 1.1 or 1.0")
        if hosts != 1 and (hosts or version == "1.1"):
            self._stop(HTTPStatus.BAD_REQUEST, "Host: accepted: exactly one")
        if b"%" in url and b"%2f" in url.partition(b"?")[0].lower():
            self._stop(HTTPStatus.BAD_REQUEST, "path: an encoded slash (%2F) is not accepted")
        if is_unique:
            self.scope[HEADERS] = by_name  # type: ignore[literal-required]
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = self._trailers
        self._head_bytes = self._overhead = 0

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        if not self._is_shed:
            HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        if not self._is_shed:
            HttpToolsProtocol.on_message_complete(self)

    # Refusals

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser or a callback has rejected; uvicorn calls this."""
        self._refuse(*self._refusal or (HTTPStatus.BAD_REQUEST, msg))

    def _shed(self) -> None:
        """Refuse a request because of the load, at the least cost.

        The response and whatever the client sends next wait a moment. Otherwise clients that repeat
        refused requests at once would take the time of those that are answered.
        """
        self._is_shed = True
        self.headers = self._trailers
        self._head_bytes = self._overhead = 0
        SHED.inc()
        if not self._shed_count:
            self.transport.pause_reading()
            self.loop.call_later(self._load_shedding.hold(), self._answer_shed)
        self._shed_count += 1
        self._is_last = not self.parser.should_keep_alive()

    def _answer_shed(self) -> None:
        """Answer the requests that were refused because of the load, if there are any."""
        count, self._shed_count = self._shed_count, 0
        if not count:
            return
        self._load_shedding.held -= 1
        if self.transport.is_closing():
            return
        self.transport.resume_reading()
        if self._is_last:
            self.transport.write(_OVERLOADED * (count - 1))
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, OVERLOAD)
        else:
            self.transport.write(_OVERLOADED * count)

    def _count_receiving(self, is_receiving: bool) -> None:
        self._is_receiving = is_receiving
        if is_receiving:
            self._load_shedding.receiving.add(self)
        else:
            self._load_shedding.receiving.discard(self)

    def _stop(self, status: HTTPStatus, detail: str) -> None:
        self._refusal = status, detail
        raise _RefusedError(detail)

    def _check_transfer_encoding(self, version: str) -> None:
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings != [b"chunked"] or version != "1.1":
            self._stop(HTTPStatus.BAD_REQUEST, "Transfer-Encoding: accepted: chunked")

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _check_incomplete_head(self) -> None:
        # The parser may hold more than `_head_size` of the bytes of this call.
        if len(self.url) > _MAX_TARGET_BYTES or len(self.headers) > _MAX_HEADERS:
            self._refuse(*_too_large(len(self.url)))
        elif max(self._head_bytes, self._head_size()) > _MAX_HEAD_BYTES:
            self._refuse(*_too_large(0))

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Send an error and close the connection."""
        self._answer_shed()
        if self.transport.is_closing() or self._is_discarding:
            return
        if self.is_busy:
            if self.cycle.more_body and not self.cycle.response_started and not self.pipeline:
                self.transport.write(_response(status, detail))
            self.transport.close()
            return
        self.transport.write(_response(status, detail))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._is_discarding = True
        self._received = 0

    def give_up(self) -> None:
        """Refuse the request whose body is incomplete, to free its memory."""
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the memory for request bodies is in use")
        self.cycle.body = bytearray()

    # Time

    def is_too_slow(self, now: float) -> bool:
        """Return whether the client makes no progress; called at intervals.

        Parameters
        ----------
        now: the event loop's time, in seconds.
        """
        observed, transferred = self._observe()
        seconds = self._limits.receive_seconds
        if observed is None or observed != self._observed:
            self._observed, self._since, self._transferred = observed, now, transferred
            return False
        if now - self._since < seconds:
            return False
        is_slow = transferred - self._transferred < _MIN_RATE * seconds
        self._since, self._transferred = now, transferred
        return is_slow

    def _observe(self) -> tuple[object, int]:
        """Return what the server waits for, None if for nothing, and what was transferred."""
        cycle = self.cycle
        if self.transport.is_closing():
            return "closing", 0
        if cycle is None or cycle.response_complete:
            return ("head", cycle), 0
        if self.flow.write_paused:
            return ("response", cycle), -self.transport.get_write_buffer_size()
        if cycle.more_body and not (self.flow.read_paused or cycle.waiting_for_100_continue):
            return ("body", cycle), self._received
        return None, 0

    def time_out(self) -> None:
        """Close a connection that is too slow."""
        if self.transport.is_closing() or self._is_discarding or self.flow.write_paused:
            self.transport.abort()
        elif self.headers is not self._trailers or self.is_busy:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request was not received in time")
        else:
            self.transport.close()


def _too_large(target_size: int) -> tuple[HTTPStatus, str]:
    if target_size > _MAX_TARGET_BYTES:
        return HTTPStatus.REQUEST_URI_TOO_LONG, f"URL: accepted: {_MAX_TARGET_BYTES} bytes"
    accepted = f"{_MAX_HEADERS} headers, {_MAX_HEAD_BYTES} bytes in all"
    return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers: accepted: {accepted}"


@lru_cache(maxsize=64)
def _response(status: HTTPStatus, detail: str, *, close: bool = True) -> bytes:
    """Return a response, with `Connection: close` by default."""
    response = problem(status, status.phrase, detail)
    headers = list(response.raw_headers)
    if close:
        headers.append((b"connection", b"close"))
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])


_OVERLOADED = _response(HTTPStatus.SERVICE_UNAVAILABLE, OVERLOAD, close=False)
