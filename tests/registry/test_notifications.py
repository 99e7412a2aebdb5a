"""Notifications of changed aliases: PostgreSQL sends them at the commit, SQLite has none."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from recalib.errors import UnavailableError
from recalib.registry import Registry
from tests.registry.fixtures import execute

_TIMEOUT_SECONDS = 60.0
_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
)


async def _follow(registry: Registry) -> list[str]:
    """Change an alias after the first notification; return what is known at each."""
    known: list[str] = []
    async with aclosing(registry.alias_changes()) as changes:
        async for _ in changes:
            with registry.reading() as tx:
                known.append(str(tx.aliases.revision()))
            if len(known) == 2:
                return known
            with registry.transaction() as tx:
                tx.aliases.bury("m")
    return known


def test_changed_aliases_are_notified(registry: Registry, database_url: str) -> None:
    known = asyncio.run(asyncio.wait_for(_follow(registry), _TIMEOUT_SECONDS))
    assert known == ([] if database_url.startswith("sqlite") else ["0", "1"])


def test_broken_connection_ends_the_notifications(registry: Registry, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite has no notifications")

    async def follow() -> None:
        async with aclosing(registry.alias_changes()) as changes:
            async for _ in changes:
                await asyncio.to_thread(execute, database_url, _END)

    with pytest.raises(UnavailableError, match="notifications"):
        asyncio.run(asyncio.wait_for(follow(), _TIMEOUT_SECONDS))
