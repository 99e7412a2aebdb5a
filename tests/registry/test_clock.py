"""Time is the database's: the process' clock reaches no statement."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import Dialect, select, update
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from recalib.registry import Registry, tables
from recalib.registry.clock import now
from tests.registry.scenes import KIND, a_lease


@pytest.mark.parametrize(
    ("dialect", "function"),
    [(SQLiteDialect(), "julianday('now')"), (PGDialect(), "statement_timestamp()")],  # type: ignore[no-untyped-call]
)
def test_now_is_computed_by_the_database(dialect: Dialect, function: str) -> None:
    """No value of ours is bound into it."""
    compiled = select(now()).compile(dialect=dialect)
    assert function in str(compiled)
    assert compiled.params == {}


def test_now_is_seconds_since_the_epoch(registry: Registry) -> None:
    """Here both clocks are the same machine's; a minute is room for a slow one."""
    with registry.reading() as tx:
        value = tx.connection.scalar(select(now()))
    assert value == pytest.approx(time.time(), abs=60)


def test_wrong_clock_of_a_worker_changes_no_lease(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker a day ahead does not find every lease expired, nor grant one of a day."""
    lease = a_lease(registry)
    ahead = time.time() + 86400
    monkeypatch.setattr(time, "time", lambda: ahead)
    with registry.transaction() as tx:
        assert tx.jobs.claim("ahead", [KIND], 60) is None
        tx.jobs.heartbeat(lease, lease_seconds=-1)
    monkeypatch.undo()
    with registry.transaction() as tx:
        assert tx.jobs.claim("right", [KIND], 60) is not None


def test_jobs_from_the_future_are_claimed_now(registry: Registry) -> None:
    """The database's clock was set back by an hour: nothing waits until it is as late again."""
    with registry.transaction() as tx:
        tx.jobs.enqueue(KIND, {})
        tx.jobs.enqueue(KIND, {}, run_after_seconds=5)
        table = tables.jobs
        later = {name: table.c[name] + 3600 for name in ("created_at", "run_after")}
        tx.connection.execute(update(table).values(**later))
        tx.jobs.enqueue(KIND, {}, run_after_seconds=5)
    with registry.transaction() as tx:
        claimed = [tx.jobs.claim("w", [KIND], 60) for _ in range(3)]
    assert [lease is None for lease in claimed] == [False, False, True]
