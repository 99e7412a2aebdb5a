"""The training job: published files, allowed inputs, and resumption."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load as load_tensors

import training.engine.loop as loop
from recalib.errors import InputError
from recalib.registry import BlobStore, Job, Registry
from recalib.registry.blobs import BlobWriter
from recalib.registry.job_kinds import FIT, MONITOR, TRAIN
from tests.cli.test_train import write_data
from tests.faults.disks import fill, small_disk
from tests.training.heartbeats import notice_of_interruption
from training.fit_job import run_fit
from training.monitoring_job import run_monitor
from training.training_job import run_training
from training.worker import JobContext, Worker

pytestmark = pytest.mark.sqlite_only

_WEIGHTS = 1_000_000
RECIPE: dict[str, Any] = {
    "name": "points",
    "data": {
        "source": "arrays",
        "options": {"train": "points-train.npz", "test": "points-test.npz"},
        "validation": 80,
    },
    "model": {"name": "linear"},
    "epochs": 2,
    "batch_size": 32,
    "device": "cpu",
    "report": False,
}


class Runs:
    """Training jobs on a registry, with data in a folder."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry, self.folder = registry, folder
        train = partial(run_training, folder=folder, max_weights=_WEIGHTS, max_workers=1)
        handlers = {TRAIN: train, FIT: run_fit}
        self.worker = Worker(registry, handlers, name="test", lease_seconds=0.3)

    def ask(self, **more: Any) -> str:
        with self.registry.transaction() as tx:
            return tx.jobs.enqueue(TRAIN, {**RECIPE, **more}).id

    def work(self, stop: threading.Event | None = None) -> None:
        while self.worker.work_once(stop or threading.Event()):
            if stop is not None:
                return

    def job(self, job_id: str) -> Job:
        with self.registry.reading() as tx:
            return tx.jobs.get(job_id)

    def file(self, job_id: str, name: str) -> bytes:
        result = self.job(job_id).result
        assert result is not None
        with self.registry.blobs.open(result["files"][name]["digest"]) as file:
            return file.read()

    def blobs(self) -> set[str]:
        blobs = self.registry.blobs
        return {path.rpartition("/")[2] for path in blobs.filesystem.find(blobs.root)}


@pytest.fixture
def runs(registry: Registry, tmp_path: Path) -> Runs:
    folder = tmp_path / "data"
    folder.mkdir()
    write_data(folder)
    return Runs(registry, folder)


