"""An HTTP/1.1 client that sends raw bytes over a socket, and requests for it."""

from __future__ import annotations

import io
import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from http.client import HTTPMessage, parse_headers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.service.conftest import npy

__all__ = [
    "CALIBRATE",
    "TIMEOUT_SECONDS",
    "Connection",
    "Response",
    "batch",
    "chunked_request",
    "http_request",
    "json_request",
    "npy_request",
]

CALIBRATE = "/v1/models/digits/calibrate"
TIMEOUT_SECONDS = 60


@dataclass
class Response:
    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def rows(self) -> NDArray[Any]:
        assert self.status == 200, self.body
        if self.headers["content-type"] == "application/x-npy":
            rows: NDArray[Any] = np.load(io.BytesIO(self.body), allow_pickle=False)
            return rows
        return np.array(json.loads(self.body)["probabilities"])


class Connection:
    """A client socket that sends raw bytes and reads one response at a time."""

    def __init__(self, port: int, trust: ssl.SSLContext | None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if trust is not None:
            self.socket = trust.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._file = self.socket.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        """Send pieces with pauses, so that the server reads each separately."""
        for index, piece in enumerate(pieces):
            if index:
                time.sleep(0.02)
            self.socket.sendall(piece)

    def receive(self) -> Response:
        line = self._file.readline()
        if not line:
            raise ConnectionError("the server has closed the connection")
        headers = parse_headers(self._file)
        body = self._file.read(int(headers.get("content-length", 0)))
        return Response(int(line.split()[1]), headers, body)

    def request(self, *pieces: bytes) -> Response:
        self.send(*pieces)
        return self.receive()

    def is_closed(self) -> bool:
        """Wait for the server to close the connection."""
        return self._file.read(1) == b""

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def abort(self) -> None:
        """Close with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def http_request(path: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def json_request(logits: NDArray[Any], *headers: str, model: str = "digits") -> bytes:
    path = f"/v1/models/{model}/calibrate?ids=0"
    body = json.dumps({"logits": logits.tolist()}).encode()
    return http_request(path, body, "Content-Type: application/json", *headers)


def npy_request(logits: NDArray[Any]) -> bytes:
    types = ("Content-Type: application/x-npy", "Accept: application/x-npy")
    return http_request(CALIBRATE, npy(logits), *types)


def chunked_request(logits: NDArray[Any], size: int) -> bytes:
    """Return a request whose body comes in chunks of `size` bytes."""
    head, _, body = json_request(logits).partition(b"\r\n\r\n")
    length = b"Content-Length: %d" % len(body)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head.replace(length, b"Transfer-Encoding: chunked") + b"\r\n\r\n" + chunks + b"0\r\n\r\n"


def batch(rows: int, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(0, 3, (rows, 4)).astype(np.float32)
