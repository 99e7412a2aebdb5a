"""`python -m benchmarks.neighbours [--seconds S]`: one tenant beside another that floods a server.

A server of one process with one worker, on SQLite and on PostgreSQL. The key `alpha`, for one
model, queues a thousand fits, publishes parameter files over 20 connections, and uploads files that
unpack to gigabytes, all without pause. The key `beta` reads its model, sends labels and uploads
small files a few times a second, and fits once. The children that read uploads run already.

Goals: beta has at least 99% of its answers, each kind in less than .5 s at the 99th percentile, and
its fit starts within two jobs of alpha's.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import io
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.capacity import publish, served
from benchmarks.databases import Database, postgresql, sqlite
from recalib.registry import Registry

_NPZ = {"Content-Type": "application/x-npz"}
_PARQUET = {"Content-Type": "application/vnd.apache.parquet"}
_LOGITS = [[0.0, 1.0, 2.0]]
_FITS, _PUBLISHERS = 1_000, 20
_PAUSE_SECONDS = 0.2
_BOMB_ROWS = 30_000_000
_PATH = "/v1/models"


@functools.cache
def _npz(rows: int) -> bytes:
    file = io.BytesIO()
    labels = np.arange(rows) % 3
    logits = np.eye(3, dtype=np.float32)[labels] * 2
    np.savez_compressed(file, logits=logits, labels=labels)
    return file.getvalue()


@functools.cache
def _parquet_bomb(rows: int = 8_000_000) -> bytes:
    """Run lengths: some kilobytes that take a core for many seconds."""
    file = io.BytesIO()
    columns = {f"logit_{k}": np.zeros(rows, np.float32) for k in range(3)}
    pq.write_table(pa.table(columns | {"labels": np.zeros(rows, np.int8)}), file)
    return file.getvalue()


class _Tenant:
    """The requests of one key; a kind of request has its times, in seconds, and its refusals."""

    def __init__(self, base: str, secret: str, over: threading.Event) -> None:
        self._options: dict[str, Any] = {
            "base_url": base,
            "headers": {"Authorization": f"Bearer {secret}"},
            "timeout": 120,
            "verify": False,  # no TLS, whose certificates take long to read
        }
        self._over = over
        self.seconds: dict[str, list[float]] = {}
        self.refused: dict[str, int] = {}

    def repeat(
        self, kind: str, ask: Callable[[httpx2.Client], httpx2.Response], pause: float
    ) -> None:
        """Send requests over one connection until the end."""
        seconds, self.refused[kind] = self.seconds.setdefault(kind, []), 0
        with httpx2.Client(**self._options) as client:
            while not self._over.is_set():
                start, is_answered = time.perf_counter(), False
                with contextlib.suppress(httpx2.TransportError):
                    is_answered = ask(client).is_success
                seconds.append(time.perf_counter() - start)
                self.refused[kind] += not is_answered
                self._over.wait(pause)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Send one request; return its JSON."""
        with httpx2.Client(**self._options) as client:
            return client.request(method, path, **body).raise_for_status().json()


def _labels(client: httpx2.Client) -> httpx2.Response:
    answer = client.post(f"{_PATH}/beta/calibrate", json={"logits": _LOGITS}).raise_for_status()
    (id,) = answer.json()["prediction_ids"]
    return client.post(f"{_PATH}/beta/labels", json=[{"prediction_id": id, "label": 2}])


def _upload(model: str, content: bytes, headers: dict[str, str]) -> Callable[..., httpx2.Response]:
    names = itertools.count()
    name = threading.get_ident()
    return lambda client: client.put(
        f"{_PATH}/{model}/datasets/d{name}-{next(names)}", content=content, headers=headers
    )


def _flood(alpha: _Tenant, threads: ThreadPoolExecutor, parameters: bytes) -> None:
    fit = {"dataset": "small", "map": "temperature"}
    publication = {"parameters": base64.b64encode(parameters).decode()}
    for body, count in ((publication, _PUBLISHERS), (fit, 2)):
        ask = lambda client, body=body: client.post(f"{_PATH}/alpha/calibrators", json=body)  # noqa: E731
        for _ in range(count):
            threads.submit(alpha.repeat, "flood", ask, 0.0)
    for content, headers in ((_npz(_BOMB_ROWS), _NPZ), (_parquet_bomb(), _PARQUET)):
        threads.submit(alpha.repeat, "bombs", _upload("alpha", content, headers), 0.0)


