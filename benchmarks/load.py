"""`python -m benchmarks.load`: a real server under mixed traffic, for ten minutes.

`recalib serve --workers 2` calibrates in every format, while another version is
promoted every two seconds, data sets are uploaded, maps are fitted, metrics are read, and some
requests are invalid. Requirements:

- no answer is a 5xx, no RPC fails and no connection breaks; each invalid request gets its
  expected status;
- each answer's probabilities are those of the version that it names, and the version is the
  champion, or was at most a second before;
- memory is flat once the server is warm;
- on SIGTERM, requests that are being received are answered, and the server exits with 0.

Traffic is paced and stays on this machine. The exit status is 1 if a requirement is not met.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import grpc.aio
import httpx2
import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.load_requests import (
    CALIBRATE,
    CLASSES,
    FORMS,
    MODEL,
    ROW,
    RPCS,
    WRONG,
    batch,
    named_by,
)
from benchmarks.serving.champions import npz_of
from benchmarks.serving.processes import Tree, free_port, running, until
from recalib.calibrator import Calibrator

_MAPS = ("identity", "temperature", "class_temperature", "vector", "ensemble_temperature")
_PROMOTE_SECONDS, _UPLOAD_SECONDS, _FIT_SECONDS, _SCRAPE_SECONDS = 2.0, 1.5, 5.0, 1.0
_ASKERS, _CALLERS, _PAUSE_SECONDS = 6, 2, 0.02
#: Requests over one connection; the next may reach the other process.
_PER_CONNECTION = 40
#: The share of the time after which memory counts.
_WARM = 0.3


class Champions:
    """The versions that may answer at a time, and their expected probabilities.

    Parameters
    ----------
    lag: seconds after a promotion in which the previous version may still answer.
    """

    def __init__(self, lag: float) -> None:
        self.lag = lag
        #: Calibrators by version, as downloaded.
        self.versions: dict[int, Calibrator] = {}
        #: (time of the promotion request, time of its answer, version), in order.
        self.promotions: list[tuple[float, float, int]] = []

    def allowed(self, sent_at: float, answered: float) -> set[int]:
        """Return the versions that may answer a request with these send and answer times."""
        versions = set()
        for at, (started, _, version) in enumerate(self.promotions):
            later = self.promotions[at + 1 :]
            replaced = later[0][1] + self.lag if later else np.inf
            if started <= answered and sent_at <= replaced:
                versions.add(version)
        return versions

    def problem(
        self,
        logits: NDArray[np.float32],
        numbers: NDArray[Any],
        named: int | None,
        sent_at: float,
        answered: float,
    ) -> str:
        """Return what is wrong with an answer, or nothing; `named` is the version that it names."""
        allowed = self.allowed(sent_at, answered)
        if named is not None and named not in allowed:
            return f"version {named} answered; {sorted(allowed)} might have"
        for version in allowed if named is None else {named}:
            expected = self.versions[version].predict(logits)
            if numbers.size == expected.size and np.allclose(
                numbers.reshape(expected.shape), expected, rtol=1e-4, atol=1e-6
            ):
                return ""
        return f"not the probabilities of {'any version allowed' if named is None else named}"


@dataclass
class Report:
    """The measurements of a run."""

    problems: Counter[str] = field(default_factory=Counter)
    #: Response times in seconds, by kind of request.
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    #: (seconds since the start, MiB) of the server processes.
    memory: list[tuple[float, float]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "requests": {
                kind: {
                    "count": len(seconds),
                    "p50_ms": round(float(np.quantile(seconds, 0.5)) * 1000, 2),
                    "p99_ms": round(float(np.quantile(seconds, 0.99)) * 1000, 2),
                }
                for kind, seconds in sorted(self.seconds.items())
            },
            "memory_mib": round(self.memory[-1][1], 1) if self.memory else None,
            "memory_rise_mib": round(rise_mib(self.memory), 2),
            "problems": dict(self.problems),
        }


def rise_mib(memory: list[tuple[float, float]]) -> float:
    """Return by how much a line through the samples rises, from the end of warming up on."""
    if not memory:
        return 0.0
    at, mib = np.array(memory).T
    warm = at >= _WARM * at[-1]
    if warm.sum() < 2:
        return 0.0
    slope = float(np.polyfit(at[warm], mib[warm], 1)[0])
    return slope * float(at[-1] - at[warm][0])


class Load:
    """All traffic on one server."""

    def __init__(self, url: str, rpc: str, tree: Tree, seconds: float, lag: float) -> None:
        self.url, self.rpc, self.tree, self.seconds = url, rpc, tree, seconds
        self.report, self.champions = Report(), Champions(lag)
        self._until = 0.0
        # Over a new connection each, so that soon all processes have done everything once.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._client = httpx2.AsyncClient(base_url=url, timeout=60, limits=limits)

    async def run(self) -> Report:
        """Do everything at once until the time is over."""
        async with self._client:
            await self._prepare()
            started = time.monotonic()
            self._until = started + self.seconds
            await asyncio.gather(
                *(self._ask_on(np.random.default_rng(n)) for n in range(_ASKERS)),
                *(self._call_on(np.random.default_rng(n)) for n in range(_CALLERS)),
                self._each(_PROMOTE_SECONDS, self._promote),
                self._each(_UPLOAD_SECONDS, self._upload),
                self._each(_FIT_SECONDS, self._fit),
                self._each(0.1, self._err),
                self._each(_SCRAPE_SECONDS, self._scrape),
                self._each(0.5, lambda n: self._weigh(started)),
            )
        return self.report

    async def _prepare(self) -> None:
        """Register a model with a version of each map, and promote the first."""
        await self._request("model", "POST", "/v1/models", json={"name": MODEL, "classes": CLASSES})
        await self._upload(0)
        for map in _MAPS:
            version = await self._fitted(map, "d0")
            path = f"/v1/models/{MODEL}/calibrators/{version}/parameters"
            content = (await self._request("download", "GET", path)).content
            self.champions.versions[version] = Calibrator.from_bytes(content)
        await self._promote(0)

    async def _each(self, seconds: float, act: Callable[[int], Awaitable[None]]) -> None:
        for n in count(1):
            if time.monotonic() + seconds > self._until:
                return
            await asyncio.sleep(seconds)
            await act(n)

    async def _request(
        self, kind: str, verb: str, path: str, *, expected: int | None = None, **options: Any
    ) -> httpx2.Response:
        """Send a request and record its time; an unexpected status is a problem."""
        started = time.monotonic()
        answer = await self._client.request(verb, path, **options)
        self.report.seconds[kind].append(time.monotonic() - started)
        is_expected = answer.is_success if expected is None else answer.status_code == expected
        if not is_expected:
            self.report.problems[f"{kind}: {answer.status_code} {answer.text[:200]}"] += 1
        return answer

    async def _ask_on(self, rng: np.random.Generator) -> None:
        """Calibrate, with a new connection from time to time."""
        while time.monotonic() < self._until:
            async with httpx2.AsyncClient(base_url=self.url, timeout=60) as client:
                for _ in range(_PER_CONNECTION):
                    if time.monotonic() > self._until:
                        return
                    try:
                        await self._calibrate(client, rng)
                    except httpx2.TransportError as error:
                        self.report.problems[f"calibrate: {error!r}"] += 1
                        break
                    await asyncio.sleep(float(rng.exponential(_PAUSE_SECONDS)))

    async def _calibrate(self, client: httpx2.AsyncClient, rng: np.random.Generator) -> None:
        logits = batch(rng)
        kind = str(rng.choice(list(FORMS)))
        request = FORMS[kind](logits)
        sent_at = time.monotonic()
        answer = await client.post(request.path, content=request.body, headers=request.headers)
        answered = time.monotonic()
        self.report.seconds[kind].append(answered - sent_at)
        if answer.status_code != 200:
            self.report.problems[f"{kind}: {answer.status_code} {answer.text[:200]}"] += 1
            return
        headers = {name.lower(): value for name, value in answer.headers.items()}
        numbers = request.numbers((headers, answer.content))
        named = named_by(kind, headers, answer.content)
        self._check(kind, logits, numbers, named, sent_at, answered)

    async def _call_on(self, rng: np.random.Generator) -> None:
        """Calibrate over gRPC, with a new connection from time to time."""
        # By default, channels to one address share a connection, and so a server process.
        options = [("grpc.use_local_subchannel_pool", 1)]
        while time.monotonic() < self._until:
            async with grpc.aio.insecure_channel(self.rpc, options) as channel:
                for _ in range(_PER_CONNECTION):
                    if time.monotonic() > self._until:
                        return
                    try:
                        await self._call(channel, rng)
                    except grpc.aio.AioRpcError as error:
                        self.report.problems[f"gRPC: {error.code()} {error.details()}"] += 1
                        break
                    await asyncio.sleep(float(rng.exponential(_PAUSE_SECONDS)))

    async def _call(self, channel: grpc.aio.Channel, rng: np.random.Generator) -> None:
        logits = batch(rng)
        kind = str(rng.choice(list(RPCS)))
        rpc = RPCS[kind]
        sent_at = time.monotonic()
        answer = await channel.unary_unary(
            rpc.method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=rpc.answer.FromString,
        )(rpc.request(logits), timeout=60)
        answered = time.monotonic()
        self.report.seconds[kind].append(answered - sent_at)
        content, named = rpc.read(answer)
        self._check(kind, logits, np.frombuffer(content, "<f4"), named, sent_at, answered)

    def _check(self, kind: str, logits: NDArray[np.float32], *answer: Any) -> None:
        problem = self.champions.problem(logits, *answer)
        if problem:
            self.report.problems[f"{kind}: {problem}"] += 1

    async def _promote(self, n: int) -> None:
        version = n % len(self.champions.versions) + 1
        path = f"/v1/models/{MODEL}/aliases/champion"
        started = time.monotonic()
        # Recorded before the request: another answer may arrive first.
        self.champions.promotions.append((started, np.inf, version))
        await self._request("promote", "PUT", path, json={"version": version})
        self.champions.promotions[-1] = (started, time.monotonic(), version)

    async def _upload(self, n: int) -> None:
        """Upload a new data set, the same again, and a different one with the same name."""
        path = f"/v1/models/{MODEL}/datasets/d{n}"
        headers = {"Content-Type": "application/x-npz"}
        body, other = (npz_of(CLASSES, 500, seed) for seed in (n, n + 1_000_000))
        for kind, content, status in (
            ("upload", body, 201),
            ("upload again", body, 200),
            ("upload another", other, 409),
        ):
            await self._request(
                kind, "PUT", path, expected=status, content=content, headers=headers
            )

    async def _fit(self, n: int) -> None:
        await self._fitted(_MAPS[n % len(_MAPS)], "d0")

    async def _fitted(self, map: str, dataset: str) -> int:
        """Fit without promotion and wait; return the version."""
        body = {"dataset": dataset, "map": map, "promote": False}
        path = f"/v1/models/{MODEL}/calibrators"
        job = (await self._request("fit", "POST", path, json=body)).json()
        while job["state"] in ("queued", "running"):
            await asyncio.sleep(0.1)
            job = (await self._request("job", "GET", f"/v1/jobs/{job['id']}")).json()
        if job["state"] != "succeeded":
            self.report.problems[f"fit: {job['state']} {job['error']}"] += 1
            return 1
        return int(job["result"]["version"])

    async def _err(self, n: int) -> None:
        verb, path, status, options = WRONG[n % len(WRONG)]
        await self._request(f"wrong, {status}", verb, path, expected=status, **options)

    async def _scrape(self, n: int) -> None:
        await self._request("metrics", "GET", "/metrics")
        await self._request("readyz", "GET", "/readyz")

    async def _weigh(self, started: float) -> None:
        """Record the memory of the server's processes; the worker is not included."""
        servers = [
            process.memory_info().rss
            for process in self.tree.processes()
            if "worker" not in process.cmdline()
        ]
        self.report.memory.append((time.monotonic() - started, sum(servers) / 2**20))


