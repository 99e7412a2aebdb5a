"""Databases for benchmarks: SQLite in a file, and a temporary PostgreSQL server."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import psycopg

from tests.registry.fixtures import execute, new_database, start_postgresql


class Database(NamedTuple):
    """A database without a schema."""

    name: str
    url: str
    #: Returns its size in bytes, without free space.
    size: Callable[[], int]
    #: Returns the processor seconds of the database.
    spent: Callable[[], float]


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[Database]:
    """Yield a SQLite database in `folder`; its processor time is that of its clients."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "recalib.db"

    def size() -> int:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("VACUUM")
        return path.stat().st_size

    yield Database("sqlite", f"sqlite:///{path}", size, lambda: 0.0)


@contextlib.contextmanager
def postgresql() -> Iterator[Database]:
    """Yield a PostgreSQL database in a new server with the default configuration."""
    with (
        contextlib.contextmanager(start_postgresql)() as server,
        contextlib.contextmanager(new_database)(server.get_uri(), "template1") as url,
    ):

        def size() -> int:
            execute(url, "VACUUM FULL")
            with psycopg.connect(url) as connection:
                row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            assert row is not None
            return int(row[0])

        yield Database("postgresql", url, size, lambda: _processor_seconds(server))


def _processor_seconds(server: Any) -> float:
    """Return processor seconds, including ended processes, which their parent accounts for."""
    parent = psutil.Process(server.get_pid())
    seconds = sum(parent.cpu_times()[:4])
    for child in parent.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(child.cpu_times()[:2])
    return float(seconds)
