"""Batches are the same with any number of workers, and where inputs are on the device."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

from recalib.errors import InputError, UnavailableError
from tests.training.data.test_formats import images, parquet_shards
from tests.training.engine.tiny import Memory, Onlooker, recipe
from tests.training.engine.tiny import splits as tiny_splits
from training.data import DataSpec, Splits, load
from training.data.augmentation import augmentation
from training.engine.loading import BatchLoader, Share
from training.engine.loop import train


@pytest.fixture
def splits(tmp_path: Path) -> Splits:
    """Images in files that are decoded on access."""
    folder = parquet_shards(tmp_path / "photos", *images(60, 0))
    spec = DataSpec("images", {"train": folder, "memory": 0}, validation=12, test=12)
    return load(spec, tmp_path)


def batches(splits: Splits, **options: Any) -> list[Tensor]:
    shares = [Share(np.arange(start, start + 8), seed=start) for start in range(0, 32, 8)]
    shares.append(Share(np.arange(5)))
    fabric = Fabric(accelerator="cpu", devices=1)
    augment = augmentation("crop_flip")
    with BatchLoader(fabric, {"train": splits.train}, augment, **options) as loader:
        loaded = list(loader.load("train", shares))
    for share, (_, labels) in zip(shares, loaded, strict=True):
        np.testing.assert_array_equal(labels.cpu(), splits.train.labels[share.rows])
    return [inputs for inputs, _ in loaded]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_batches_do_not_depend_on_the_workers(splits: Splits, workers: int) -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    expected = batches(splits)
    loaded = batches(splits, workers=workers)
    assert len(loaded) == 5
    assert all(torch.equal(a, b) for a, b in zip(loaded, expected, strict=True))
    assert torch.equal(loaded[4], splits.train.batch(range(5)))  # type: ignore[arg-type]
    assert not torch.equal(loaded[0], splits.train.batch(range(8)))  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
def test_workers_remain_for_a_run_and_end_with_it(splits: Splits) -> None:
    """Every epoch and split has the same processes; an iteration that is left early does no harm.

    They end with the context, also when an error keeps the iterator alive.
    """
    fabric = Fabric(accelerator="cpu", devices=1)
    by_name = {"train": splits.train, "test": splits.test}
    shares = [Share(np.arange(4), seed) for seed in range(6)]
    with pytest.raises(ValueError, match="stop") as raised:  # noqa: PT012, SIM117
        with BatchLoader(fabric, by_name, augmentation("flip"), workers=2) as loader:
            next(loader.load("train", shares))
            processes = children()
            first = [inputs for inputs, _ in loader.load("train", shares)]
            second = [inputs for inputs, _ in loader.load("train", shares)]
            ((_, labels),) = loader.load("test", shares[:1])
            assert torch.equal(labels, torch.from_numpy(splits.test.labels[:4]))
            next(loader.load("train", shares))
            assert children() == processes
            raise ValueError("stop")
    assert raised.value is not None
    assert len(processes) == 2
    assert not children()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.slow
def test_worker_that_is_killed_is_reported(splits: Splits) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)
    shares = [Share(np.arange(4), 0)] * 50
    with pytest.raises(UnavailableError, match="loads batches has ended: Killed"):  # noqa: PT012, SIM117
        with BatchLoader(fabric, {"train": splits.train}, workers=2) as loader:
            batches = loader.load("train", shares)
            next(batches)
            os.kill(min(children()), signal.SIGKILL)
            for _ in batches:
                pass
    assert not children()


@pytest.mark.slow
def test_spawned_workers_give_the_same_batches(splits: Splits) -> None:
    """As on a server. Rows that cannot be pickled are refused."""
    expected = batches(splits)
    loaded = batches(splits, workers=1, start_method="spawn")
    assert all(torch.equal(a, b) for a, b in zip(loaded, expected, strict=True))
    splits.train.inputs.unpicklable = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"^workers: found .*pickle.*accepted: 0"):
        batches(splits, workers=1, start_method="spawn")
    assert not children()


def load_endlessly(ready: Event) -> None:
    options = {"train": tiny_splits().train}
    loader = BatchLoader(Fabric(accelerator="cpu", devices=1), options, workers=2)
    batches = loader.load("train", [Share(np.arange(4))] * 10**6)
    next(batches)
    ready.set()
    signal.pause()


@pytest.mark.slow
def test_workers_end_after_their_process_is_killed() -> None:
    # A fork of a process with threads may wait for a lock for ever.
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=load_endlessly, args=(ready,))
    process.start()
    try:
        assert ready.wait(60)
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
    finally:
        process.kill()
        process.join()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def children() -> set[int]:
    """Return the processes that load batches for this process."""
    return {process.pid for process in multiprocessing.active_children() if process.pid}


@pytest.mark.slow
def test_interrupted_run_resumes_with_other_workers(splits: Splits) -> None:
    """The weights are those of an uninterrupted run without workers."""
    options: dict[str, Any] = {
        "model": {"name": "resnet8", "options": {"width": 2}},
        "augmentation": "crop_flip",
        "epochs": 2,
        "batch_size": 8,
    }
    complete = train(recipe(**options), splits, Memory(), Onlooker())
    memory, steps = Memory(), itertools.count()

    def stop() -> None:
        if next(steps) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe(**options, workers=2), splits, memory, Onlooker(stop))
    resumed = train(recipe(**options, workers=1), splits, memory, Onlooker())
    assert complete.weights.keys() == resumed.weights.keys()
    for name, tensor in complete.weights.items():
        assert torch.equal(tensor, resumed.weights[name]), name


def test_inputs_move_to_a_device_as_far_as_they_fit(tmp_path: Path) -> None:
    """The rows and digests stay; splits that share inputs share them on the device."""
    options = {"normalise": "unit"}
    for seed, name in enumerate(("train", "test")):
        options[name] = parquet_shards(tmp_path / name, *images(12, seed))
    splits = load(DataSpec("images", options, validation=3), tmp_path)
    size = 12 * 6 * 5 * 3
    moved = splits.on_device(torch.device("cpu"), size)
    assert moved.train.inputs is moved.validation.inputs
    assert moved.train.inputs is not splits.train.inputs
    assert moved.test.inputs is splits.test.inputs  # no room is left
    assert moved.digest == splits.digest
    for name in ("train", "validation"):
        rows = range(len(getattr(splits, name)))
        assert torch.equal(getattr(moved, name).batch(rows), getattr(splits, name).batch(rows))
    assert splits.on_device(torch.device("cpu"), size - 1).train.inputs is splits.train.inputs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_batches_of_a_gpu_are_those_of_the_cpu(tmp_path: Path) -> None:
    options = {
        name: parquet_shards(tmp_path / name, *images(60, seed))
        for seed, name in enumerate(("train", "test"))
    }
    spec = DataSpec("images", options, validation=12)
    splits = load(spec, tmp_path)
    moved = splits.on_device(torch.device("cuda"), 2**20)
    assert moved.train.inputs.device.type == "cuda"
    for first, second in zip(batches(splits), batches(moved), strict=True):
        torch.testing.assert_close(second.cpu(), first, rtol=0, atol=1e-6)
