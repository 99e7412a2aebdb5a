"""The training job: what it publishes, what it may read, and how it goes on after an end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
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
from tests.cli.test_train import write_data
from tests.faults.disks import fill, small_disk
from training.fit_job import FIT, run_fit
from training.monitoring_job import MONITOR, run_monitor
from training.training_job import TRAIN, training_handler
from training.worker import JobContext, Worker

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
        handlers = {TRAIN: training_handler(folder, max_weights=_WEIGHTS), FIT: run_fit}
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
    """Call `act` with the number of the step before each; returns the list of steps taken."""
    taken: list[int] = []
    step = loop._step

    def watched(run: Any, *more: Any) -> None:
        act(len(taken))
        taken.append(run.counters.epoch)
        step(run, *more)

    monkeypatch.setattr(loop, "_step", watched)
    return taken


def test_files_appear_with_the_end_of_the_job(runs: Runs) -> None:
    """Under their digests, and nothing else is left: no checkpoint, no data set."""
    job = runs.ask()
    runs.work()
    found = runs.job(job)
    assert found.state == "succeeded", found.error
    assert found.result is not None
    assert set(found.result["files"]) == {
        "recipe.json", "metrics.jsonl", "weights.safetensors", "validation.npz", "test.npz",
        "result.json",
    }  # fmt: skip
    assert load_tensors(runs.file(job, "weights.safetensors"))["head.weight"].shape == (3, 2)
    assert runs.blobs() == {one["digest"] for one in found.result["files"].values()}
    assert found.result["summary"]["epochs"] == 2


def test_a_champion_comes_of_it_if_asked(runs: Runs) -> None:
    """The validation logits become a data set of the model, and a fit of their own follows."""
    with runs.registry.transaction() as tx:
        tx.models.create("points", None, 3, "test")
    job = runs.ask(calibrate={"model": "points", "map": "temperature", "promote": True})
    runs.work()
    found = runs.job(job)
    assert found.state == "succeeded", found.error
    assert found.result is not None
    assert runs.job(found.result["fit_job"]).state == "succeeded"
    with runs.registry.reading() as tx:
        model = tx.models.get("points")
        data = tx.datasets.get(model, found.result["dataset"])
        assert tx.aliases.get(model, "champion").version == 1
        card = tx.calibrators.get(model, 1).card
    assert data.rows == 80
    assert data.metrics["nll"]["value"] == pytest.approx(
        found.result["summary"]["validation"]["nll"], rel=1e-5
    )
    assert (
        card["data"]["digest"] == data.digest == found.result["files"]["validation.npz"]["digest"]
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"calibrate": {"model": "nobody"}}, "model 'nobody' does not exist"),
        ({"calibrate": {"model": "two"}}, "calibrate.model: found 'two' with 2 classes"),
        ({"epochs": 0}, "epochs: found 0"),
        ({"model": {"name": "os.system"}}, "model.name: found 'os.system'"),
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
def test_what_cannot_be_done_fails_for_good(runs: Runs, more: dict[str, Any], message: str) -> None:
    """At the first attempt, before any training; nothing outside the folder is looked at."""
    with runs.registry.transaction() as tx:
        tx.models.create("two", None, 2, "test")
    outside = runs.folder.parent / "x.npz"
    outside.write_bytes((runs.folder / "points-train.npz").read_bytes())
    (runs.folder / "link.npz").symlink_to(outside)
    job = runs.ask(**more)
    runs.work()
    found = runs.job(job)
    assert (found.state, found.attempts) == ("failed", 1)
    assert message in (found.error or "")


def test_a_worker_that_stops_loses_nothing(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes back with a checkpoint of that very step; another takes the steps after it."""
    alone = runs.ask()
    runs.work()
    stop = threading.Event()
    taken = at_each_step(monkeypatch, lambda step: stop.set() if step == 6 else None)
    job = runs.ask()
    runs.work(stop)
    found = runs.job(job)
    assert (found.state, found.attempts, len(taken)) == ("queued", 0, 7)
    runs.work()
    assert (runs.job(job).state, len(taken)) == ("succeeded", 10)
    for name in ("weights.safetensors", "test.npz", "result.json"):
        assert runs.file(job, name) == runs.file(alone, name)


