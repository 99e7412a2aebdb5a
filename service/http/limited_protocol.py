"""uvicorn's HTTP protocol with limits on the size and the time of a request head.

httptools has neither. What a request means and how it is answered remains uvicorn's.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.http.problems import problem

#: Key of the time for a head, in seconds, in the lifespan's state.
RECEIVE_SECONDS = "receive_seconds"
#: Key of the number of requests whose heads had arrived before, in the state of a request.
TASKS = "tasks"
#: Of a head; and of chunk extensions and trailers between two parts of a body.
_MAX_BYTES = 65_536
_TOO_LARGE = (
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"head, trailer: accepted: {_MAX_BYTES} bytes",
)
_TOO_SLOW = HTTPStatus.REQUEST_TIMEOUT, "the request was not received in time"


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    Parameters
    ----------
    app_state: the lifespan's state, with `RECEIVE_SECONDS`.
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
        elif self.cycle is None or self.cycle.response_complete:
            self._start_timer()

    def on_headers_complete(self) -> None:
        if self._pending_bytes > _MAX_BYTES and self._head_bytes() > _MAX_BYTES:
            self._is_too_large = True
            raise ValueError("the head is too large")  # stops the parser
        self._pending_bytes = 0
        self._stop_timer()
        self.scope["state"][TASKS] = len(self.tasks)
        HttpToolsProtocol.on_headers_complete(self)
        # Fields of a trailer are not headers (RFC 9110, 6.5.1): they go to another list.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        HttpToolsProtocol.on_body(self, body)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser or a callback has rejected; uvicorn calls this."""
        self._refuse(*(_TOO_LARGE if self._is_too_large else (HTTPStatus.BAD_REQUEST, msg)))

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
        is_idle = cycle is None or cycle.response_complete
        if is_idle or (cycle.more_body and not cycle.response_started and not self.pipeline):
            self.transport.write(_response(status, detail))
        self.transport.close()


@lru_cache(maxsize=64)
def _response(status: HTTPStatus, detail: str) -> bytes:
    response = problem(status, status.phrase, detail)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode()), b"connection: close"]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
