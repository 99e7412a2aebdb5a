"""Workers as separate processes: killed during a fit, sharing a queue."""

from __future__ import annotations

from collections import Counter

import numpy as np
import psutil
import pytest

from tests.end_to_end.programs import Programs, Server, paused, until
from tests.fitting.conftest import draw

pytestmark = pytest.mark.slow
#: Leases on SQLite: `tests/training/test_processes.py`.
on_postgresql = pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)

#: A fit of this many rows takes seconds with its imports, long enough to be killed.
_ROWS, _CLASSES = 3_000, 100
#: A busy machine must be able to send a heartbeat within a third of this.
_LEASE_SECONDS = 3


@on_postgresql
def test_fit_of_a_killed_worker_is_finished_by_another(
    programs: Programs, empty_database_url: str
) -> None:
    """The lease expires, the second attempt publishes, and one version exists."""
    settings = {"database_url": empty_database_url}
    with programs.serve("--job-workers", 0, **settings) as server:
        job = _long_fit(server)
        first = programs.worker(lease_seconds=_LEASE_SECONDS, **settings)
        _kill_in_the_middle(server, psutil.Process(first.pid), job)
        first.wait()
        programs.worker(**settings)
        _published_once(server, job)


def test_killed_embedded_worker_is_replaced(programs: Programs) -> None:
    """The server starts another worker, which finishes the job."""
    with programs.serve(lease_seconds=_LEASE_SECONDS) as server:
        job = _long_fit(server)
        (worker,) = until(lambda: server.children("worker"), "the embedded worker")
        _kill_in_the_middle(server, worker, job)
        _published_once(server, job)
        (other,) = server.children("worker")
        assert other.pid != worker.pid


@on_postgresql
def test_two_workers_share_a_queue(programs: Programs, empty_database_url: str) -> None:
    """Each job runs once, versions have no gaps, and both workers take jobs."""
    settings = {"database_url": empty_database_url}
    models = ("one", "two", "three")
    with programs.serve("--job-workers", 0, **settings) as server:
        for model in models:
            server.model(model)
            server.upload(*draw(400, 4, 2.0), model)
        workers = [programs.worker(**settings) for _ in range(2)]
        for worker in workers:
            until(lambda w=worker: "is ready" in programs.log_of(w), "a worker")  # type: ignore[misc]
        jobs = [server.ask_fit(model) for _ in range(4) for model in models]
        finished = [server.finished(job) for job in jobs]
        assert {job["attempts"] for job in finished} == {1}
        for model in models:
            mine = [job for job in finished if job["model"] == model]
            versions = server.versions(model)
            assert [version["version"] for version in versions] == [1, 2, 3, 4]
            assert {entry["job"] for entry in versions} == {entry["id"] for entry in mine}
            assert {version["job"]: version["version"] for version in versions} == {
                job["id"]: job["result"]["version"] for job in mine
            }
    done = Counter(worker.pid for worker in workers for _ in _done_by(programs.log_of(worker)))
    assert sum(done.values()) == len(jobs)
    assert len(done) == 2


def _long_fit(server: Server) -> str:
    logits, labels = draw(_ROWS, _CLASSES, 3.0)
    server.model(classes=_CLASSES)
    server.upload(logits.astype(np.float32), labels)
    return server.ask_fit(map="class_temperature", promote=True)


def _kill_in_the_middle(server: Server, worker: psutil.Process, job: str) -> None:
    until(lambda: server.job(job)["state"] == "running", "the fit to begin")
    with paused(worker):
        # The paused process does not change state until it is killed.
        assert server.job(job)["state"] == "running"
        worker.kill()


def _published_once(server: Server, job: str) -> None:
    job_record = server.finished(job)
    assert job_record["attempts"] == 2
    assert [version["job"] for version in server.versions()] == [job]
    assert server.calibrate(np.zeros((1, _CLASSES)))["calibrator"]["version"] == 1


def _done_by(log: str) -> list[str]:
    return [line for line in log.splitlines() if "is done." in line]