def drained(url: str, tree: Tree) -> list[str]:
    """Stop the server while it receives requests; return the problems."""
    halves = [_half_a_request(url) for _ in range(8)]
    time.sleep(1)
    processes = tree.processes()
    tree.first.terminate()
    time.sleep(1)
    problems = []
    for half in halves:
        with half, half.makefile("rb") as answer:
            half.sendall(b"}")
            line = answer.readline()
            if not line.startswith(b"HTTP/1.1 200"):
                problems.append(f"SIGTERM: a request in flight got {line!r}")
    if status := tree.first.wait(60):
        problems.append(f"SIGTERM: the server exited with {status}")
    _, alive = psutil.wait_procs(processes, 10)
    return problems + [f"SIGTERM: {process} is still there" for process in alive]


def _half_a_request(url: str) -> socket.socket:
    """Send a request without its last byte, over a separate connection."""
    place = httpx2.URL(url)
    body = json.dumps({"logits": ROW}).encode()
    head = (
        f"POST {CALIBRATE} HTTP/1.1\r\nHost: {place.host}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection((place.host, place.port), timeout=60)
    connection.sendall(head.encode() + body[:-1])
    return connection


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--lag", type=float, default=1, help="seconds that a promotion may take")
    parser.add_argument("--rise", type=float, default=12, help="MiB by which memory may rise")
    parser.add_argument("--database-url", default="", help="of an empty PostgreSQL; else SQLite")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    port, rpc_port = free_port(), free_port()
    url, rpc = f"http://127.0.0.1:{port}", f"127.0.0.1:{rpc_port}"
    with tempfile.TemporaryDirectory(prefix="recalib-load-") as name:
        command = [sys.executable, "-m", "recalib", "serve", "--workers", "2"]
        command += ["--port", str(port), "--home", str(Path(name) / "home")]
        settings = {"RECALIB_GRPC_PORT": str(rpc_port), "RECALIB_DATABASE_URL": args.database_url}
        with running(command, Path(name), settings) as tree:
            until(lambda: _ready(url), tree, "recalib serve")
            report = asyncio.run(Load(url, rpc, tree, args.seconds, args.lag).run())
            rise = rise_mib(report.memory)
            if rise > args.rise:
                report.problems[f"memory rose by {rise:.1f} MiB"] += 1
            report.problems.update(drained(url, tree))
            log = tree.log.read_text()
    figures = report.as_json()
    if args.json:
        print(json.dumps(figures))
    else:
        _say(figures)
    if report.problems:
        print(log[-5000:], file=sys.stderr)
        sys.exit(1)


def _ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def _say(figures: dict[str, Any]) -> None:
    for kind, latency in figures["requests"].items():
        print(
            f"{kind:16} {latency['count']:8} p50 {latency['p50_ms']:8} ms"
            f"  p99 {latency['p99_ms']:8} ms"
        )
    print(
        f"memory {figures['memory_mib']} MiB, risen by {figures['memory_rise_mib']} MiB once warm"
    )
    for problem, times in figures["problems"].items():
        print(f"PROBLEM, {times} times: {problem}")
    if not figures["problems"]:
        print("everything held")


if __name__ == "__main__":
    main()
