"""`python -m benchmarks.overload`: goodput and latency above a server's capacity.

A real server of one process. The capacity is what eight connections get that each wait for their
answer. Then requests of `--rows` rows and `--classes` classes are sent at a rate that does not
depend on the answers (an open loop), up to five times the capacity. A connection has at most one
request at a time, and a request for which no connection is free opens one. Meanwhile `/livez` is
requested ten times a second.

With two cores or more, the server runs on one and the client on the others, and the client has a
lower priority, so that they do not compete. Other programs on the server's core still do. Goodput
is therefore also printed per second of the server's processor time, with the share of its core that
the server had. With `--edge`, requests pass the nginx of `deploy/nginx`, which runs on the client's
cores and refuses the requests of an address above 256 at a time. Each round measures the capacity,
then each rate in turn. The table has the medians of the rounds, and the shares below it have their
ranges.

Goals: goodput at the highest rate is at least 90% of the capacity of the same round, in the median,
while at least 95% of the requests of that rate are sent; answers that are given take less than a
second at the 99th percentile; `/livez` is always answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

import httpx2
import numpy as np
import psutil
import uvloop

from benchmarks.capacity import publish, served
from benchmarks.databases import sqlite
from recalib.registry import Registry
from tests.end_to_end.edge import edge
from tests.end_to_end.programs import Server

_MODEL = "m0"
_FACTORS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
_TICK_SECONDS = 0.005
#: Time at each rate before counting starts, in which connections are opened.
_WARM_UP_SECONDS = 2.0
_MAX_CONNECTIONS = 8_000
_SHARE, _MIN_SENT, _MAX_SECONDS = 0.9, 0.95, 1.0
#: What the client adds to its nice level.
_NICE = 5


@dataclass
class Load:
    """Answers to the requests of one rate."""

    statuses: Counter[int] = field(default_factory=Counter)
    #: Time of the answers with status 200, in seconds.
    seconds: list[float] = field(default_factory=list)
    sent: int = 0
    #: Within the time of the load: answers with status 200, and the server's processor time.
    good: int = 0
    processor_seconds: float = 0.0
    #: Requests for which there was no connection.
    unsent: int = 0
    #: Open connections.
    connections: set[asyncio.Transport] = field(default_factory=set)

    def reset(self) -> None:
        """Start counting again."""
        self.statuses.clear()
        self.seconds.clear()
        self.sent = self.unsent = 0

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


async def _connect(port: int, load: Load, free: list[_Connection]) -> _Connection:
    create = asyncio.get_running_loop().create_connection
    _, connection = await create(lambda: _Connection(load, free), "127.0.0.1", port)
    return connection


async def _offer(
    port: int, server: psutil.Process, request: bytes, rate: float, seconds: float
) -> Load:
    """Send requests at a rate, in an open loop."""
    load, free = Load(), list[_Connection]()
    opening: set[asyncio.Task[None]] = set()

    async def open_and_send() -> None:
        try:
            connection = await _connect(port, load, free)
        except OSError:
            load.statuses[0] += 1
        else:
            connection.send(request)

    began, due, used = time.perf_counter(), 0, math.nan
    while (elapsed := time.perf_counter() - began) < _WARM_UP_SECONDS + seconds:
        if math.isnan(used) and elapsed >= _WARM_UP_SECONDS:
            used = _processor_seconds(server)
            load.reset()
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
    load.good, load.processor_seconds = load.statuses[200], _processor_seconds(server) - used
    await asyncio.sleep(2 * _MAX_SECONDS)
    load.close()
    await asyncio.sleep(0.5)
    return load


async def _closed_loop(port: int, request: bytes, seconds: float, connections: int = 8) -> float:
    """Return the answers per second to connections that each wait for their answer."""
    load, free = Load(), list[_Connection]()
    for _ in range(connections):
        free.append(await _connect(port, load, free))
    # What remains of an overload gets 503 meanwhile.
    for duration in (_WARM_UP_SECONDS, seconds):
        load.reset()
        began = time.perf_counter()
        while time.perf_counter() - began < duration:
            while free:
                free.pop().send(request)
            await asyncio.sleep(0)
    load.close()
    if set(load.statuses) != {200}:
        raise RuntimeError(f"requests below the capacity got {dict(load.statuses)}")
    return load.statuses[200] / seconds


async def _health(port: int, load: Load) -> None:
    """Request `/livez` ten times a second on one connection, until cancelled."""
    free = list[_Connection]()
    connection = await _connect(port, load, free)
    while True:
        connection.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while not free:
            await asyncio.sleep(0.02)
        free.clear()
        await asyncio.sleep(0.1)


async def _measure(
    port: int,
    server: psutil.Process,
    request: bytes,
    factors: Sequence[float],
    rounds: int,
    seconds: float,
) -> bool:
    capacities = []
    loads: dict[float, list[tuple[Load, Load]]] = {factor: [] for factor in factors}
    for _ in range(rounds):
        capacities.append(await _closed_loop(port, request, seconds))
        for factor in factors:
            health = Load()
            task = asyncio.create_task(_health(port, health))
            load = await _offer(port, server, request, factor * capacities[-1], seconds)
            task.cancel()
            loads[factor].append((load, health))
    _print_shares("capacity, requests a second of 8 connections", capacities, ".0f")
    print("             per second                                          200 per second of")
    print(
        "offered   sent    200    503  failed  unsent  p50 ms  p99 ms  /livez ms  processor  core"
    )
    rows = {factor: _figures(turns, seconds) for factor, turns in loads.items()}
    for factor, row in rows.items():
        print(
            f"{factor:6.1f}x {row.sent:6.0f} {row.good:6.0f} {row.shed:6.0f} "
            f"{row.failed:7.0f} {row.unsent:7.0f} {row.p50:7.1f} {row.p99:7.1f} "
            f"{row.health_p99:10.1f} {row.efficiency:10.0f} {row.core:5.0%}"
        )
    highest = loads[max(factors)]
    offers = [capacity * max(factors) * seconds for capacity in capacities]
    sent = [load.sent / offer for (load, _), offer in zip(highest, offers, strict=True)]
    goodput = [
        load.good / seconds / capacity
        for (load, _), capacity in zip(highest, capacities, strict=True)
    ]
    efficiency = rows[max(factors)].efficiency / max(row.efficiency for row in rows.values())
    slowest = max(row.p99 for row in rows.values())
    healths = [health for turns in loads.values() for _, health in turns]
    is_alive = all(set(health.statuses) == {200} for health in healths)
    print(f"at {max(factors):g} times the capacity, median [lowest, highest] of {rounds} rounds:")
    _print_shares(f"  sent (goal: {_MIN_SENT:.0%})", sent, ".0%")
    _print_shares(f"  goodput as a share of the capacity (goal: {_SHARE:.0%})", goodput, ".0%")
    print(f"  goodput per second of the server's processor time: {efficiency:.0%} of the best")
    print(f"slowest p99 of the answers given: {slowest:.0f} ms (goal: {_MAX_SECONDS:.0f} s)")
    print(f"/livez: {'always' if is_alive else 'not always'} answered")
    is_met = np.median(sent) >= _MIN_SENT and np.median(goodput) >= _SHARE
    return bool(is_met) and slowest < _MAX_SECONDS * 1e3 and is_alive


def _print_shares(name: str, values: Sequence[float], form: str) -> None:
    middle, low, high = np.median(values), min(values), max(values)
    print(f"{name}: {middle:{form}} [{low:{form}}, {high:{form}}]", flush=True)


class _Row(NamedTuple):
    """Medians of the rounds of one rate: numbers per second, and times in milliseconds."""

    sent: float
    good: float
    shed: float
    failed: float
    unsent: float
    p50: float
    p99: float
    health_p99: float
    efficiency: float
    core: float


def _figures(turns: list[tuple[Load, Load]], seconds: float) -> _Row:
    rows = []
    for load, health in turns:
        p50, p99 = np.percentile(load.seconds or [np.inf], [50, 99]) * 1e3
        rows.append(
            _Row(
                load.sent / seconds,
                load.good / seconds,
                load.statuses[503] / seconds,
                load.statuses[0] / seconds,
                load.unsent / seconds,
                p50,
                p99,
                np.percentile(health.seconds or [np.inf], 99) * 1e3,
                load.good / load.processor_seconds,
                load.processor_seconds / seconds,
            )
        )
    return _Row(*np.median(rows, axis=0).tolist())


def _processor_seconds(server: psutil.Process) -> float:
    return float(sum(server.cpu_times()[:2]))


@contextlib.contextmanager
def _cores() -> Iterator[Callable[[], None]]:
    """Keep processes that start here on one core; the function moves this process to the others."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("one core: client and server compete", file=sys.stderr)
        yield lambda: None
        return
    os.sched_setaffinity(0, cores[:1])
    try:
        yield lambda: os.sched_setaffinity(0, cores[1:])
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def _address(url: httpx2.URL, folder: Path | None) -> Iterator[int]:
    """Yield the port of the server, or of nginx in front of it with its files in `folder`."""
    assert url.port is not None
    if folder is None:
        yield url.port
        return
    with edge(
        cast(Server, SimpleNamespace(url=str(url), grpc_url=None)), folder / "nginx"
    ) as proxied:
        port = httpx2.URL(proxied.url).port
        assert port is not None
        yield port


