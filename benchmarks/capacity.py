"""Capacity planning: disk, memory and processor time for models, requests and labels.

`python -m benchmarks.capacity [--json FILE]` takes some minutes of one core. It uses SQLite in a
temporary folder, and repeats the database part on a PostgreSQL server that it starts. Times are
processor times, so other programs on the machine have little effect. Those of a server exclude its
client and include PostgreSQL's processes. docs/operations.md uses the results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx2
import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.databases import Database, postgresql, sqlite
from recalib.core.prediction_ids import Prediction
from recalib.fitting import fit
from recalib.registry import MAX_SEGMENTS, Model, Registry, TrafficCount
from recalib.registry.backup import backup
from recalib.registry.restore import restore
from recalib.settings import Settings

_LABELS, _BINS = 100_000, 15
_BATCH = 1_000
_MODELS = 300
_REQUESTS = 1_000
_IDLE_SECONDS = 15.0
#: Rows and classes of fits: the map, and whether it is linear in its parameters.
_FITS = [
    ("temperature", 10_000, 10),
    ("temperature", 10_000, 1_000),
    ("temperature", 100_000, 100),
    ("vector", 10_000, 100),
    ("matrix", 10_000, 10),
]


def measured(folder: Path) -> dict[str, float]:
    """Return all figures by name; each name ends in its unit."""
    with sqlite(folder / "labels") as database, sqlite(folder / "other") as other:
        figures = _of_labels(folder, database, other)
    for segments in (0, MAX_SEGMENTS):
        with sqlite(folder / f"traffic{segments}") as database:
            figures |= traffic_day(folder, database, segments)
    figures |= _of_fits()
    with sqlite(folder / "server") as database:
        figures |= _of_server(folder, database)
    with postgresql() as database, postgresql() as other:
        postgresql_figures = _of_labels(folder, database, other)
    with postgresql() as database:
        postgresql_figures |= _of_server(folder, database)
    return figures | {f"postgresql_{name}": value for name, value in postgresql_figures.items()}


def _of_labels(
    folder: Path, database: Database, other: Database, count: int = _LABELS
) -> dict[str, float]:
    """Measure adding labels in batches of 1,000, and their backup and restore."""
    registry = new_registry(database, folder)
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 10, "anna")
    before = database.size()
    rng = np.random.default_rng(0)
    batches = [
        [(_prediction(model, start + i, rng), i % 10) for i in range(_BATCH)]
        for start in range(0, count, _BATCH)
    ]
    seconds = _processor(database, lambda: [_add(registry, model, batch) for batch in batches])
    growth = database.size() - before
    to = folder / f"{database.name}.zip"
    saving = _processor(database, lambda: backup(registry, to))
    restored = new_registry(other, folder / f"{database.name}-restored")
    bringing_back = _processor(other, lambda: restore(restored, to))
    registry.close()
    restored.close()
    return {
        "label_bytes": growth / count,
        "label_microseconds": seconds / count * 1e6,
        "backup_label_bytes": to.stat().st_size / count,
        "backup_million_labels_seconds": saving / count * 1e6,
        "restore_million_labels_seconds": bringing_back / count * 1e6,
    }


def traffic_day(
    folder: Path, database: Database, segments: int, predictions: int = 10**9
) -> dict[str, float]:
    """Measure the traffic counts of a day, before and after they are merged by the hour."""
    registry = new_registry(database, folder)
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 10, "anna")
    before = database.size()
    seconds = Settings.model_fields["bucket_seconds"].default
    shape = 86_400 // seconds, segments + 1, _BINS
    cells = math.prod(shape)
    counts = np.random.default_rng(0).multinomial(predictions, np.full(cells, 1 / cells))
    rows = [
        TrafficCount(model.id, 1, bucket * seconds, segment, bin, count, count, count / 1.1)
        for (bucket, segment, bin), count in zip(np.ndindex(shape), counts.tolist(), strict=True)
    ]
    for start in range(0, cells, 50_000):
        with registry.transaction() as tx:
            tx.traffic.add(rows[start : start + 50_000])
    growth = database.size() - before
    with registry.transaction() as tx:
        tx.traffic.compact(model, {None: 86_400.0}, 3_600)
    with registry.reading() as tx:
        merged = tx.traffic.between(model, 1, 0, 1e11)
    registry.close()
    assert sum(row.predictions for row in merged) == predictions
    name = f"traffic_day_{segments}_segments"
    return {
        f"{name}_megabytes": growth / 1e6,
        f"{name}_rows": cells,
        f"{name}_merged_rows": len(merged),
    }


def _prediction(model: Model, number: int, rng: np.random.Generator) -> Prediction:
    confidence = float(rng.random())
    return Prediction(model.id, 1, 1e9 + number, confidence, confidence, 1, rng.bytes(16))


def _add(registry: Registry, model: Model, batch: list[tuple[Prediction, int]]) -> None:
    with registry.transaction() as tx:
        tx.labels.add(model, batch)


def _of_fits() -> dict[str, float]:
    figures = {}
    for name, rows, classes in _FITS:
        logits, labels = _sample(rows, classes)
        fit(logits[:500], labels[:500], map=name)  # imports happen at first use
        started = time.process_time()
        fitted = fit(logits, labels, map=name)
        figures[f"fit_{name}_{rows}x{classes}_seconds"] = time.process_time() - started
        size = len(fitted.to_bytes()) + len(json.dumps(fitted.card.to_dict()))
        figures[f"calibrator_{name}_{classes}_bytes"] = float(size)
    return figures


def _of_server(folder: Path, database: Database, models: int = _MODELS) -> dict[str, float]:
    """Measure memory and processor time of a server: loaded calibrators, requests, labels."""
    registry = new_registry(database, folder)
    for classes, name, count in ((10, "m", models), (1_000, "large", 1)):
        publish(registry, classes, name, count)
    registry.close()
    with served(folder, database) as (client, process):
        _ask(client, "m0", 1, 10, 200)
        before = process.memory_info().rss
        for number in range(1, models):
            _ask(client, f"m{number}", 1, 10, 1)
        growth = process.memory_info().rss - before
        figures = {
            "server_megabytes": before / 1e6,
            "loaded_calibrator_kilobytes": growth / (models - 1) / 1e3,
        }
        figures["idle_processor_share"] = idle = _idle(process, database)
        for rows, classes, model in ((1, 10, "m0"), (32, 10, "m0"), (32, 1_000, "large")):
            count = _REQUESTS // (4 if classes > 10 else 1)
            spending = _Spending(process, database, idle)
            ids = _ask(client, model, rows, classes, count)
            used_seconds = spending.seconds()
            figures[f"request_{rows}x{classes}_milliseconds"] = used_seconds / count * 1e3
            figures[f"requests_{rows}x{classes}_per_core_second"] = count / used_seconds
            if (rows, classes) == (32, 10):
                spending = _Spending(process, database, idle)
                _label(client, ids)
                figures["labels_per_core_second"] = len(ids) / spending.seconds()
    return figures


class _Spending:
    """Processor time of a process and its database for requests, without that of an idle server."""

    def __init__(self, process: psutil.Process, database: Database, idle: float) -> None:
        self._process, self._database, self._idle = process, database, idle
        self._began, self._seconds_before = (
            time.perf_counter(),
            _processor_seconds(process, database),
        )

    def seconds(self) -> float:
        """Return the processor seconds since the construction."""
        anyway = self._idle * (time.perf_counter() - self._began)
        return max(
            _processor_seconds(self._process, self._database) - self._seconds_before - anyway, 1e-3
        )


def _idle(process: psutil.Process, database: Database) -> float:
    """Return the processor share of an idle server."""
    before = _processor_seconds(process, database)
    time.sleep(_IDLE_SECONDS)
    return (_processor_seconds(process, database) - before) / _IDLE_SECONDS


def _processor_seconds(process: psutil.Process, database: Database) -> float:
    return float(sum(process.cpu_times()[:2])) + database.spent()


def _label(client: httpx2.Client, ids: list[str]) -> None:
    """Send labels, 1,000 per request."""
    for at in range(0, len(ids), _BATCH):
        body = [{"prediction_id": id, "label": 1} for id in ids[at : at + _BATCH]]
        client.post("/v1/models/m0/labels", json=body).raise_for_status()


def publish(registry: Registry, classes: int, name: str, count: int) -> None:
    """Publish champions of `count` models; their names are numbered if there are several."""
    fitted = fit(*_sample(500, classes))
    card, content = fitted.card.to_dict(), fitted.to_bytes()
    for number in range(count):
        with registry.transaction() as tx:
            called = name if count == 1 else f"{name}{number}"
            model = tx.models.create(called, None, classes, actor="benchmark")
            tx.jobs.enqueue("fit", {}, model=model)
            lease = tx.jobs.claim("benchmark", ["fit"], 3600)
            assert lease is not None
            tx.calibrators.publish(lease, model, None, card, content, "champion", "benchmark")
            tx.jobs.succeed(lease, {})


@contextlib.contextmanager
def served(
    folder: Path,
    database: Database,
    settings: Mapping[str, str] | None = None,
    job_workers: int = 0,
) -> Iterator[tuple[httpx2.Client, psutil.Process]]:
    """Run `recalib serve` while the context lasts; yield a client and the process.

    Parameters
    ----------
    settings: further environment variables.
    """
    options = ["--port", "0", "--grpc-port", "-1", "--home", str(folder)]
    options += ["--job-workers", str(job_workers)]
    command = [sys.executable, "-m", "recalib", "serve", "--json", *options]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RECALIB_")}
    environment |= {"RECALIB_DATABASE_URL": database.url, **(settings or {})}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        base = json.loads(process.stdout.readline())["url"]
        try:
            with httpx2.Client(base_url=base, timeout=120) as client:
                while not _is_ready(client):
                    time.sleep(0.2)
                yield client, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


def _is_ready(client: httpx2.Client) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return client.get("/readyz").is_success
    return False


def _ask(client: httpx2.Client, model: str, rows: int, classes: int, count: int) -> list[str]:
    """Calibrate the same rows repeatedly; return the ids of all predictions."""
    body = json.dumps({"logits": _sample(rows, classes)[0].round(3).tolist()})
    headers, ids = {"Content-Type": "application/json"}, []
    for _ in range(count):
        answer = client.post(f"/v1/models/{model}/calibrate", content=body, headers=headers)
        answer.raise_for_status()
        ids += answer.json()["prediction_ids"]
    return ids


def _sample(rows: int, classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows)
    logits = rng.normal(size=(rows, classes)).astype(np.float32)
    logits[np.arange(rows), labels] += 3
    return logits * 2, labels


def _processor(database: Database, act: Callable[[], object]) -> float:
    """Return the processor seconds of `act` in this process and in its database."""
    started = time.process_time() + database.spent()
    act()
    return time.process_time() + database.spent() - started


def new_registry(database: Database, folder: Path) -> Registry:
    """Return a registry with the present schema, and its blobs in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    registry = Registry(database.url, (folder / "blobs").as_uri())
    registry.migrate()
    return registry


def main() -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recalib-capacity-") as name:
        figures = measured(Path(name))
    for figure, value in figures.items():
        print(f"{figure:40} {value:12,.3f}")
    if args.json is not None:
        args.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
