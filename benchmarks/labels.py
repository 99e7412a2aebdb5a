"""Processor time of labels by stage, for bodies of 1, 100 and 10,000 labels, on both databases.

`python -m benchmarks.labels [--labels 20000]`. Figures are microseconds of processor time of a
label, so other programs on the machine have little effect. The stages of a request are

- `parse` (JSON to labels) and `ids` (the codes of prediction ids are checked and decoded);
- `SQL`, the transaction in the server's process, and `database`, the same in PostgreSQL's;
- `other`, the model, the outcomes and their JSON;
- `HTTP`, what a served request costs beyond all of these.

`monitoring` is the worker's step over matured cohorts. `expiry` is the deletion of all labels, and
`vacuum` what PostgreSQL then does to use their space again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2
import msgspec
import numpy as np
import psutil

from benchmarks.capacity import publish, served
from benchmarks.databases import Database, postgresql, sqlite
from recalib.core.prediction_ids import BatchSummary, Prediction, SigningKey, mint, read_ids
from recalib.registry import Model, Registry
from service.labels.handlers import add_labels, counts_of
from service.labels.schemas import LateLabel
from tests.registry.fixtures import execute
from training.monitoring_job import watch

_BODIES = (1, 100, 10_000)
_MAX_LABELS = 10_000
#: Single labels take a transaction and a request each.
_MAX_SINGLE_LABELS = 2_000
_CLASSES = 10
_DAY = 86_400.0
_LIFETIME_SECONDS = 30 * _DAY
_decoder = msgspec.json.Decoder(list[LateLabel])
_encoder = msgspec.json.Encoder()


class Upkeep(NamedTuple):
    """Microseconds of a label after its request."""

    monitoring: float
    expiry: float
    vacuum: float


class Bench:
    """A model with a champion in a database, and prediction ids of it."""

    def __init__(self, folder: Path, database: Database) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.database = folder, database
        self.registry = Registry(database.url, (folder / "blobs").as_uri())
        self.registry.migrate()
        publish(self.registry, _CLASSES, "m", 1)
        with self.registry.transaction() as tx:
            self.model: Model = tx.models.get("m")
            self._key: SigningKey = tx.signing_keys.first()
            self.keys = tx.signing_keys.all()
        self._rng = np.random.default_rng(0)

    def bodies(self, size: int, count: int) -> list[bytes]:
        """Return JSON of `count` labels of predictions of a day whose cohorts have matured."""
        return [
            _encoder.encode([LateLabel(id, i % _CLASSES) for i, id in enumerate(self._ids(size))])
            for _ in range(0, count, size)
        ]

    def _ids(self, size: int) -> list[str]:
        confidences = self._rng.random(size).tolist()
        predicted = self._rng.integers(0, _CLASSES, size).tolist()
        rows = BatchSummary(confidences, confidences, predicted)
        made_at = time.time() - 3 * _DAY + _DAY * float(self._rng.random())
        return mint(self._key, self.model.id, 1, made_at, rows)

    def read(self, labels: Sequence[LateLabel]) -> list[Prediction]:
        ids = [label.prediction_id for label in labels]
        now, lifetime = time.time(), _LIFETIME_SECONDS
        read = read_ids(ids, self.keys, model=self.model.id, now=now, lifetime_seconds=lifetime)
        return [prediction for prediction in read if isinstance(prediction, Prediction)]

    def handle(self, bodies: list[bytes]) -> None:
        """Do what the server does with each body."""
        for body in bodies:
            outcomes = add_labels(
                self.registry,
                "m",
                _decoder.decode(body),
                max_labels=_MAX_LABELS,
                lifetime_seconds=_LIFETIME_SECONDS,
            )
            _encoder.encode({"counts": counts_of(outcomes), "items": outcomes})

    def write(self, batches: list[list[tuple[Prediction, int]]]) -> None:
        for batch in batches:
            with self.registry.transaction() as tx:
                tx.labels.add(self.model, batch)

    def purge(self) -> None:
        """Delete all labels in steps, as the server does."""
        while True:
            with self.registry.transaction() as tx:
                if tx.labels.purge(-2 * _DAY) == 0:
                    return

    def count(self) -> int:
        with self.registry.reading() as tx:
            return len(tx.labels.columns(self.model, 1, 0, 1e12).label)

    def spent(
        self, act: Callable[[], object], count: int, process: psutil.Process | None = None
    ) -> tuple[float, float]:
        """Return microseconds of a process, by default this, and of the database, by `count`."""
        process = process or psutil.Process()
        before, database_before = sum(process.cpu_times()[:2]), self.database.spent()
        act()
        process_seconds = sum(process.cpu_times()[:2]) - before
        return process_seconds / count * 1e6, (
            self.database.spent() - database_before
        ) / count * 1e6


def request_costs(bench: Bench, size: int, count: int) -> dict[str, float]:
    """Return microseconds of a label by stage, of `count` labels in bodies of `size`."""
    bodies = bench.bodies(size, count)
    batches: list[list[LateLabel]] = []
    parse, _ = bench.spent(lambda: batches.extend(map(_decoder.decode, bodies)), count)
    ids, _ = bench.spent(lambda: [bench.read(batch) for batch in batches], count)
    handler = sum(bench.spent(lambda: bench.handle(bodies), count))
    rows = [
        [(prediction, 1) for prediction in bench.read(_decoder.decode(body))]
        for body in bench.bodies(size, count)
    ]
    sql, database = bench.spent(lambda: bench.write(rows), count)
    fresh = bench.bodies(size, count)
    with served(bench.folder, bench.database) as (client, process):
        _send(client, bench.bodies(size, size))  # imports happen at first use
        request = sum(bench.spent(lambda: _send(client, fresh), count, process))
    return {
        "HTTP": request - handler,
        "parse": parse,
        "ids": ids,
        "other": handler - parse - ids - sql - database,
        "SQL": sql,
        "database": database,
        "all": request,
    }


def upkeep_costs(bench: Bench) -> Upkeep:
    """Assess all labels, then delete them."""
    count = bench.count()
    monitoring = sum(bench.spent(lambda: watch(bench.registry, bench.model), count))
    expiry = sum(bench.spent(bench.purge, count))
    vacuum = 0.0
    if bench.database.name == "postgresql":
        vacuum = bench.spent(lambda: execute(bench.database.url, "VACUUM labels"), count)[1]
    return Upkeep(monitoring, expiry, vacuum)


def _send(client: httpx2.Client, bodies: list[bytes]) -> None:
    for body in bodies:
        headers = {"Content-Type": "application/json"}
        client.post("/v1/models/m/labels", content=body, headers=headers).raise_for_status()


def _report(folder: Path, database: Database, count: int) -> None:
    bench = Bench(folder / database.name, database)
    for size in _BODIES:
        costs = request_costs(bench, size, count if size > 1 else min(count, _MAX_SINGLE_LABELS))
        stages = ", ".join(f"{name} {value:.1f}" for name, value in costs.items())
        rate = 1e6 / costs["all"]
        print(f"{database.name}, bodies of {size:,}: {stages}; {rate:,.0f} labels/s", flush=True)
    upkeep = upkeep_costs(bench)
    print(f"{database.name}: " + ", ".join(f"{k} {v:.2f}" for k, v in upkeep._asdict().items()))
    bench.registry.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labels", type=int, default=20_000, help="in bodies of more than one")
    count = parser.parse_args().labels
    with tempfile.TemporaryDirectory(prefix="recalib-labels-") as name:
        with sqlite(Path(name) / "sqlite") as database:
            _report(Path(name), database, count)
        with postgresql() as database:
            _report(Path(name), database, count)


if __name__ == "__main__":
    main()