def test_other_jobs_do_not_wait_for_a_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes in between is done in between, and changes no number of the run."""
    alone = runs.ask()
    runs.work()

    def short(context: JobContext) -> None:
        torch.manual_seed(7)
        torch.rand(5)
        context.check_cancelled()

    others = Worker(runs.registry, {"short": short}, name="test")
    handler = training_handler(
        runs.folder,
        lambda: others.work_once(threading.Event()),
        every_seconds=0.0,
        max_weights=_WEIGHTS,
    )
    asked: list[str] = []

    def ask(step: int) -> None:
        if step == 3:
            with runs.registry.transaction() as tx:
                asked.append(tx.jobs.enqueue("short", {}).id)
        if step == 5:
            assert runs.job(asked[0]).state == "succeeded"

    taken = at_each_step(monkeypatch, ask)
    job = runs.ask()
    Worker(runs.registry, {TRAIN: handler}, name="test").work_once(threading.Event())
    assert (runs.job(job).state, len(taken)) == ("succeeded", 10)
    assert runs.file(job, "weights.safetensors") == runs.file(alone, "weights.safetensors")


def test_a_worker_that_dies_costs_the_steps_since_the_checkpoint(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease runs out, and the next attempt begins with the second epoch."""

    class Death(BaseException):
        """Nothing of the worker's own survives it."""

    def die(step: int) -> None:
        if step == 7:
            raise Death

    taken = at_each_step(monkeypatch, die)
    job = runs.ask()
    with pytest.raises(Death):
        runs.work()
    assert taken == [0] * 5 + [1] * 2
    threading.Event().wait(0.5)  # longer than the lease
    monkeypatch.undo()
    taken = at_each_step(monkeypatch, lambda step: None)
    runs.work()
    found = runs.job(job)
    assert (found.state, found.attempts, taken) == ("succeeded", 2, [1] * 5)