def measure(folder: Path, database: Database, seconds: float) -> None:
    """Print beta's answers by kind, and how many jobs of alpha start before its fit."""
    registry = Registry(database.url, (folder / "blobs").as_uri())
    registry.migrate()
    for name in ("alpha", "beta"):
        publish(registry, 3, name, 1)
    with registry.transaction() as tx:
        parameters = tx.calibrators.parameters(tx.models.get("alpha"), 1)
        keys = {
            name: tx.api_keys.create(name, ["predict", "label", "fit"], [name])
            for name in ("alpha", "beta")
        }
    # Before the server runs: they take seconds of a core.
    _npz(_BOMB_ROWS), _parquet_bomb()
    over, settings = (
        threading.Event(),
        {"RECALIB_REQUIRE_KEYS": "true", "RECALIB_LOG_LEVEL": "error"},
    )
    with (
        ThreadPoolExecutor(_PUBLISHERS + 10) as threads,  # ends after the server
        served(folder, database, settings, job_workers=1) as (client, _),
    ):
        alpha, beta = (_Tenant(str(client.base_url), keys[name], over) for name in keys)
        small = {"content": _npz(300), "headers": _NPZ}
        first = (("alpha", alpha), ("beta", beta))
        for done in [
            threads.submit(tenant.ask, "PUT", f"{_PATH}/{name}/datasets/small", **small)
            for name, tenant in first
        ]:
            done.result()
        fit = {"dataset": "small", "map": "temperature"}
        with registry.transaction() as tx:
            model = tx.models.get("alpha")
            for _ in range(_FITS - 10):
                payload = {"model": "alpha", "objective": "nll", "options": {}, "promote": False}
                tx.jobs.enqueue("fit", payload | fit, model=model, owner="alpha")
        _flood(alpha, threads, parameters)
        threads.submit(beta.repeat, "reads", lambda c: c.get(f"{_PATH}/beta"), _PAUSE_SECONDS)
        threads.submit(beta.repeat, "labels", _labels, _PAUSE_SECONDS)
        threads.submit(beta.repeat, "uploads", _upload("beta", **small), _PAUSE_SECONDS)
        time.sleep(seconds / 2)
        job = beta.ask("POST", f"{_PATH}/beta/calibrators", json=fit)["id"]
        time.sleep(seconds / 2)
        over.set()
    with registry.reading() as tx:
        ours = tx.jobs.get(job)
        jobs = tx.jobs.page(tx.models.get("alpha"), None, None, 10 * _FITS)
    theirs = [each.started_at for each in jobs]
    registry.close()
    _print(database.name, beta)
    if ours.started_at is None:
        print("  beta's fit has not started")
        return
    before = sum(1 for start in theirs if start and ours.created_at < start < ours.started_at)
    wait = ours.started_at - ours.created_at
    queued = sum(1 for start in theirs if start is None or start > ours.started_at)
    print(f"  fit: after {before} of alpha's jobs, {wait:.2f} s; {queued} wait or came later")


def _print(name: str, beta: _Tenant) -> None:
    print(f"{name}, load {os.getloadavg()[0]:.1f}")
    for kind, seconds in beta.seconds.items():
        share = 1 - beta.refused[kind] / len(seconds)
        p99, longest = np.quantile(seconds, 0.99), max(seconds)
        print(
            f"  {kind}: {share:.1%} of {len(seconds)} answered, "
            f"p99 {p99 * 1e3:.0f} ms, longest {longest * 1e3:.0f} ms"
        )


def main() -> None:
    """Measure on both databases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time of the flood")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        with sqlite(Path(folder, "sqlite")) as database:
            measure(Path(folder, "sqlite"), database, seconds)
        with postgresql() as database:
            Path(folder, "postgresql").mkdir()
            measure(Path(folder, "postgresql"), database, seconds)


if __name__ == "__main__":
    main()