def at_each_step(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> list[int]:
    """Call `act` with the step number before each step; return the epochs of the steps so far."""
    steps: list[int] = []
    step = loop._step

    def watched(run: Any, *more: Any) -> None:
        act(len(steps))
        steps.append(run.counters.epoch)
        step(run, *more)

    monkeypatch.setattr(loop, "_step", watched)
    return steps


@pytest.mark.both_databases
def test_finished_job_publishes_its_files(runs: Runs) -> None:
    """Only the files remain as blobs: no checkpoint and no data set."""
    job = runs.ask()
    runs.work()
    finished = runs.job(job)
    assert finished.state == "succeeded", finished.error
    assert finished.result is not None
    assert set(finished.result["files"]) == {
        "recipe.json", "metrics.jsonl", "weights.safetensors", "validation.npz", "test.npz",
        "result.json",
    }  # fmt: skip
    assert load_tensors(runs.file(job, "weights.safetensors"))["head.weight"].shape == (3, 2)
    assert runs.blobs() == {file["digest"] for file in finished.result["files"].values()}
    assert finished.result["summary"]["epochs"] == 2


@pytest.mark.slow
def test_workers_change_no_result(runs: Runs) -> None:
    """As many as the settings allow load batches; more are refused."""
    jobs = [runs.ask(workers=workers) for workers in (0, 1, 2)]
    runs.work()
    weights = [runs.file(job, "weights.safetensors") for job in jobs[:2]]
    assert weights[0] == weights[1]
    assert not multiprocessing.active_children()
    refused = runs.job(jobs[2])
    assert refused.state == "failed"
    assert "workers: found 2; accepted: 0 to 1" in str(refused.error)


def test_calibrate_publishes_a_champion(runs: Runs) -> None:
    """The validation logits become a data set of the model, and a fit job follows."""
    with runs.registry.transaction() as tx:
        tx.models.create("points", None, 3, "test")
    job = runs.ask(calibrate={"model": "points", "map": "temperature", "promote": True})
    runs.work()
    finished = runs.job(job)
    assert finished.state == "succeeded", finished.error
    assert finished.result is not None
    assert runs.job(finished.result["fit_job"]).state == "succeeded"
    with runs.registry.reading() as tx:
        model = tx.models.get("points")
        data = tx.datasets.get(model, finished.result["dataset"])
        assert tx.aliases.get(model, "champion").version == 1
        card = tx.calibrators.get(model, 1).card
    assert data.rows == 80
    assert data.metrics["nll"]["value"] == pytest.approx(
        finished.result["summary"]["validation"]["nll"], rel=1e-5
    )
    assert (
        card["data"]["digest"]
        == data.digest
        == finished.result["files"]["validation.npz"]["digest"]
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"calibrate": {"model": "nobody"}}, "model 'nobody' does not exist"),
        ({"calibrate": {"model": "two"}}, "calibrate.model: found 'two' with 2 classes"),
        ({"epochs": 0}, "epochs: found 0"),
        ({"model": {"name": "os.system"}}, "model.name: found 'os.system'"),
        ({"model": {"name": "os:system"}}, "model.name: found 'os:system'; accepted: a registered"),
        (
            {"model": {"name": "linear", "options": {"features": 10**12}}},
            "model.options: found more than 1000000 weights",
        ),
        ({"model": {"name": "linear", "weights": "../w.safetensors"}}, "model.weights: found no"),
        ({"model": {"name": "linear", "weights": "/etc/hostname"}}, "below the data folder"),
        (
            {"data": {**RECIPE["data"], "options": {"train": "../x.npz", "test": "x.npz"}}},
            "below the data folder",
        ),
        (
            {"data": {**RECIPE["data"], "options": {"train": "link.npz", "test": "x.npz"}}},
            "below the data folder",
        ),
    ],
)
def test_invalid_recipe_fails_without_retry(runs: Runs, more: dict[str, Any], message: str) -> None:
    """It fails at the first attempt, before training; files outside the folder are refused."""
    with runs.registry.transaction() as tx:
        tx.models.create("two", None, 2, "test")
    outside = runs.folder.parent / "x.npz"
    outside.write_bytes((runs.folder / "points-train.npz").read_bytes())
    (runs.folder / "link.npz").symlink_to(outside)
    job = runs.ask(**more)
    runs.work()
    finished = runs.job(job)
    assert (finished.state, finished.attempts) == ("failed", 1)
    assert message in (finished.error or "")


