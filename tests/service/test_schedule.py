"""The schedule of monitor jobs: periodic, and never two at a time."""

from __future__ import annotations

import threading

import pytest

from recalib.registry import Registry
from recalib.registry.job_kinds import MONITOR
from service.monitoring.schedule import ask_to_watch
from tests.end_to_end.programs import until
from tests.service.conftest import Service
from training import monitoring_job
from training.main import HANDLERS
from training.worker import Worker

pytestmark = pytest.mark.sqlite_only


def test_one_monitor_job_is_queued_at_a_time(registry: Registry) -> None:
    """The next job is queued only after the previous one has ended."""
    assert [ask_to_watch(registry, 0.0) for _ in range(3)] == [True, False, False]
    assert Worker(registry, HANDLERS, name="test").work_once(threading.Event())
    assert ask_to_watch(registry, 3_600.0)
    assert not Worker(registry, HANDLERS, name="test").work_once(threading.Event())
    with registry.reading() as tx:
        jobs = tx.jobs.page(None, None, None, 10)
    assert [(job.kind, job.state) for job in jobs] == [(MONITOR, "queued"), (MONITOR, "succeeded")]


def test_shards_are_monitored_side_by_side(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model in one job, also after the number of shards has changed."""
    names = ["a", "b", "c"]
    with registry.transaction() as tx:
        for name in names:
            tx.models.create(name, None, 4, "anna")
    watched: list[str] = []
    monkeypatch.setattr(monitoring_job, "watch", lambda _, model, links: watched.append(model.name))
    monkeypatch.setattr(monitoring_job, "compare", lambda *_: None)
    worker = Worker(registry, HANDLERS, name="test")
    for shards in (2, 3):
        assert [ask_to_watch(registry, 0.0, shards) for _ in range(2)] == [True, False]
        jobs = 0
        while worker.work_once(threading.Event()):
            jobs += 1
        assert (jobs, sorted(watched)) == (shards, names)
        watched.clear()


@pytest.mark.slow
def test_server_schedules_monitor_jobs(service: Service) -> None:
    """The first job is queued within seconds of the start."""

    def is_queued() -> bool:
        with service.registry.reading() as tx:
            return tx.jobs.is_waiting(MONITOR)

    until(is_queued, "a monitor job")
