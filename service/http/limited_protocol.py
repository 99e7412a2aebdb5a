"""uvicorn's HTTP protocol with limits on the size and the time of a request head, and on load.

httptools has none of them. What a request means and how it is answered remains uvicorn's. A request
above the limit of requests in progress is refused here, without a task: that takes a fraction of
the time, and under a flood of requests the time of refusals is taken from answers.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.access.load_shedding import OVERLOAD, LoadShedding
from service.http.problems import problem
from service.http.security_headers import SECURITY_HEADERS

#: Key of the time for a head, in seconds, in the lifespan's state.
RECEIVE_SECONDS = "receive_seconds"
#: Key of the `LoadShedding`, in the lifespan's state.
LOAD_SHEDDING = "load_shedding"
#: Key of a function that returns whether `receive` has a message, in the state of a request.
HAS_ARRIVED = "has_arrived"
#: Key that is in the state of a request whose body came with its head.
IS_COMPLETE = "is_complete"
#: Of a head; and of chunk extensions and trailers between two parts of a body.
_MAX_BYTES = 65_536
_TOO_LARGE = (
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"head, trailer: accepted: {_MAX_BYTES} bytes",
)
_TOO_SLOW = HTTPStatus.REQUEST_TIMEOUT, "the request was not received in time"
_OVERLOADED = HTTPStatus.SERVICE_UNAVAILABLE, OVERLOAD


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    Parameters
    ----------
    app_state: the lifespan's state, with `RECEIVE_SECONDS` and `LOAD_SHEDDING`.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._seconds: float = app_state[RECEIVE_SECONDS]
        #: Bytes since the last head or part of a body was complete.
        self._pending_bytes = 0
        #: Runs while a head is incomplete. A head that arrives at once sets none.
        self._timer: asyncio.TimerHandle | None = None
        self._is_too_large = False
        self._load_shedding: LoadShedding = app_state[LOAD_SHEDDING]
        #: Whether the current request is refused, and how many refusals wait to be sent.
        self._is_refused, self._refusals = False, 0
        self._is_last = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._pending_bytes += len(data)
        HttpToolsProtocol.data_received(self, data)
        if self._pending_bytes > _MAX_BYTES:
            self._refuse(*_TOO_LARGE)
        elif self._is_idle:
            self._start_timer()

    def on_headers_complete(self) -> None:
        if self._pending_bytes > _MAX_BYTES and self._head_bytes() > _MAX_BYTES:
            self._is_too_large = True
            raise ValueError("the head is too large")  # stops the parser
        self._pending_bytes = 0
        self._stop_timer()
        self._is_refused = self._refusals > 0 or (
            self._is_idle and not self._load_shedding.has_place(len(self.tasks), self.url)
        )
        if self._is_refused:
            self._hold_refusal()
            return
        HttpToolsProtocol.on_headers_complete(self)
        self.scope["state"][HAS_ARRIVED] = self.cycle.message_event.is_set
        # Fields of a trailer are not headers (RFC 9110, 6.5.1): they go to another list.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        if not self._is_refused:
            HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            self.scope["state"][IS_COMPLETE] = True
            HttpToolsProtocol.on_message_complete(self)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser or a callback has rejected; uvicorn calls this."""
        self._refuse(*(_TOO_LARGE if self._is_too_large else (HTTPStatus.BAD_REQUEST, msg)))

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _hold_refusal(self) -> None:
        """Send 503 later, and read nothing until then.

        Otherwise clients that repeat refused requests at once would take the time of those that are
        answered.
        """
        self.headers = []
        self._refusals += 1
        self._is_last = not self.parser.should_keep_alive()
        seconds = self._load_shedding.hold()
        if self._refusals == 1:
            self.flow.pause_reading()
            self.loop.call_later(seconds, self._send_refusals)

    def _send_refusals(self) -> None:
        count, self._refusals = self._refusals, 0
        self._load_shedding.release(count)
        if self.transport.is_closing():
            return
        self.transport.write(_response(*_OVERLOADED, is_last=False) * (count - self._is_last))
        if self._is_last:
            self._refuse(*_OVERLOADED)
        else:
            self.on_response_complete()

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _start_timer(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._seconds, self._end_time)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_time(self) -> None:
        if self._pending_bytes:
            self._refuse(*_TOO_SLOW)
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Send an error, unless a response is in progress, and close the connection."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if self._is_idle or (cycle.more_body and not cycle.response_started and not self.pipeline):
            self.transport.write(_response(status, detail))
        self.transport.close()


@lru_cache(maxsize=64)
def _response(status: HTTPStatus, detail: str, *, is_last: bool = True) -> bytes:
    response = problem(status, status.phrase, detail)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
    lines += [b"connection: close"] * is_last
    headers = [*response.raw_headers, *SECURITY_HEADERS]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