def test_stopped_run_resumes_at_the_same_step(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job returns to the queue with a checkpoint of its last step."""
    uninterrupted = runs.ask()
    runs.work()
    stop = threading.Event()
    steps = at_each_step(monkeypatch, lambda step: stop.set() if step == 6 else None)
    job = runs.ask()
    runs.work(stop)
    interrupted = runs.job(job)
    assert (interrupted.state, interrupted.attempts, len(steps)) == ("queued", 0, 7)
    runs.work()
    assert (runs.job(job).state, len(steps)) == ("succeeded", 10)
    for name in ("weights.safetensors", "test.npz", "result.json"):
        assert runs.file(job, name) == runs.file(uninterrupted, name)


def test_other_jobs_do_not_wait_for_a_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short job runs between two steps and does not change the result of the run."""
    uninterrupted = runs.ask()
    runs.work()

    def short(context: JobContext) -> None:
        torch.manual_seed(7)
        torch.rand(5)
        context.check_cancelled()

    other_jobs = Worker(runs.registry, {"short": short}, name="test")
    handler = partial(
        run_training,
        folder=runs.folder,
        pause=lambda: other_jobs.work_once(threading.Event()),
        max_weights=_WEIGHTS,
    )
    short_jobs: list[str] = []

    def ask(step: int) -> None:
        if step == 3:
            with runs.registry.transaction() as tx:
                short_jobs.append(tx.jobs.enqueue("short", {}).id)
        if step == 5:
            assert runs.job(short_jobs[0]).state == "succeeded"

    steps = at_each_step(monkeypatch, ask)
    job = runs.ask()
    Worker(runs.registry, {TRAIN: handler}, name="test").work_once(threading.Event())
    assert (runs.job(job).state, len(steps)) == ("succeeded", 10)
    assert runs.file(job, "weights.safetensors") == runs.file(uninterrupted, "weights.safetensors")


def test_killed_run_resumes_from_the_last_checkpoint(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease expires, and the next attempt starts with the second epoch."""

    class Death(BaseException):
        """Ends the worker like a kill signal."""

    def die(step: int) -> None:
        if step == 7:
            raise Death

    steps = at_each_step(monkeypatch, die)
    job = runs.ask()
    with pytest.raises(Death):
        runs.work()
    assert steps == [0] * 5 + [1] * 2
    threading.Event().wait(0.5)  # longer than the lease
    monkeypatch.undo()
    steps = at_each_step(monkeypatch, lambda step: None)
    runs.work()
    finished = runs.job(job)
    assert (finished.state, finished.attempts, steps) == ("succeeded", 2, [1] * 5)


def test_cancelled_run_stops_at_a_step_and_leaves_no_blobs(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = notice_of_interruption(monkeypatch)

    def cancel(step: int) -> None:
        if step == 6:
            with runs.registry.transaction() as tx:
                tx.jobs.cancel(job)
            assert notice.wait(60)

    steps = at_each_step(monkeypatch, cancel)
    job = runs.ask()
    runs.work()
    assert runs.job(job).state == "cancelled"
    assert len(steps) == 7
    assert runs.blobs() == set()


@pytest.mark.both_databases
def test_a_paused_worker_is_fenced_off(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker finished the job; the first worker changes nothing afterwards."""
    other = Runs(runs.registry, runs.folder)
    results: list[Job] = []

    def oversleep(step: int) -> None:
        if step == 6 and not results:
            results.append(runs.job(job))
            monkeypatch.setattr("training.job_context.JobContext.beat", lambda *_: None)
            threading.Event().wait(0.5)
            other.work()
            results[0] = runs.job(job)

    at_each_step(monkeypatch, oversleep)
    job = runs.ask()
    runs.work()
    finished = runs.job(job)
    assert results[0].state == finished.state == "succeeded"
    assert results[0].result == finished.result
    assert finished.result is not None
    digests = {file["digest"] for file in finished.result["files"].values()}
    assert digests <= runs.blobs()


def test_progress_reports_position_and_accuracy(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_EVERY_SECONDS", 0.0)
    messages: list[tuple[float, str]] = []
    monkeypatch.setattr(
        "training.job_context.JobContext.progress",
        lambda _, share, text: messages.append((share, text)),
    )
    runs.ask()
    runs.work()
    shares = [share for share, _ in messages]
    assert shares == sorted(shares)
    assert messages[1][1].startswith("epoch 1 of 2, loss ")
    assert "; validation accuracy " in messages[-2][1]
    assert " s left" in messages[-2][1]


@pytest.fixture
def small_blobs(tmp_path: Path) -> Iterator[Path]:
    """The folder of the registry's blobs, as a disk of two megabytes."""
    with small_disk(tmp_path / "blobs", 2) as folder:
        yield folder


def test_full_disk_is_retried(
    small_blobs: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous checkpoint remains, and the next attempt resumes from it."""
    # Between the first checkpoint and the second.
    steps = at_each_step(monkeypatch, lambda step: fill(small_blobs) if step == 7 else None)
    worker = Worker(
        runs.registry,
        {TRAIN: partial(run_training, folder=runs.folder, max_weights=_WEIGHTS)},
        name="w",
        retry_seconds=0.0,
    )
    job = runs.ask()
    worker.work_once(threading.Event())
    failed_once = runs.job(job)
    assert (failed_once.state, failed_once.attempts) == ("queued", 1)
    assert "no space left" in (failed_once.error or "")
    (small_blobs / "filler").unlink()
    worker.work_once(threading.Event())
    assert runs.job(job).state == "succeeded"
    assert steps == [0] * 5 + [1] * 5 + [1] * 5


def test_equal_runs_have_separate_checkpoints(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of one run does not remove the checkpoint of another run of the same recipe."""
    stop = threading.Event()
    at_each_step(monkeypatch, lambda step: stop.set() if step in (2, 5) else None)
    first = runs.ask()
    runs.work(stop)
    assert len(runs.blobs()) == 1
    with runs.registry.transaction() as tx:  # the second goes first
        tx.jobs.enqueue(TRAIN, {**RECIPE}, priority=1)
    stop.clear()
    runs.work(stop)
    assert len(runs.blobs()) == 2
    runs.work()
    assert runs.job(first).state == "succeeded"
    assert np.isfinite(load_tensors(runs.file(first, "weights.safetensors"))["head.bias"]).all()


def sweep(runs: Runs) -> None:
    """Run the monitoring job, which removes orphaned checkpoints."""
    worker = Worker(runs.registry, {MONITOR: run_monitor}, name="test")
    with runs.registry.transaction() as tx:
        job = tx.jobs.enqueue(MONITOR, {}).id
    assert worker.work_once(threading.Event())
    assert runs.job(job).state == "succeeded"


@pytest.mark.parametrize("end", ["failed", "cancelled", "abandoned"])
def test_checkpoint_of_an_ended_job_is_removed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """The job failed, was cancelled in the queue, or its last attempt killed the worker."""
    stop = threading.Event()

    class Death(BaseException):
        """Ends the worker like a kill signal."""

    def act(step: int) -> None:
        if step == 7 and end == "failed":
            raise InputError("loss", found="nan", accepted="a number")
        if step == 7 and end == "abandoned":
            raise Death
        if step == 7:
            stop.set()

    at_each_step(monkeypatch, act)
    with runs.registry.transaction() as tx:
        job = tx.jobs.enqueue(TRAIN, RECIPE, max_attempts=1).id
    with contextlib.suppress(Death):
        runs.work(stop)
    if end == "cancelled":
        with runs.registry.transaction() as tx:
            tx.jobs.cancel(job)
    if end == "abandoned":
        threading.Event().wait(0.5)  # longer than the lease
        runs.work()
    assert runs.job(job).state == ("cancelled" if end == "cancelled" else "failed")
    assert len(runs.blobs()) == 1
    sweep(runs)
    assert runs.blobs() == set()
    assert runs.job(job).checkpoint is None
    sweep(runs)


def test_unfinished_job_keeps_its_checkpoint(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    steps = at_each_step(monkeypatch, lambda step: stop.set() if step == 6 else None)
    job = runs.ask()
    runs.work(stop)
    blobs = runs.blobs()
    sweep(runs)
    assert runs.blobs() == blobs
    runs.work()
    assert (runs.job(job).state, len(steps)) == ("succeeded", 10)
    sweep(runs)
    assert runs.job(job).checkpoint is None
    assert runs.job(job).result is not None
    assert len(runs.blobs()) == 6


@pytest.mark.parametrize("moment", ["commit", "tell", "remove"])
def test_worker_killed_while_saving_a_checkpoint_leaves_no_blob(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It dies before the blob is stored, the job records it, or the old blob is removed."""

    class Death(BaseException):
        """Ends the worker like a kill signal."""

    calls: list[None] = []
    owner, name = {
        "commit": (BlobWriter, "commit"),
        "tell": (JobContext, "save_checkpoint"),
        "remove": (BlobStore, "remove"),
    }[moment]
    #: The calls of the second checkpoint. Each is recorded twice; the first replaces none.
    last = {"commit": 2, "tell": 4, "remove": 1}[moment]
    act = getattr(owner, name)

    def die(self: Any, *more: Any) -> Any:
        calls.append(None)
        if len(calls) == last:
            raise Death
        return act(self, *more)

    monkeypatch.setattr(owner, name, die)
    job = runs.ask(checkpoint_steps=2)
    with pytest.raises(Death):
        runs.work()
    monkeypatch.undo()
    threading.Event().wait(0.5)  # longer than the lease
    steps = at_each_step(monkeypatch, lambda step: None)
    runs.work()
    finished = runs.job(job)
    assert (finished.state, finished.attempts) == ("succeeded", 2)
    # Resumes from the second checkpoint if the job recorded it, otherwise from the first.
    assert len(steps) == (6 if moment == "remove" else 8)
    assert finished.result is not None
    assert runs.blobs() == {file["digest"] for file in finished.result["files"].values()}
