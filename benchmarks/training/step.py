"""`python -m benchmarks.training.step`: the share of a training step that its data path takes.

Steps of the training loop run in turns with batches that are selected, augmented and copied as in a
run, and with one batch that is ready on the device. The data path takes the difference. The images
are random bytes of the size of CIFAR-10 in memory, augmented by `crop_flip`. On a CPU the clock is
that of one thread; with CUDA it is wall time until the device has finished. The goal is at most 10%
for ResNet-50 on one GPU.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.timing import interleaved
from recalib.recipe import Recipe
from training.data import Split, Splits
from training.data.augmentation import augmentation
from training.data.pixels import Pixels
from training.engine import loop
from training.engine.batches import epoch_steps
from training.engine.fabric import launch_fabric
from training.engine.loading import BatchLoader
from training.engine.run_state import begin

_CLASSES = 10
#: Fields of a recipe by the name of a configuration.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "deterministic": {},
    "fast": {"deterministic": False, "channels_last": True},
}
CONFIGURATIONS["CUDA graphs"] = CONFIGURATIONS["fast"] | {"compile": "reduce-overhead"}


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, and of a step whose batch is ready."""

    step: float
    ready: float

    @property
    def data_share(self) -> float:
        """The share of the step that the data path takes."""
        return max(0.0, 1 - self.ready / self.step)


def measure(recipe: Recipe, splits: Splits, times: int) -> StepTime:
    """Return the time of a step, over the steps of an epoch.

    Parameters
    ----------
    times: repetitions of the epoch, of which the shortest counts.
    """
    fabric = launch_fabric(recipe)
    splits = loop._on_device(splits, fabric.device)
    run = begin(recipe, splits, fabric, None, interleaved=False)
    run.begin_epoch()
    steps = epoch_steps(recipe, len(splits.train), 0, interleaved=False)
    augment = augmentation(recipe.augmentation)
    loader = BatchLoader(fabric, {"train": splits.train}, augment)
    batch = next(loop._training_batches(run, steps, loader))

    def train_on(batches: Iterator[Any]) -> None:
        for number, step in enumerate(steps):
            loop._step(run, step, number, batches)
        if fabric.device.type == "cuda":
            torch.cuda.synchronize()

    acts = {
        "step": lambda: train_on(loop._training_batches(run, steps, loader)),
        "ready": lambda: train_on(itertools.repeat(batch)),
    }
    clock = time.perf_counter if fabric.device.type == "cuda" else time.thread_time
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        interleaved(acts, 2)  # memory is allocated, kernels are chosen and graphs recorded
        seconds = interleaved(acts, times, clock)
    finally:
        torch.set_num_threads(threads)
    return StepTime(*(min(seconds[name]) / len(steps) for name in ("step", "ready")))


def recipe_for(model: str, batch: int, **fields: Any) -> Recipe:
    """Return a recipe whose steps are timed."""
    return Recipe.of(
        {
            "data": {},
            "model": {"name": model},
            "batch_size": batch,
            "augmentation": "crop_flip",
            "optimiser": {"learning_rate": 1e-6},
            **fields,
        }
    )


def images(rows: int, size: int) -> Splits:
    """Return random images of `size` x `size` in ten classes."""
    rng = np.random.default_rng(0)
    pixels = Pixels(rng.integers(0, 256, (rows, size, size, 3), dtype=np.uint8))
    split = Split.with_all_rows(pixels.scaled(pixels.measured()), rng.integers(0, _CLASSES, rows))
    facts = {"channels": 3, "features": 3 * size * size}
    return Splits(split, split, split, _CLASSES, facts)


def main() -> None:
    """Print a table of configurations."""
    # Imported here because `gpu` needs no table.
    from rich.console import Console
    from rich.table import Table

    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.step")
    parser.add_argument("--model", default="resnet50" if cuda else "resnet8")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=32, help="height and width of an image")
    parser.add_argument("--steps", type=int, default=100 if cuda else 2, help="of a repetition")
    parser.add_argument("--times", type=int, default=5, help="repetitions; the shortest counts")
    parser.add_argument(
        "--configurations",
        nargs="+",
        choices=CONFIGURATIONS,
        default=list(CONFIGURATIONS) if cuda else ["deterministic"],
    )
    options = parser.parse_args()
    splits = images(options.batch * options.steps, options.size)
    device = torch.cuda.get_device_name() if cuda else "one thread of a CPU"
    title = f"{options.model}, {options.batch} images of {options.size}x{options.size}, {device}"
    table = Table(
        "configuration", "step, ms", "batch ready, ms", "data path", title=title, box=None
    )
    for name in options.configurations:
        recipe = recipe_for(options.model, options.batch, **CONFIGURATIONS[name])
        result = measure(recipe, splits, options.times)
        cells = (f"{1e3 * result.step:.2f}", f"{1e3 * result.ready:.2f}")
        table.add_row(name, *cells, f"{result.data_share:.1%}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
