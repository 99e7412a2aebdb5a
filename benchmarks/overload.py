"""`python -m benchmarks.overload`: goodput and latency above a server's capacity.

A real server of one process. The capacity is what eight connections get that each wait for their
answer. Then requests of 8 rows and 100 classes are sent at a rate, whatever the server answers (an
open loop), up to five times the capacity. A connection has at most one request at a time, and a
request for which no connection is free opens one. Meanwhile `/livez` is requested ten times a
second.

Goals: goodput at every rate above the capacity is at least 80% of the best, answers that are given
take less than a second at the 99th percentile, and `/livez` is always answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import uvloop

from benchmarks.capacity import publish, served
from benchmarks.databases import sqlite
from recalib.registry import Registry

__all__ = ["main"]

_ROWS, _CLASSES = 8, 100
_MODEL = "m0"
_FACTORS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
_TICK_SECONDS = 0.005
_MAX_CONNECTIONS = 2_000
_SHARE, _MAX_SECONDS = 0.8, 1.0


@dataclass
class Load:
    """Answers to the requests of one rate."""

    statuses: Counter[int] = field(default_factory=Counter)
    #: Time of the answers with status 200, in seconds.
    seconds: list[float] = field(default_factory=list)
    sent: int = 0
    #: Requests for which there was no connection.
    unsent: int = 0
    #: Open connections.
    connections: set[asyncio.Transport] = field(default_factory=set)

    def close(self) -> None:
        """Close the connections."""
        for transport in tuple(self.connections):
            transport.abort()


class _Connection(asyncio.Protocol):
    """A connection with at most one request at a time; an answer comes in one read or a few."""

    def __init__(self, load: Load, free: list[_Connection]) -> None:
        self.load, self._free = load, free
        self._started = 0.0
        self._missing = 0
        self._status = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.load.connections.add(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self.load.connections.discard(self._transport)
        if self._missing:
            self.load.statuses[0] += 1
        if self in self._free:
            self._free.remove(self)

    def send(self, request: bytes) -> None:
        """Send a request."""
        assert self._transport is not None
        self._started, self._missing = time.perf_counter(), -1
        self.load.sent += 1
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        size = len(data)
        if self._missing < 0:
            head, _, _ = data.partition(b"\r\n\r\n")
            self._status = int(head[9:12])
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self._missing = len(head) + 4 + int(length)
        self._missing -= size
        if self._missing:
            return
        self.load.statuses[self._status] += 1
        if self._status == 200:
            self.load.seconds.append(time.perf_counter() - self._started)
        self._free.append(self)


async def _offer(port: int, request: bytes, rate: float, seconds: float) -> Load:
    """Send requests at a rate, in an open loop."""
    load, free = Load(), list[_Connection]()
    loop = asyncio.get_running_loop()
    opening: set[asyncio.Task[None]] = set()

    async def open_and_send() -> None:
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(load, free), "127.0.0.1", port
            )
        except OSError:
            load.statuses[0] += 1
        else:
            connection.send(request)

    began, due = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        target = int(elapsed * rate)
        for _ in range(target - due):
            if free:
                free.pop().send(request)
            elif len(load.connections) + len(opening) < _MAX_CONNECTIONS:
                task = asyncio.create_task(open_and_send())
                opening.add(task)
                task.add_done_callback(opening.discard)
            else:
                load.unsent += 1
        due = target
        await asyncio.sleep(_TICK_SECONDS)
    await asyncio.sleep(2 * _MAX_SECONDS)
    load.close()
    await asyncio.sleep(0.5)
    return load


async def _closed_loop(port: int, request: bytes, seconds: float, connections: int = 8) -> float:
    """Return the answers per second to connections that each wait for their answer."""
    load, free = Load(), list[_Connection]()
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        _, connection = await loop.create_connection(
            lambda: _Connection(load, free), "127.0.0.1", port
        )
        free.append(connection)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        while free:
            free.pop().send(request)
        await asyncio.sleep(0)
    load.close()
    if set(load.statuses) != {200}:
        raise RuntimeError(f"requests below the capacity got {dict(load.statuses)}")
    return load.statuses[200] / seconds


async def _health(port: int, load: Load) -> None:
    """Request `/livez` ten times a second on one connection, until cancelled."""
    loop, free = asyncio.get_running_loop(), list[_Connection]()
    _, connection = await loop.create_connection(lambda: _Connection(load, free), "127.0.0.1", port)
    while True:
        connection.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while not free:
            await asyncio.sleep(0.02)
        free.clear()
        await asyncio.sleep(0.1)


async def _measure(port: int, request: bytes, seconds: float) -> bool:
    capacity = await _closed_loop(port, request, seconds)
    print(f"capacity: {capacity:.0f} requests a second, closed loop of 8 connections")
    print("offered/s  sent/s  200/s  503/s  failed  unsent  p50 ms  p99 ms  /livez p99 ms")
    goodput, slowest, is_alive = [], [], True
    for factor in _FACTORS:
        health = Load()
        task = asyncio.create_task(_health(port, health))
        load = await _offer(port, request, factor * capacity, seconds)
        task.cancel()
        p50, p99 = np.percentile(load.seconds or [np.inf], [50, 99]) * 1e3
        alive = np.percentile(health.seconds or [np.inf], 99) * 1e3
        is_alive &= set(health.statuses) == {200}
        good = load.statuses[200] / seconds
        goodput.append(good)
        slowest.append(p99)
        print(
            f"{factor * capacity:9.0f} {load.sent / seconds:7.0f} {good:6.0f} "
            f"{load.statuses[503] / seconds:6.0f} {load.statuses[0]:7d} {load.unsent:7d} "
            f"{p50:7.1f} {p99:7.1f} {alive:14.1f}",
            flush=True,
        )
    above = [good for factor, good in zip(_FACTORS, goodput, strict=True) if factor > 1]
    share = min(above) / max(goodput)
    print(f"lowest goodput above the capacity: {share:.0%} of the best (goal: {_SHARE:.0%})")
    print(f"slowest p99 of the answers given: {max(slowest):.0f} ms (goal: {_MAX_SECONDS:.0f} s)")
    print(f"/livez: {'always' if is_alive else 'not always'} answered")
    return share >= _SHARE and max(slowest) < _MAX_SECONDS * 1e3 and is_alive


def main() -> None:
    """Measure; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each rate")
    args = parser.parse_args()
    rows = np.random.default_rng(0).normal(size=(_ROWS, _CLASSES)).round(3).tolist()
    body = json.dumps({"logits": rows}).encode()
    head = (
        f"POST /v1/models/{_MODEL}/calibrate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with tempfile.TemporaryDirectory(prefix="recalib-overload-") as name:
        folder = Path(name)
        with sqlite(folder) as database:
            registry = Registry(database.url, (folder / "blobs").as_uri())
            registry.migrate()
            publish(registry, _CLASSES, _MODEL, 1)
            registry.close()
            with served(folder, database) as (client, _):
                port = client.base_url.port
                assert port is not None
                client.post(
                    f"/v1/models/{_MODEL}/calibrate", json={"logits": rows}
                ).raise_for_status()
                met = uvloop.run(_measure(port, head.encode() + body, args.seconds))
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