def main() -> None:
    """Measure; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each rate and round")
    parser.add_argument("--rows", type=int, default=8, help="of a request")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="turns, of which medians are printed")
    parser.add_argument("--edge", action="store_true", help="nginx between client and server")
    parser.add_argument(
        "--factors",
        type=float,
        nargs="+",
        default=_FACTORS,
        help="rates, as multiples of the capacity",
    )
    args = parser.parse_args()
    if max(args.factors) <= 1:
        parser.error("argument --factors: accepted: at least one above 1")
    rows = np.random.default_rng(0).normal(size=(args.rows, args.classes)).round(3).tolist()
    body = json.dumps({"logits": rows}).encode()
    head = (
        f"POST /v1/models/{_MODEL}/calibrate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    with tempfile.TemporaryDirectory(prefix="recalib-overload-") as name:
        folder = Path(name)
        with sqlite(folder) as database:
            registry = Registry(database.url, (folder / "blobs").as_uri())
            registry.migrate()
            publish(registry, args.classes, _MODEL, 1)
            registry.close()
            with _cores() as leave_core, served(folder, database) as (client, server):
                leave_core()
                os.nice(_NICE)
                client.post(
                    f"/v1/models/{_MODEL}/calibrate", json={"logits": rows}
                ).raise_for_status()
                with _address(client.base_url, folder if args.edge else None) as port:
                    met = uvloop.run(
                        _measure(port, server, request, args.factors, args.rounds, args.seconds)
                    )
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
