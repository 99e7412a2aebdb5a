"""How soon many server processes agree on a promotion, on PostgreSQL.

`python -m benchmarks.many_servers [--processes 10]`. Each process is a server with a port, as on as
many machines. They poll once an hour, so that only notifications reach them.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from pathlib import Path

import httpx2
import numpy as np

from benchmarks.capacity import publish, served
from benchmarks.databases import postgresql
from recalib.registry import Registry

__all__ = ["delays", "main"]

_ROW = {"logits": [[0.0, 1.0, 2.0]]}
_PAUSE_SECONDS = 0.005


def delays(clients: list[httpx2.Client], promotions: int) -> list[float]:
    """Return the seconds from the answer to a promotion until all servers answer with it."""
    results = []
    for step in range(promotions):
        version = 2 - step % 2
        path = "/v1/models/m/aliases/champion"
        clients[0].put(path, json={"version": version}).raise_for_status()
        started = time.perf_counter()
        threads = [threading.Thread(target=_wait, args=(client, version)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results.append(time.perf_counter() - started)
    return results


def _wait(client: httpx2.Client, version: int) -> None:
    while _version(client) != version:
        time.sleep(_PAUSE_SECONDS)


def _version(client: httpx2.Client) -> int:
    answer = client.post("/v1/models/m/calibrate", json=_ROW).raise_for_status()
    version: int = answer.json()["calibrator"]["version"]
    return version


def _add_version(registry: Registry) -> None:
    """Publish the champion again, as version 2."""
    with registry.transaction() as tx:
        model = tx.models.get("m")
        card, content = tx.calibrators.get(model, 1).card, tx.calibrators.parameters(model, 1)
        tx.jobs.enqueue("fit", {}, model=model)
        lease = tx.jobs.claim("benchmark", ["fit"], 3600)
        assert lease is not None
        tx.calibrators.publish(lease, model, None, card, content, None, reason="benchmark")
        tx.jobs.succeed(lease, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--promotions", type=int, default=20)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="recalib-servers-") as name,
        postgresql() as database,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        registry = Registry(database.url, (folder / "blobs").as_uri())
        registry.migrate()
        publish(registry, 3, "m", 1)
        _add_version(registry)
        registry.close()
        settings = {"RECALIB_REFRESH_SECONDS": "3600"}
        clients = [
            stack.enter_context(served(folder, database, settings))[0]
            for _ in range(arguments.processes)
        ]
        for client in clients:
            _version(client)
        seconds = delays(clients, arguments.promotions)
    p50, longest = np.median(seconds), max(seconds)
    print(f"{arguments.processes} servers: median {p50:.3f} s, longest {longest:.3f} s")


if __name__ == "__main__":
    main()
