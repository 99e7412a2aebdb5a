"""A SQLite database that another process has locked: writers fail soon, and readers go on."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recalib.errors import UnavailableError
from recalib.registry import Registry, sqlite_writers

_LOCK_SECONDS = 0.4


@pytest.fixture
def other(sqlite_registry: Registry, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of another program."""
    connection = sqlite3.connect(tmp_path / "here.db", isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writers, "_LOCK_SECONDS", _LOCK_SECONDS)
    monkeypatch.setattr(sqlite_writers, "_NEXT_LOCK_SECONDS", 0.01)


def _write(registry: Registry, name: str) -> bool:
    """Create a model; returns whether that was possible."""
    try:
        with registry.transaction() as tx:
            tx.models.create(name, None, 2, "anna")
    except UnavailableError as error:
        return "locked" not in str(error)
    return True


def test_all_writers_fail_with_the_first(
    sqlite_registry: Registry, other: sqlite3.Connection
) -> None:
    """Twenty threads wait no longer than one, and later ones hardly at all."""
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    with ThreadPoolExecutor(20) as threads:
        names = [f"model-{number}" for number in range(60)]
        assert not any(threads.map(lambda name: _write(sqlite_registry, name), names))
    # One after another, the first twenty alone would take eight seconds.
    assert _LOCK_SECONDS <= time.monotonic() - begun < 18 * _LOCK_SECONDS
    with sqlite_registry.reading() as tx:
        assert tx.models.page(None, 9) == []
    other.execute("ROLLBACK")
    assert _write(sqlite_registry, "model")
    with sqlite_registry.reading() as tx:
        assert [model.name for model in tx.models.page(None, 9)] == ["model"]


def test_short_lock_is_waited_for(
    tmp_path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writers, "_LOCK_SECONDS", 60.0)
    registry = Registry(f"sqlite:///{tmp_path / 'here.db'}", "memory://")
    other.execute("BEGIN IMMEDIATE")
    with contextlib.closing(registry), ThreadPoolExecutor(4) as threads:
        writes = [threads.submit(_write, registry, f"model-{n}") for n in range(4)]
        time.sleep(0.1)
        other.execute("ROLLBACK")
        assert all(write.result() for write in writes)


def test_writers_of_a_process_take_turns(sqlite_registry: Registry) -> None:
    """None fails, however many there are."""
    with ThreadPoolExecutor(20) as threads:
        names = [f"model-{number}" for number in range(100)]
        assert all(threads.map(lambda name: _write(sqlite_registry, name), names))


def test_error_inside_a_transaction_frees_the_turn(sqlite_registry: Registry) -> None:
    with pytest.raises(RuntimeError), sqlite_registry.transaction():
        raise RuntimeError
    assert _write(sqlite_registry, "model")
