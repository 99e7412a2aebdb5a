"""A TLS server that counts connections when they are accepted.

asyncio's server calls a protocol only after the handshake, so that connections with an incomplete
handshake would not be counted.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.http.limited_protocol import LimitedProtocol

#: Connections that are accepted in one cycle of the event loop.
_MAX_ACCEPTS = 64
#: Pause after an error of the system, such as too many open files.
_RETRY_SECONDS = 0.1


class Handshake:
    """The TLS handshake of a connection; the protocol's transport until it is complete."""

    def __init__(self, connection: socket.socket, protocol: LimitedProtocol) -> None:
        self._connection = connection
        self._protocol = protocol
        self._task: asyncio.Task[object] | None = None

    def begin(self, context: ssl.SSLContext, seconds: float) -> None:
        """Start the handshake; after it, the protocol is called as any protocol of asyncio."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(
            loop.connect_accepted_socket(
                lambda: self._protocol,
                self._connection,
                ssl=context,
                ssl_handshake_timeout=seconds,
            )
        )
        self._task.add_done_callback(self._end)

    def abort(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[object]) -> None:
        # The event loop logs errors; those of clients at the level DEBUG.
        if task.cancelled() or task.exception() is not None:
            self._connection.close()
            self._protocol.end_handshake()


class TlsServer:
    """Accepts connections and gives each to a protocol, with TLS.

    Parameters
    ----------
    listener: a listening socket.
    handshake_seconds: longest time of a handshake.
    """

    def __init__(
        self,
        protocol_factory: Callable[[], LimitedProtocol],
        listener: socket.socket,
        context: ssl.SSLContext,
        handshake_seconds: float,
    ) -> None:
        self._protocol_factory = protocol_factory
        self._listener = listener
        self._context = context
        self._handshake_seconds = handshake_seconds
        self._loop = asyncio.get_running_loop()
        self._is_serving = True
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Stop accepting connections; those that are open stay open."""
        if self._is_serving:
            self._is_serving = False
            self._loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        """Return at once, as nothing is left to close."""

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_RETRY_SECONDS, self._resume)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = self._protocol_factory()
            handshake = Handshake(connection, protocol)
            if protocol.begin_handshake(handshake, address[0]):
                handshake.begin(self._context, self._handshake_seconds)
            else:
                connection.close()

    def _resume(self) -> None:
        if self._is_serving:
            self._loop.add_reader(self._listener, self._accept)
