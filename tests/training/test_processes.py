"""Worker processes: sharing a queue, killed, paused, stopped and orphaned.

Tests wait for conditions instead of fixed times, so that they pass on slow machines. Tests of
signals and of the handler run on SQLite alone; of claims and leases, on both databases.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from recalib.registry import Job, Model, Registry
from tests.end_to_end.programs import PATIENCE_SECONDS, until
from tests.registry.scenes import a_model

pytestmark = pytest.mark.slow

#: Short enough to wait for, long enough for a busy machine to send a heartbeat in a third of it.
_SHORT_LEASE = 1.5


@dataclass
class Stage:
    """A registry, the files that steer its jobs, and the workers on it."""

    registry: Registry
    model: Model
    urls: list[str]
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def enqueue(self, kind: str = "publish", *, waits: bool = False, max_attempts: int = 3) -> Job:
        """Add a job; with `waits`, its handler continues after `go()`."""
        payload = {"model": self.model.name, "began": str(self.folder / "began")}
        if waits:
            payload["go"] = str(self.folder / "go")
        with self.registry.transaction() as tx:
            return tx.jobs.enqueue(kind, payload, model=self.model, max_attempts=max_attempts)

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker process."""
        command = [sys.executable, "-m", "tests.training.worker_process", *self.urls, *options]
        log = (self.folder / f"log{len(self.workers)}").open("wb")
        with log:
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)
        self.workers.append(worker)
        return worker

    def log_of(self, worker: subprocess.Popen[bytes]) -> str:
        """Return what the worker has logged so far."""
        return (self.folder / f"log{self.workers.index(worker)}").read_text()

    def began(self) -> list[list[str]]:
        """Return job id and process id of every started attempt."""
        path = self.folder / "began"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def go(self) -> None:
        """Release the waiting handlers."""
        (self.folder / "go").touch()

    def job(self, job: Job) -> Job:
        """Return the current state of the job."""
        with self.registry.reading() as tx:
            return tx.jobs.get(job.id)

    def published(self) -> list[str]:
        """Return the job of every version, in order."""
        with self.registry.reading() as tx:
            versions = tx.calibrators.page(self.model, None, 1000)
        assert [version.version for version in versions] == list(range(1, len(versions) + 1))
        return [version.job_id for version in versions]


@pytest.fixture
def stage(registry: Registry, database_url: str, blob_url: str, tmp_path: Path) -> Iterator[Stage]:
    """An empty queue; its workers are gone when the test is over."""
    stage = Stage(registry, a_model(registry), [database_url, blob_url], tmp_path)
    yield stage
    for worker in stage.workers:
        worker.kill()
        worker.communicate()


def test_two_workers_do_thirty_jobs_once_each(stage: Stage) -> None:
    """Every job succeeds at its first attempt and publishes one version."""
    jobs = [stage.enqueue() for _ in range(30)]
    for _ in range(2):
        stage.worker()
    until(lambda: all(stage.job(job).state == "succeeded" for job in jobs), "the end of the jobs")
    assert Counter(job_id for job_id, _ in stage.began()) == {job.id: 1 for job in jobs}
    assert sorted(stage.published()) == sorted(job.id for job in jobs)
    assert {stage.job(job).attempts for job in jobs} == {1}


def test_a_killed_workers_job_is_finished_by_another_once(stage: Stage) -> None:
    """kill -9 in the middle: the lease runs out, the next attempt publishes."""
    job = stage.enqueue(waits=True)
    killed = stage.worker("--lease-seconds", str(_SHORT_LEASE))
    until(lambda: len(stage.began()) == 1, "the jobs to begin")
    killed.kill()
    killed.wait()
    stage.go()
    stage.worker()
    until(lambda: stage.job(job).state == "succeeded", "the end of the job")
    assert stage.published() == [job.id]
    assert stage.job(job).attempts == 2


def test_workers_killed_at_any_moment_publish_each_job_once(stage: Stage) -> None:
    """Workers that are killed at random moments still finish the queue."""
    jobs = [stage.enqueue(max_attempts=100) for _ in range(30)]
    for round_ in range(4):
        worker = stage.worker("--lease-seconds", "0.2")
        # The number of finished jobs differs each time; the position in the next job is random.
        until(lambda after=3 + 5 * round_: len(stage.published()) >= after, "publications")  # type: ignore[misc]
        worker.kill()
    stage.worker()
    until(lambda: all(stage.job(job).state == "succeeded" for job in jobs), "the end of the jobs")
    assert sorted(stage.published()) == sorted(job.id for job in jobs)


