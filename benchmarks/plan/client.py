"""Connections that send the same request repeatedly."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx2
import numpy as np


@dataclass(frozen=True)
class Connection:
    """An HTTP connection; a request waits for the answer of the one before."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, url: str) -> Connection:
        """Connect to a server."""
        parts = httpx2.URL(url)
        return cls(*await asyncio.open_connection(parts.host, parts.port))

    async def post(self, path: str, body: bytes) -> int:
        """Send JSON, read the answer, and return its status."""
        self.writer.write(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        await self.reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
        return int(head.split()[1])


async def closed_loop(url: str, path: str, body: bytes, count: int, connections: int = 8) -> None:
    """Send `count` requests over connections that each wait for their answers."""

    async def run() -> None:
        connection = await Connection.open(url)
        for _ in range(count // connections):
            if (status := await connection.post(path, body)) != 200:
                raise RuntimeError(f"{path}: status {status}")
        connection.writer.close()

    await asyncio.gather(*(run() for _ in range(connections)))


async def poisson(
    url: str, path: str, body: bytes, rate: float, seconds: float
) -> tuple[list[float], int]:
    """Send requests as a Poisson process, in an open loop.

    Return the seconds from the time at which each was due to its answer with status 200, and the
    number of other answers and of closed connections.
    """
    due = np.cumsum(np.random.default_rng(3).exponential(1 / rate, int(rate * seconds)))
    free: list[Connection] = []
    latencies = []

    async def send(at: float) -> None:
        try:
            connection = free.pop() if free else await Connection.open(url)
            if await connection.post(path, body) == 200:
                latencies.append(time.perf_counter() - began - at)
            free.append(connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the server closed the connection, to shed load

    began, sending = time.perf_counter(), []
    for at in due.tolist():
        await asyncio.sleep(max(0.0, at - (time.perf_counter() - began)))
        sending.append(asyncio.create_task(send(at)))
    await asyncio.gather(*sending)
    for connection in free:
        connection.writer.close()
    return latencies, len(due) - len(latencies)
