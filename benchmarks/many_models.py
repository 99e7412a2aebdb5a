"""Three thousand calibrators on one server: the first call of each, memory, and promotions.

`python -m benchmarks.many_models`. A real server with two processes, on SQLite and on PostgreSQL.
The first call of each model uses an open connection; its time is that of the whole request, seen by
the client. Then the champion is switched repeatedly, and requests over connections that either
process may accept show how long the old version still answers.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import numpy as np
import psutil

from benchmarks.databases import postgresql, sqlite
from benchmarks.timing import Goal
from recalib.fitting import fit
from recalib.registry import Registry

__all__ = ["run"]

_MODELS = 3_000
_CLASSES = 10
_PROMOTIONS = 15
_MIB = 2**20
_ROW = {"logits": [[0.5 * k for k in range(_CLASSES)]]}


def run() -> list[Goal]:
    """Measure on both databases."""
    goals = []
    with tempfile.TemporaryDirectory(prefix="recalib-many-") as name:
        home = Path(name)
        with sqlite(home / "sqlite") as database:
            goals += _on("SQLite", database.url, home / "sqlite")
        with postgresql() as database:
            goals += _on("PostgreSQL", database.url, home / "postgresql")
    return goals


def _on(database: str, url: str, home: Path) -> list[Goal]:
    _register(url, home)
    with _served(url, home) as (base, process):
        before = _resident(process)
        seconds, second_seconds = _first_calls(base)
        growth = _resident(process) - before
        promoted = _promotions(base)
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    warm50, warm99 = np.percentile(second_seconds, [50, 99]) * 1e3
    first = f"; p50 {p50:.1f} ms; second calls: {warm50:.1f} and {warm99:.1f} ms"
    memory = f"; {growth / _MIB:.0f} MiB for {_MODELS} calibrators"
    slowest = f"; seconds until both processes agree, median {np.median(promoted):.2f}"
    return [
        Goal(f"{database}: p99 of first calls, ms", p99, 20, True, first),
        Goal(f"{database}: KiB for a calibrator", growth / _MODELS / 1024, 192, True, memory),
        Goal(f"{database}: slowest promotion, s", max(promoted), 1, True, slowest),
    ]


def _register(url: str, home: Path) -> None:
    """Add the models, each with a champion and a version 2."""
    registry = Registry(url, (home / "blobs").as_uri())
    registry.migrate()
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(500, _CLASSES)) * 3, rng.integers(0, _CLASSES, 500)
    fitted = fit(logits, labels)
    card, content = fitted.card.to_dict(), fitted.to_bytes()
    with registry.transaction() as tx:
        for i in range(_MODELS):
            model = tx.models.create(f"m{i}", None, _CLASSES, actor="benchmark")
            for alias in ("champion", None)[: 2 if i == 0 else 1]:
                tx.jobs.enqueue("fit", {}, model=model)
                lease = tx.jobs.claim("benchmark", ["fit"], 3600)
                assert lease is not None
                tx.calibrators.publish(lease, model, None, card, content, alias, reason="benchmark")
                tx.jobs.succeed(lease, {})
    registry.close()


@contextlib.contextmanager
def _served(url: str, home: Path) -> Iterator[tuple[str, psutil.Process]]:
    options = ["--workers", "2", "--job-workers", "0", "--database-url", url, "--home", str(home)]
    command = [sys.executable, "-m", "recalib", "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, "--grpc-port", "0", *options], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        base = json.loads(process.stdout.readline())["url"]
        try:
            while not _ready(base):
                time.sleep(0.2)
            time.sleep(3)  # both processes have finished their imports
            yield base, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


def _ready(base: str) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return httpx2.get(f"{base}/readyz").is_success
    return False


def _first_calls(base: str) -> list[list[float]]:
    """Return the time of each model's first call, and of its second."""
    seconds: list[list[float]] = [[], []]
    with httpx2.Client(base_url=base, timeout=60) as client:
        client.get("/livez")
        for i in np.random.default_rng(1).permutation(np.arange(1, _MODELS)):
            for times in seconds:
                started = time.perf_counter()
                client.post(f"/v1/models/m{i}/calibrate", json=_ROW).raise_for_status()
                times.append(time.perf_counter() - started)
    return seconds


def _promotions(base: str) -> list[float]:
    """Return how long the previous version still answers after each promotion, in seconds."""
    delays = []
    with httpx2.Client(base_url=base, timeout=60) as client:
        for step in range(_PROMOTIONS):
            version = 2 - step % 2
            alias = "/v1/models/m0/aliases/champion"
            client.put(alias, json={"version": version}).raise_for_status()
            started = last = time.perf_counter()
            while time.perf_counter() - started < 1.5:
                if _version(base) != version:
                    last = time.perf_counter()
            delays.append(last - started)
    return delays


def _version(base: str) -> int:
    """Send a request over a new connection, which either process may accept."""
    answer = httpx2.post(f"{base}/v1/models/m0/calibrate", json=_ROW)
    version: int = answer.json()["calibrator"]["version"]
    return version


def _resident(process: psutil.Process) -> int:
    """Return the memory of a server and its processes, in bytes."""
    return sum(member.memory_info().rss for member in [process, *process.children(recursive=True)])


if __name__ == "__main__":
    for goal in run():
        print(goal)