@pytest.mark.parametrize("kind", ["publish", "publish_deaf"])
def test_a_worker_paused_past_its_lease_publishes_nothing(stage: Stage, kind: str) -> None:
    """A worker that is resumed after another finished its job publishes nothing.

    It then continues with other jobs. The same holds for a handler that never checks its lease.
    """
    job = stage.enqueue(kind, waits=True)
    paused = stage.worker("--lease-seconds", str(_SHORT_LEASE))
    until(lambda: len(stage.began()) == 1, "the jobs to begin")
    paused.send_signal(signal.SIGSTOP)
    other = stage.worker()
    until(lambda: len(stage.began()) == 2, "the jobs to begin")
    stage.go()
    until(lambda: stage.job(job).state == "succeeded", "the end of the job")
    other.terminate()
    assert other.wait(PATIENCE_SECONDS) == 0
    paused.send_signal(signal.SIGCONT)
    until(lambda: "job_lost" in stage.log_of(paused), "the loss in the log")
    assert stage.published() == [job.id]
    assert stage.job(job).worker == str(other.pid)

    another = stage.enqueue()
    until(lambda: stage.job(another).state == "succeeded", "the end of the job")
    assert stage.job(another).worker == str(paused.pid)


@pytest.mark.sqlite_only
def test_a_job_that_kills_its_workers_ends_failed(stage: Stage) -> None:
    """The job fails after its last attempt; later jobs run."""
    poison, harmless = stage.enqueue("die", max_attempts=2), stage.enqueue()
    for attempt in (1, 2):
        stage.worker("--lease-seconds", "0.2").wait(PATIENCE_SECONDS)
        until(lambda attempt=attempt: stage.job(poison).attempts == attempt, "the next attempt")  # type: ignore[misc]
    stage.worker()
    until(lambda: stage.job(harmless).state == "succeeded", "the end of the job")
    until(lambda: stage.job(poison).state == "failed", "the end of the job")
    assert "no attempts left" in (stage.job(poison).error or "")
    assert len(stage.began()) == 3


@pytest.mark.sqlite_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_worker_returns_its_job_to_the_queue(
    stage: Stage, number: signal.Signals
) -> None:
    """It exits with 0, and the attempt does not count."""
    job = stage.enqueue(waits=True)
    worker = stage.worker()
    until(lambda: len(stage.began()) == 1, "the jobs to begin")
    worker.send_signal(number)
    assert worker.wait(PATIENCE_SECONDS) == 0
    assert (stage.job(job).state, stage.job(job).attempts) == ("queued", 0)
    stage.go()
    stage.worker()
    until(lambda: stage.job(job).state == "succeeded", "the end of the job")


@pytest.mark.sqlite_only
def test_a_second_stop_signal_ends_the_worker_at_once(stage: Stage) -> None:
    """The handler ignores the stop; its lease expires later and nothing is lost."""
    job = stage.enqueue("publish_deaf", waits=True)
    worker = stage.worker("--lease-seconds", str(_SHORT_LEASE))
    until(lambda: len(stage.began()) == 1, "the jobs to begin")
    while worker.poll() is None:
        worker.terminate()
        time.sleep(0.05)
    assert worker.returncode == -signal.SIGTERM
    stage.go()
    stage.worker()
    until(lambda: stage.job(job).state == "succeeded", "the end of the job")
    assert stage.published() == [job.id]


@pytest.mark.sqlite_only
def test_an_embedded_worker_ends_with_its_parent(stage: Stage) -> None:
    """The end of standard input means that the parent ended; SIGINT is ignored."""
    job = stage.enqueue(waits=True)
    worker = stage.worker("--embedded")
    until(lambda: len(stage.began()) == 1, "the jobs to begin")
    worker.send_signal(signal.SIGINT)
    assert worker.stdin is not None
    worker.stdin.close()
    worker.stdin = None
    assert worker.wait(PATIENCE_SECONDS) == 0
    assert stage.job(job).state == "queued"


@pytest.mark.sqlite_only
def test_a_running_job_is_cancelled(stage: Stage) -> None:
    """The next heartbeat cancels the handler; nothing is published."""
    job = stage.enqueue(waits=True)
    stage.worker("--lease-seconds", str(_SHORT_LEASE))
    until(lambda: len(stage.began()) == 1, "the jobs to begin")
    with stage.registry.transaction() as tx:
        tx.jobs.cancel(job.id)
    until(lambda: stage.job(job).state == "cancelled", "the end of the job")
    assert stage.published() == []
