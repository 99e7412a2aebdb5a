"""Training by workers that are killed or stopped resumes in another, with identical results."""

from __future__ import annotations

import signal
import subprocess
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import psutil
import pytest

from recalib.registry import Job, Registry
from recalib.registry.job_kinds import TRAIN
from tests.cli.test_train import write_data
from tests.end_to_end.programs import (
    PATIENCE_SECONDS,
    Programs,
    paused,
    until,
)
from training.training_job import run_training
from training.worker import Worker

pytestmark = pytest.mark.slow

#: A busy machine must be able to send a heartbeat within a third of this.
_LEASE_SECONDS = 3
_EPOCHS = 40
_RECIPE: dict[str, Any] = {
    "name": "points",
    "data": {
        "source": "arrays",
        "options": {"train": "points-train.npz", "test": "points-test.npz"},
        "validation": 80,
    },
    "model": {"name": "linear"},
    "epochs": _EPOCHS,
    "batch_size": 32,
    "device": "cpu",
    "report": False,
}


@dataclass
class _Queue:
    """Training jobs in a separate database, and their workers."""

    programs: Programs
    registry: Registry
    #: Settings of every worker.
    settings: dict[str, Any]

    def ask(self) -> str:
        with self.registry.transaction() as tx:
            return tx.jobs.enqueue("train", _RECIPE).id

    def worker(self) -> subprocess.Popen[bytes]:
        return self.programs.worker(**self.settings)

    def job(self, job_id: str) -> Job:
        with self.registry.reading() as tx:
            return tx.jobs.get(job_id)

    def read(self, digest: str) -> bytes:
        with self.registry.blobs.open(digest) as file:
            return file.read()

    def checkpoint(self, job_id: str) -> list[dict[str, Any]]:
        """Return the epoch records in the job's checkpoint."""
        data = self.read((self.job(job_id).checkpoint or {})["digest"]).partition(b"\n")[2]
        length = int.from_bytes(data[:8], "little")
        header = msgspec.json.decode(data[8 : 8 + length])["__metadata__"]
        history: list[dict[str, Any]] = msgspec.json.decode(header["counters"])["history"]
        return history

    def finished(self, job_id: str) -> Job:
        until(lambda: self.job(job_id).finished_at, "the end of the run")
        actual = self.job(job_id)
        assert actual.state == "succeeded", actual.error
        return actual

    def files(self, job_id: str) -> dict[str, str]:
        """Return the digests of a run's artifacts, without the durations of epochs."""
        result = self.job(job_id).result
        assert result is not None
        digests = {name: file["digest"] for name, file in result["files"].items()}
        del digests["metrics.jsonl"]
        return digests

    def epochs(self, job_id: str) -> list[dict[str, Any]]:
        """Return the epoch records of a run."""
        result = self.job(job_id).result
        assert result is not None
        lines = self.read(result["files"]["metrics.jsonl"]["digest"]).splitlines()
        return [msgspec.json.decode(line) for line in lines]


@pytest.fixture
def queue(programs: Programs, registry: Registry, database_url: str, blob_url: str) -> _Queue:
    write_data(programs.folder)
    settings = {
        "database_url": database_url,
        "blob_url": blob_url,
        "lease_seconds": _LEASE_SECONDS,
        "training_data": programs.folder,
    }
    return _Queue(programs, registry, settings)


# Leases on SQLite: `tests/training/test_processes.py`.
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_training_run_survives_killed_workers(queue: _Queue) -> None:
    """One run is undisturbed; the worker of the second is killed, that of the third is stopped.

    All three come to the same weights, logits and results, byte for byte, and the epochs before the
    end of a worker are not done again.
    """
    job_id = queue.ask()
    first = queue.worker()
    queue.finished(job_id)

    # kill -9: the lease expires.
    killed = queue.ask()
    until(lambda: "digest" in (queue.job(killed).checkpoint or {}), "a checkpoint")
    with paused(psutil.Process(first.pid)):
        assert queue.job(killed).state == "running"
        before = queue.checkpoint(killed)
        first.kill()
    first.wait()
    assert 0 < len(before) < _EPOCHS
    second = queue.worker()
    actual = queue.finished(killed)
    assert (actual.attempts, queue.files(killed)) == (2, queue.files(job_id))
    # Durations come from the first worker.
    assert queue.epochs(killed)[: len(before)] == before

    # SIGTERM: the worker releases the job between two steps; the attempt does not count.
    stopped = queue.ask()
    until(lambda: "digest" in (queue.job(stopped).checkpoint or {}), "a checkpoint")
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_SECONDS) == 0
    actual = queue.job(stopped)
    assert (actual.state, actual.attempts) == ("queued", 0)
    before = queue.checkpoint(stopped)
    assert 0 < len(before) < _EPOCHS
    # A third worker, in this process.
    train = partial(run_training, folder=queue.programs.folder, max_weights=1_000_000)
    handlers = {TRAIN: train}
    assert Worker(queue.registry, handlers, name="third").work_once(threading.Event())
    actual = queue.finished(stopped)
    assert (actual.attempts, queue.files(stopped)) == (1, queue.files(job_id))
    assert queue.epochs(stopped)[: len(before)] == before
