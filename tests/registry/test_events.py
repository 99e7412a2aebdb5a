"""Events: one for each change, in its transaction, and in an order that a reader can follow."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import text

from recalib.registry import Registry
from recalib.registry.job_kinds import MONITOR
from tests.registry.scenes import KIND, a_lease, a_model, a_version, claimed


def recorded(registry: Registry, **query: Any) -> list[tuple[str, str | None]]:
    with registry.reading() as tx:
        return [(event.type, event.model) for event in tx.events.page(100, **query)]


def test_jobs_versions_aliases_and_states_are_events(registry: Registry) -> None:
    model = a_model(registry)
    assert a_version(registry, model, promote="champion") == 1
    with registry.transaction() as tx:
        tx.monitors.record(model, 1, "stale", "monitor", "drift", {"ece": 0.25})
        tx.monitors.record(model, 2, "dropped", "anna", "no better")
        # Nothing changes, so there is no event.
        tx.aliases.set(model, "champion", 1, "anna", "again")
    with registry.reading() as tx:
        events = tx.events.page(100)
        assert tx.events.last() == 7
    assert [event.id for event in events] == list(range(1, 8))
    assert [event.type for event in events] == [
        "job.queued",
        "job.started",
        "calibrator.published",
        "alias.changed",
        "job.succeeded",
        "monitoring.state_changed",
        "candidate.dropped",
    ]
    assert [event.model for event in events] == [None, None, "resnet", "resnet", None] + 2 * [
        "resnet"
    ]
    published, changed, state = events[2].data, events[3].data, events[5].data
    assert (published["version"], published["map"]) == (1, "temperature")
    assert (changed["alias"], changed["version"], changed["from_version"]) == ("champion", 1, None)
    assert (state["state"], state["reason"], state["evidence"]) == ("stale", "drift", {"ece": 0.25})
    assert recorded(registry, models=["resnet"], types=["job", "alias"]) == [
        ("alias.changed", "resnet")
    ]
    assert recorded(registry, types=["alias.change"]) == []
    assert recorded(registry, after=5, newest_first=True) == [
        ("candidate.dropped", "resnet"),
        ("monitoring.state_changed", "resnet"),
    ]
    assert recorded(registry, before=2) == [("job.queued", None)]


def test_every_end_of_a_job_is_an_event(registry: Registry) -> None:
    with registry.transaction() as tx:
        cancelled = tx.jobs.enqueue(KIND, {})
        tx.jobs.cancel(cancelled.id)
        tx.jobs.cancel(cancelled.id)
    lease = a_lease(registry, max_attempts=2)
    with registry.transaction() as tx:
        tx.jobs.fail(lease, "no space", 0.0)
    lease = claimed(registry)
    with registry.transaction() as tx:
        tx.jobs.cancel(lease.job.id)
        tx.jobs.release(lease)
    a_lease(registry, lease_seconds=-1.0, max_attempts=1)
    with registry.transaction() as tx:
        assert tx.jobs.claim("other", [KIND], 60.0) is None
    with registry.reading() as tx:
        events = tx.events.page(100)
    assert [event.type.removeprefix("job.") for event in events] == [
        *("queued", "cancelled"),
        *("queued", "started", "requeued", "started", "cancelled"),
        *("queued", "started", "failed"),
    ]
    assert events[4].data["error"] == "no space"
    assert "vanished" in events[-1].data["error"]


def test_the_periodic_job_is_an_event_only_if_it_fails(registry: Registry) -> None:
    with registry.transaction() as tx:
        tx.jobs.enqueue(MONITOR, {}, unique=MONITOR)
        tx.jobs.enqueue(MONITOR, {}, unique=MONITOR)
    with registry.transaction() as tx:
        lease = tx.jobs.claim("w", [MONITOR], 60.0)
    assert lease is not None
    with registry.transaction() as tx:
        tx.jobs.fail(lease, "broken", None)
    assert recorded(registry) == [("job.failed", None)]


def test_a_change_that_is_rolled_back_has_no_event_and_no_gap(registry: Registry) -> None:
    def fail() -> None:
        with registry.transaction() as tx:
            tx.events.record("job.failed", None, {})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with registry.transaction() as tx:
        tx.events.record("job.failed", None, {})
    with registry.reading() as tx:
        assert [event.id for event in tx.events.page(10)] == [1]


def test_a_reader_that_follows_misses_no_event_of_concurrent_writers(registry: Registry) -> None:
    """The transaction that began first commits last, and its id is still the larger one."""
    has_begun, may_end = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with registry.transaction() as tx:
            tx.events.record("slow.writer", None, {})
            tx.models.create("slow", None, 2, "anna")
            has_begun.set()
            may_end.wait(10)

    slow = threading.Thread(target=write_slowly)
    slow.start()
    assert has_begun.wait(10)
    if "postgresql" in registry._engine.dialect.name:  # SQLite has one writer at a time
        with registry.transaction() as tx:
            tx.events.record("fast.writer", None, {})
        assert recorded(registry) == [("fast.writer", None)]
    may_end.set()
    slow.join()
    seen: list[int] = []
    ended = threading.Event()

    def follow() -> None:
        while True:
            is_last = ended.is_set()
            with registry.reading() as tx:
                events = tx.events.page(7, after=seen[-1] if seen else 0)
            seen.extend(event.id for event in events)
            if is_last and not events:
                return

    def write(number: int) -> None:
        for turn in range(20):
            with registry.transaction() as tx:
                tx.events.record("test.turn", None, {"turn": turn})
                if turn % 3 == number % 3:
                    tx.events.record("test.turn", None, {"turn": turn})

    reader = threading.Thread(target=follow)
    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    reader.join()
    with registry.reading() as tx:
        last = tx.events.last()
    assert seen == list(range(1, last + 1))
    assert last > 60


def test_old_events_are_purged_and_ids_are_never_used_again(registry: Registry) -> None:
    with registry.transaction() as tx:
        tx.events.record("test.old", None, {})
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE events SET at = at - 100"))
        assert tx.events.purge(200.0) == 0
        assert tx.events.purge(50.0) == 1
        tx.events.record("test.new", None, {})
    with registry.reading() as tx:
        assert [(event.id, event.type) for event in tx.events.page(10)] == [(2, "test.new")]


def test_gap_is_between_a_position_and_the_oldest_event(registry: Registry) -> None:
    with registry.transaction() as tx:
        assert [tx.events.gap(after) for after in (0, 1)] == [None, 1]
    for number in range(5):
        with registry.transaction() as tx:
            tx.events.record(f"test.turn_{number}", None, {})
    with registry.transaction() as tx:
        assert [tx.events.gap(after) for after in (0, 1, 5, 6)] == [None, None, None, 6]
        tx.connection.execute(text("UPDATE events SET at = at - 100 WHERE id <= 3"))
        tx.events.purge(50.0)
        assert [tx.events.gap(after) for after in (0, 1, 2, 3, 5)] == [None, 4, 4, None, None]
        tx.events.purge(-10.0)
        assert [tx.events.gap(after) for after in (0, 4, 5)] == [None, 6, None]
