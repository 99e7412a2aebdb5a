"""A database that goes away: one clear error, no password in it, and going on when it is back."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from recalib.errors import InputError, UnavailableError
from recalib.registry import Registry
from tests.registry.fixtures import execute, start_postgresql

_postgresql = contextlib.contextmanager(start_postgresql)


def test_unreachable_database_is_unavailable() -> None:
    """One line that names the place, and not the password."""
    registry = Registry("postgresql://me:secret-word@127.0.0.1:1/db", "memory://")
    for use in (registry.check, registry.migrate):
        with pytest.raises(UnavailableError) as excinfo:
            use()
        assert "127.0.0.1" in str(excinfo.value)
        assert "secret-word" not in str(excinfo.value)
        assert "\n" not in str(excinfo.value)
    registry.close()


def test_unreadable_database_file_is_reported(tmp_path: Path) -> None:
    """A folder stands where SQLite's file should be."""
    registry = Registry(f"sqlite:///{tmp_path}", "memory://")
    with pytest.raises(UnavailableError, match="unable to open"):
        registry.check()
    registry.close()


@pytest.mark.parametrize(
    "url", ["no url; secret", "mysql://me:secret@host/db", "sqlite://", "sqlite:///:memory:"]
)
def test_urls_of_other_databases_are_refused(url: str) -> None:
    """At once, without repeating a password."""
    with pytest.raises(InputError, match="database_url") as excinfo:
        Registry(url, "memory://")
    assert "secret" not in str(excinfo.value)


def test_dropped_connection_is_replaced(postgresql_url: str, registry: Registry) -> None:
    """A pooled connection may be closed by its next use; callers do not notice."""
    with registry.reading() as tx:
        dialect = tx.connection.dialect.name
    if dialect == "postgresql":
        execute(
            postgresql_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'recalib'",
        )
    registry.check()


def test_dropped_connection_rolls_back_its_transaction(
    postgresql_url: str, registry: Registry
) -> None:
    """The caller may try the whole block again."""

    def interrupted() -> None:
        with registry.transaction() as tx:
            tx.models.create("m", None, 2, actor="anna")
            execute(
                postgresql_url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'recalib'",
            )
            tx.models.create("n", None, 2, actor="anna")

    with registry.reading() as tx:
        if tx.connection.dialect.name == "sqlite":
            pytest.skip("SQLite has no connection to lose")
    with pytest.raises(UnavailableError):
        interrupted()
    with registry.reading() as tx:
        assert tx.models.page(None, 9) == []


@pytest.mark.slow
def test_restarted_database_server_is_used_again() -> None:
    """Unavailable in between, as before afterwards."""
    with _postgresql() as server:
        registry = Registry(server.get_uri(), "memory://")
        registry.migrate()
        with registry.transaction() as tx:
            tx.models.create("m", None, 2, actor="anna")
        server.stop()
        with pytest.raises(UnavailableError), registry.transaction():
            pass
        with pytest.raises(UnavailableError):
            registry.check()
        server.ensure_postgres_running()
        with registry.reading() as tx:
            assert tx.models.get("m").classes == 2
        registry.close()


def test_connection_in_use_is_closed_on_return(registry: Registry) -> None:
    """A call that outlives its registry, on another thread, leaves no connection open."""
    with registry.reading() as tx:
        connection: Any = tx.connection.connection.dbapi_connection
        registry.close()
        assert tx.models.page(None, 1) == []
    with pytest.raises(Exception, match="closed"):
        connection.execute("SELECT 1")
    with registry.reading() as tx:  # as before, by another connection
        assert tx.models.page(None, 1) == []
