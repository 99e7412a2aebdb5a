"""Costs of rows, requests and labels, measured on this machine."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx2
import numpy as np
import psutil

import recalib
import recalib.scale
from benchmarks.capacity import new_registry, publish, served
from benchmarks.databases import Database, postgresql
from benchmarks.plan.client import closed_loop
from benchmarks.scale import write_files
from recalib.core.prediction_ids import Prediction
from training.monitoring_job import watch

CLASSES = 1_000
FILES = 8
#: Labels of a request.
BATCH = 1_000
_TASKS = ("evaluate", "apply", "fit temperature", "fit vector")
_DAY = 86_400.0
_JSON = {"Content-Type": "application/json"}
_CALIBRATE = "/v1/models/m/calibrate"


class RowCost(NamedTuple):
    """What a task takes for each row."""

    seconds: float
    bytes_read: float
    #: How often the task reads the data.
    passes: float


@dataclass(frozen=True)
class Costs:
    """Measured costs of a server: processor seconds and bytes."""

    #: One request of one row of ten classes, JSON, with an id.
    request: float
    request_bytes: float
    #: One label in a request of 1,000: on the server, in the database, and later in a worker.
    label_server: float
    label_database: float
    label_worker: float
    label_bytes: float


def row_costs(folder: Path, rows: int) -> dict[str, RowCost]:
    """Measure the tasks on Parquet files in this process; the start of a task is subtracted."""
    for name, sizes in (("all", [rows // FILES] * FILES), ("start", [rows // FILES])):
        (folder / name).mkdir()
        write_files(folder / name, sizes, CLASSES)
    file_bytes = sum(path.stat().st_size for path in (folder / "start").iterdir())
    logits = np.random.default_rng(0).normal(size=(2_000, CLASSES)).astype(np.float32)
    calibrator = recalib.fit(logits, np.arange(2_000) % CLASSES, "temperature")

    def act(task: str, name: str) -> None:
        if task == "evaluate":
            recalib.scale.evaluate(folder / name).finish()
        elif task == "apply":
            recalib.scale.apply(calibrator, folder / name, folder / f"{name}-output")
        else:
            recalib.scale.fit(folder / name, task.removeprefix("fit "))

    costs = {}
    for task in _TASKS:
        seconds, read = zip(*(_spent(act, task, name) for name in ("start", "all")), strict=True)
        extra = rows - rows // FILES
        per_row = max(seconds[1] - seconds[0], 1e-6) / extra
        bytes_read = (read[1] - read[0]) / extra
        costs[task] = RowCost(per_row, bytes_read, read[1] / (FILES * file_bytes))
    return costs


def _spent(act: Callable[[str, str], None], task: str, name: str) -> tuple[float, int]:
    process = psutil.Process()
    seconds, read = time.process_time(), process.io_counters().read_chars
    act(task, name)
    return time.process_time() - seconds, process.io_counters().read_chars - read


def server_costs(folder: Path, database: Database, *, requests: int, labels: int) -> Costs:
    """Measure requests and labels on a real server, and monitoring in this process."""
    body = json.dumps({"logits": np.linspace(0, 1, 10)[None].round(3).tolist()}).encode()
    with served(folder, database) as (client, process):
        url = str(client.base_url)
        asyncio.run(closed_loop(url, _CALIBRATE, body, requests))  # warms up
        before = _processor_seconds(process, database)
        asyncio.run(closed_loop(url, _CALIBRATE, body, requests))
        request = (_processor_seconds(process, database)[0] - before[0]) / requests
        ids = _ids(client, labels)
        batches = [
            json.dumps([{"prediction_id": id, "label": 1} for id in ids[at : at + BATCH]])
            for at in range(0, labels, BATCH)
        ]
        before = _processor_seconds(process, database)
        for batch in batches:
            client.post("/v1/models/m/labels", content=batch, headers=_JSON).raise_for_status()
        after = _processor_seconds(process, database)
    server, stored = ((new - old) / labels for new, old in zip(after, before, strict=True))
    return Costs(
        request=request,
        request_bytes=float(len(body)),
        label_server=server,
        label_database=stored,
        label_worker=_monitoring_seconds(folder, database),
        label_bytes=len(batches[0]) / BATCH,
    )


def _ids(client: httpx2.Client, count: int) -> list[str]:
    logits = np.random.default_rng(1).normal(size=(count, 10)).round(3)
    ids: list[str] = []
    for at in range(0, count, BATCH):
        body = json.dumps({"logits": logits[at : at + BATCH].tolist()})
        answer = client.post(_CALIBRATE, content=body, headers=_JSON)
        ids += answer.raise_for_status().json()["prediction_ids"]
    return ids


def _monitoring_seconds(folder: Path, database: Database, labels: int = 40_000) -> float:
    """Return the processor seconds of monitoring for each label, with those of the database."""
    rng = np.random.default_rng(2)
    with closing(new_registry(database, folder)) as registry:
        publish(registry, 10, "monitored", 1)
        with registry.reading() as tx:
            model = tx.models.get("monitored")
            now = tx.clock()
        times = now - 3 * _DAY + np.arange(labels)
        confidences = rng.uniform(0.5, 1, labels)
        rows = [
            (Prediction(model.id, 1, float(at), p, p, 1, rng.bytes(16)), int(rng.random() < p))
            for at, p in zip(times, confidences.tolist(), strict=True)
        ]
        for start in range(0, labels, BATCH):
            with registry.transaction() as tx:
                tx.labels.add(model, rows[start : start + BATCH])
        before = time.process_time() + database.spent()
        read = watch(registry, model)
        seconds = time.process_time() + database.spent() - before
    if not read:
        raise RuntimeError("monitoring read no labels")
    return seconds / labels


def _processor_seconds(process: psutil.Process, database: Database) -> tuple[float, float]:
    """Return the processor seconds of a server and of its database."""
    return float(sum(process.cpu_times()[:2])), database.spent()


@contextmanager
def system(folder: Path) -> Iterator[Database]:
    """Yield a PostgreSQL with a model `m` of ten classes and `large` of 1,000."""
    folder.mkdir()
    with postgresql() as database:
        with closing(new_registry(database, folder)) as registry:
            publish(registry, 10, "m", 1)
            publish(registry, CLASSES, "large", 1)
        yield database