def test_cancelling_ends_it_at_a_step_and_leaves_nothing(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = threading.Event()

    def cancel(step: int) -> None:
        if step == 6:
            with runs.registry.transaction() as tx:
                tx.jobs.cancel(job)
            heard.wait(0.4)  # until the heartbeat has been there

    taken = at_each_step(monkeypatch, cancel)
    job = runs.ask()
    runs.work()
    assert runs.job(job).state == "cancelled"
    assert len(taken) == 7
    assert runs.blobs() == set()


def test_a_paused_worker_is_fenced_off(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another has the job meanwhile: what the first leaves afterwards counts for nothing."""
    other = Runs(runs.registry, runs.folder)
    ended: list[Job] = []

    def oversleep(step: int) -> None:
        if step == 6 and not ended:
            ended.append(runs.job(job))
            monkeypatch.setattr("training.job_context.JobContext.beat", lambda *_: None)
            threading.Event().wait(0.5)
            other.work()
            ended[0] = runs.job(job)

    at_each_step(monkeypatch, oversleep)
    job = runs.ask()
    runs.work()
    found = runs.job(job)
    assert ended[0].state == found.state == "succeeded"
    assert ended[0].result == found.result
    assert found.result is not None
    digests = {one["digest"] for one in found.result["files"].values()}
    assert digests <= runs.blobs()


def test_progress_says_how_far_and_how_good(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_EVERY_SECONDS", 0.0)
    said: list[tuple[float, str]] = []
    monkeypatch.setattr(
        "training.job_context.JobContext.progress",
        lambda _, share, text: said.append((share, text)),
    )
    runs.ask()
    runs.work()
    shares = [share for share, _ in said]
    assert shares == sorted(shares)
    assert said[1][1].startswith("epoch 1 of 2, loss ")
    assert "; validation accuracy " in said[-2][1]
    assert " s left" in said[-2][1]


@pytest.fixture
def small_blobs(tmp_path: Path) -> Iterator[Path]:
    """The folder of the registry's blobs, as a disk of two megabytes."""
    with small_disk(tmp_path / "blobs", 2) as folder:
        yield folder


def test_no_room_for_a_checkpoint_is_tried_again(
    small_blobs: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before stands, and the next attempt goes on from it."""
    # Between the first checkpoint and the second.
    taken = at_each_step(monkeypatch, lambda step: fill(small_blobs) if step == 7 else None)
    worker = Worker(
        runs.registry,
        {TRAIN: training_handler(runs.folder, max_weights=_WEIGHTS)},
        name="w",
        retry_seconds=0.0,
    )
    job = runs.ask()
    worker.work_once(threading.Event())
    found = runs.job(job)
    assert (found.state, found.attempts) == ("queued", 1)
    assert "no space left" in (found.error or "")
    (small_blobs / "filler").unlink()
    worker.work_once(threading.Event())
    assert runs.job(job).state == "succeeded"
    assert taken == [0] * 5 + [1] * 5 + [1] * 5


def test_checkpoints_of_equal_runs_are_blobs_of_their_own(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of one recipe: the end of one takes nothing from the other."""
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
    """Have a worker look after everything, as it does every minute."""
    worker = Worker(runs.registry, {MONITOR: run_monitor}, name="test")
    with runs.registry.transaction() as tx:
        job = tx.jobs.enqueue(MONITOR, {}).id
    assert worker.work_once(threading.Event())
    assert runs.job(job).state == "succeeded"


@pytest.mark.parametrize("end", ["failed", "cancelled", "abandoned"])
def test_of_a_job_that_is_over_no_checkpoint_stays(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """It failed for good, was cancelled in the queue, or its last attempt took a worker along."""
    stop = threading.Event()

    class Death(BaseException):
        """Nothing of the worker's own survives it."""

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


def test_a_job_that_goes_on_keeps_its_checkpoint(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    taken = at_each_step(monkeypatch, lambda step: stop.set() if step == 6 else None)
    job = runs.ask()
    runs.work(stop)
    kept = runs.blobs()
    sweep(runs)
    assert runs.blobs() == kept
    runs.work()
    assert (runs.job(job).state, len(taken)) == ("succeeded", 10)
    sweep(runs)
    assert runs.job(job).checkpoint is None
    assert runs.job(job).result is not None
    assert len(runs.blobs()) == 6


@pytest.mark.parametrize("moment", ["commit", "tell", "remove"])
def test_a_worker_that_dies_with_a_checkpoint_half_kept_leaves_no_blob_behind(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before it is stored, before the job knows, or before the old one is gone."""

    class Death(BaseException):
        """Nothing of the worker's own survives it."""

    seen: list[None] = []
    owner, name = {
        "commit": (BlobWriter, "commit"),
        "tell": (JobContext, "save_checkpoint"),
        "remove": (BlobStore, "remove"),
    }[moment]
    #: The second checkpoint's; each is told of twice, and the first takes no other's place.
    last = {"commit": 2, "tell": 4, "remove": 1}[moment]
    act = getattr(owner, name)

    def die(self: Any, *more: Any) -> Any:
        seen.append(None)
        if len(seen) == last:
            raise Death
        return act(self, *more)

    monkeypatch.setattr(owner, name, die)
    job = runs.ask(checkpoint_steps=2)
    with pytest.raises(Death):
        runs.work()
    monkeypatch.undo()
    threading.Event().wait(0.5)  # longer than the lease
    taken = at_each_step(monkeypatch, lambda step: None)
    runs.work()
    found = runs.job(job)
    assert (found.state, found.attempts) == ("succeeded", 2)
    # From the second checkpoint where the job knew of it, and else from the first.
    assert len(taken) == (6 if moment == "remove" else 8)
    assert found.result is not None
    assert runs.blobs() == {one["digest"] for one in found.result["files"].values()}
