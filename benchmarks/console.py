"""`python -m benchmarks.console`: the models page of the console, with 10 and 3,000 models.

One model has a fitted champion and a month of monitoring, from a log; the others are copies of its
rows, with traffic of the last hour. A line has the bytes of the first page and of the last one,
compressed with gzip, and the shortest time of 5 requests in this process, with SQLite.
"""

from __future__ import annotations

import gzip
import io
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert, select
from starlette.testclient import TestClient

from benchmarks.timing import best_of
from recalib.registry import Registry, tables
from recalib.settings import Settings
from service.app import create_app
from training.main import HANDLERS
from training.worker import Worker

COUNTS = (10, 3_000)
_CLASSES, _ROWS = 4, 5_000
#: Of a model, in an order in which keys exist before they are referred to.
_COPIED = (tables.models, tables.jobs, tables.calibrators, tables.aliases, tables.monitors)


def _make_model(client: TestClient, registry: Registry) -> None:
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(_CLASSES), _ROWS)
    labels = (p.cumsum(1) > random.random((_ROWS, 1))).argmax(1)
    file, log = io.BytesIO(), io.StringIO()
    np.savez(file, logits=np.log(p) * 1.8, labels=labels)
    times = time.time() - np.linspace(30, 2, _ROWS) * 86_400
    names = ["time", "label", "label_time", *(f"probability_{k}" for k in range(_CLASSES))]
    columns = np.column_stack([times, labels, times + 60, p])
    np.savetxt(log, columns, delimiter=",", header=",".join(names), comments="", fmt="%.9f")
    worker = Worker(registry, HANDLERS, name="benchmark")
    requests = (
        ("POST", "", {"json": {"name": "m0", "classes": _CLASSES}}),
        ("PUT", "/m0/datasets/v", _content(file.getvalue(), "application/x-npz")),
        ("POST", "/m0/calibrators", {"json": {"dataset": "v", "map": "temperature"}}),
        ("POST", "/m0/monitoring/replays", _content(log.getvalue().encode(), "text/csv")),
    )
    for method, path, body in requests:
        client.request(method, f"/v1/models{path}", **body).raise_for_status()
        while worker.work_once(threading.Event()):
            pass


def _content(content: bytes, kind: str) -> dict[str, Any]:
    return {"content": content, "headers": {"Content-Type": kind}}


def _copy_model(registry: Registry, numbers: range) -> None:
    """Add copies of the model, with the numbers in their names."""
    with registry.transaction() as tx:
        execute = tx.connection.execute
        for table in _COPIED:
            of = table.c.id if table is tables.models else table.c.model_id
            found = execute(select(table).where(of == 1)).first()
            assert found is not None
            row = dict(found._mapping)
            execute(insert(table), [row | _own(table.c.keys(), number) for number in numbers])
        row = {"version": 1, "started_at": int(time.time()), "segment": 0, "bin": 0}
        more = [row | {"model_id": number + 1, "predictions": number} for number in numbers]
        execute(insert(tables.traffic), more)


def _own(columns: list[str], number: int) -> dict[str, Any]:
    """Return the columns in which a copy differs."""
    job = f"{number:032}"
    if "name" in columns:
        return {"id": number + 1, "name": f"m{number}"}
    values = {"model_id": number + 1, "job_id": job, "id": job, "sequence": -number}
    return {name: value for name, value in values.items() if name in columns}


def measurements() -> Iterator[str]:
    """Yield a line for each number of models."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder), grpc_port=-1)
        registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
        registry.migrate()
        with TestClient(create_app(settings), base_url="http://localhost") as client:
            _make_model(client, registry)
            present = 1
            for count in COUNTS:
                _copy_model(registry, range(present, count))
                present = count
                for number in sorted({1, -(-count // 50)}):
                    page = f"/console/models?number={number}"
                    answer = client.get(page).raise_for_status()
                    assert f">all {count}<" in answer.text
                    seconds = best_of(lambda page=page: client.get(page), 5)  # type: ignore[misc]
                    size = len(gzip.compress(answer.content))
                    yield f"{count:,} models, page {number}: {size:,} bytes, {seconds:.3f} s"
        registry.close()


if __name__ == "__main__":
    for line in measurements():
        print(line)
