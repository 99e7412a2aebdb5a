"""Short ways to the states that several tests begin with."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import select

from recalib.registry import Lease, Model, Registry, Transaction
from recalib.registry.tables import METADATA

KIND = "fit"


def a_model(registry: Registry, name: str = "resnet") -> Model:
    """Create a model of two classes with a dataset named `validation`."""
    with registry.transaction() as tx:
        model = tx.models.create(name, None, 2, actor="anna")
        tx.datasets.create(model, "validation", "0" * 64, 5, 2, 99, "text/csv", "logits", {})
    return model


def a_lease(registry: Registry, *, lease_seconds: float = 60.0, max_attempts: int = 3) -> Lease:
    """Enqueue a job and claim it; with negative seconds, the lease has run out already."""
    with registry.transaction() as tx:
        tx.jobs.enqueue(KIND, {}, max_attempts=max_attempts)
    return claimed(registry, lease_seconds=lease_seconds)


def claimed(registry: Registry, worker: str = "w", *, lease_seconds: float = 60.0) -> Lease:
    """Claim the next job, which must be there."""
    with registry.transaction() as tx:
        lease = tx.jobs.claim(worker, [KIND], lease_seconds)
    assert lease is not None
    return lease


def a_version(registry: Registry, model: Model, *, promote: str | None = None) -> int:
    """Publish the next version of the model's calibrator."""
    lease = a_lease(registry)
    with registry.transaction() as tx:
        version = tx.calibrators.publish(
            lease, model, "validation", {"map": "temperature"}, b"numbers", promote, "better"
        )
        tx.jobs.succeed(lease, {"version": version})
    return version


def labels_between(
    tx: Transaction, model: Model, version: int, start: float, end: float
) -> list[Any]:
    """Return the rows of labels of predictions from `start` until before `end`, by time."""
    table = METADATA.tables["labels"]
    of_version = (table.c.model_id == model.id, table.c.version == version)
    between = (table.c.predicted_at >= start, table.c.predicted_at < end)
    statement = select(table).where(*of_version, *between)
    return list(tx.connection.execute(statement.order_by(table.c.predicted_at, table.c.digest)))


def all_rows(registry: Registry) -> dict[str, list[Any]]:
    """Return the rows of every table, as this version reads them."""
    with registry.reading() as tx:
        return {
            name: list(tx.connection.execute(select(table).order_by(*table.primary_key.columns)))
            for name, table in METADATA.tables.items()
        }


def damage_table(path: Path, table: str) -> None:
    """Write noise over the first page of a table in a SQLite file that is not open."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(query, (table,)).fetchone()
    with path.open("rb+") as file:
        file.seek((page - 1) * size)
        file.write(random.Random(0).randbytes(size))
