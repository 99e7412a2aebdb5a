"""Sockets to a server, which send any bytes, and the memory of the server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.end_to_end.programs import PATIENCE_SECONDS, Server

__all__ = ["HEAD", "POST", "RECEIVE_SECONDS", "Client", "ask", "peak_growth_mib", "peak_mib"]

#: Setting of servers that close slow connections.
RECEIVE_SECONDS = 1.0
HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Client:
    """A socket to a server, from a loopback address."""

    def __init__(self, server: Server, address: str = "127.0.0.1") -> None:
        place = urlsplit(server.url)
        self.socket = socket.create_connection(
            (place.hostname, place.port), PATIENCE_SECONDS, (address, 0)
        )

    def send(self, data: bytes) -> Client:
        self.socket.sendall(data)
        return self

    def flood(self, piece: bytes, count: int) -> int:
        """Send a piece repeatedly until the server closes; return the number of bytes."""
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(count):
                self.socket.sendall(piece)
                sent += len(piece)
        return sent

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the only response; the server then closes."""
        content = b"".join(iter(lambda: self.socket.recv(65_536), b""))
        head, _, body = content.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert len(body) == int(headers["content-length"])
        return int(first.split()[1]), headers, body

    def answer(self) -> bytes:
        """Return one answer, which may arrive in pieces, and leave the connection open."""
        content = b""
        while True:
            piece = self.socket.recv(65_536)
            assert piece, "closed"
            content += piece
            head, _, body = content.lower().partition(b"\r\n\r\n")
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if length and len(body) == int(length):
                return content

    def is_closed(self) -> bool:
        """Return whether the server has closed the connection."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(65_536):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        finally:
            self.socket.settimeout(PATIENCE_SECONDS)
        return True

    def close(self) -> None:
        self.socket.close()


def ask(server: Server, request: bytes = HEAD) -> int:
    """Return the status of a request on a new connection; 0: it was closed."""
    with contextlib.closing(Client(server)) as client:
        try:
            return client.send(request + b"Connection: close\r\n\r\n").response()[0]
        except (ConnectionError, ValueError):
            return 0


def peak_mib(server: Server) -> float:
    """Return the largest memory that the server's process has had, in MiB."""
    return _memory_mib(server, "VmHWM:")


@contextlib.contextmanager
def peak_growth_mib(server: Server) -> Iterator[Callable[[], float]]:
    """Yield a function that returns how far the memory has risen above its value now, in MiB."""
    before = _memory_mib(server, "VmRSS:")
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the peak is the memory now
    yield lambda: peak_mib(server) - before


def _memory_mib(server: Server, field: str) -> float:
    text = Path(f"/proc/{server.pid}/status").read_text()
    return int(text.partition(field)[2].split()[0]) / 1024
