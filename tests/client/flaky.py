"""An HTTP server with scripted faults."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = [
    "BATCH",
    "DATASET",
    "Act",
    "Flaky",
    "Received",
    "closes",
    "drips",
    "hangs",
    "problem",
    "resets",
    "says",
]

#: The description of a batch that has succeeded.
BATCH = {
    "id": "j",
    "model": "m",
    "version": 1,
    "dataset": None,
    "input": "logits",
    "format": "npz",
    "rows": 40,
    "state": "succeeded",
    "progress": None,
    "error": None,
    "digest": "0" * 64,
    "size_bytes": 1,
    "created_at": "2026-01-01T00:00:00+00:00",
    "finished_at": "2026-01-01T00:00:00+00:00",
}

#: The description of a data set.
DATASET = {
    "name": "d",
    "model": "m",
    "rows": 40,
    "classes": 4,
    "digest": "0" * 64,
    "size_bytes": 1,
    "media_type": "application/x-npz",
    "input": "logits",
    "metrics": {},
    "created_at": "2026-01-01T00:00:00+00:00",
}


@dataclass(frozen=True)
class Received:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


#: Action on a connection after a request; the event is set when the server stops.
Act: TypeAlias = Callable[[socket.socket, threading.Event], None]


def says(status: int, body: Any = b"", **headers: str) -> Act:
    """Send a valid response; `body` is encoded as JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    def act(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + content)

    return act


def problem(status: int, detail: str, *violations: dict[str, str], **headers: str) -> Act:
    """Send a problem document."""
    body = {"title": "T", "status": status, "detail": detail, "errors": list(violations)}
    return says(status, body, Content_Type="application/problem+json", **headers)


def resets(connection: socket.socket, over: threading.Event) -> None:
    """Reset the connection (RST)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def closes(after: bytes) -> Act:
    """Send part of a response, then close the connection."""

    def act(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(after)
        connection.close()

    return act


def hangs(connection: socket.socket, over: threading.Event) -> None:
    """Send nothing."""
    over.wait(60)
    connection.close()


def drips(connection: socket.socket, over: threading.Event) -> None:
    """Send a response that never ends, a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while not over.wait(0.02):
        connection.sendall(b" ")


class Flaky:
    """Performs one act per request, in order; repeats the last act.

    `received` are the requests so far, in order; `connections` is the number of their connections.
    """

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.received: list[Received] = []
        self.connections = 0
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def will(self, *acts: Act) -> None:
        """Set the acts of the following requests."""
        self.acts = list(acts)

    def __enter__(self) -> Flaky:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(0.1)
        try:
            while (request := self._read(connection)) is not None:
                self.received.append(request)
                act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
                connection.settimeout(60)
                act(connection, self._over)
                connection.settimeout(0.1)
        except OSError:  # the client has gone, or the act ended it
            pass
        finally:
            connection.close()

    def _read(self, connection: socket.socket) -> Received | None:
        head, _, body = self._until(connection, lambda data: b"\r\n\r\n" in data).partition(
            b"\r\n\r\n"
        )
        if not head:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        missing = int(headers.get("content-length", 0)) - len(body)
        body += self._until(connection, lambda data: len(data) >= missing)
        method, path, _ = first.split(" ")
        return Received(method, path, headers, body)

    def _until(self, connection: socket.socket, complete: Callable[[bytes], bool]) -> bytes:
        data = bytearray()
        while not complete(data) and not self._over.is_set():
            try:
                piece = connection.recv(1 << 16)
            except TimeoutError:
                continue
            if not piece:
                return b""
            data += piece
        return bytes(data)
