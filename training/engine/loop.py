"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recalib.errors import InputError
from recalib.recipe import Recipe
from training.data import Splits
from training.data.augmentation import augmentation
from training.engine.batches import Step, epoch_steps, seed_of, shares
from training.engine.checkpoint_format import read_shared
from training.engine.checkpoints import Checkpoints
from training.engine.evaluate import Prediction, forward, predict_split, weight_norms
from training.engine.loading import BatchLoader, LabelledBatch, Share, StartMethod, to_device
from training.engine.mixing import mix
from training.engine.objective import Terms
from training.engine.run_state import Run, begin
from training.engine.weights import LoadedWeights

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Identifiers of the random streams; `batches` and `run_state` use the smaller numbers.
_AUGMENTATION, _NETWORK, _MEASURED, _MIXING = 4, 5, 6, 7
#: Share of a GPU's free memory that inputs may use; the network needs the rest.
_DATA_SHARE = 0.25
#: Seconds between progress reports: reading the loss makes an accelerator wait.
_EVERY_SECONDS = 0.5
#: Ratio of validation ECE to training ECE above which a low training ECE is memorisation.
_RATIO = 2.0


@dataclass(frozen=True)
class Position:
    """The progress of a run."""

    epoch: int
    epochs: int
    #: Finished fraction of the run.
    fraction: float
    #: Mean objective over this epoch so far.
    loss: float
    rate: float
    seconds_left: float
    #: Prefix that identifies this run among several.
    label: str = ""

    def describe(self) -> str:
        """Return a message for the user."""
        minutes, seconds = divmod(round(self.seconds_left), 60)
        remaining = f"{minutes} min" if minutes else f"{seconds} s"
        position = f"{self.label}epoch {self.epoch} of {self.epochs}"
        return f"{position}, loss {self.loss:.4f}, {remaining} left"


class Watcher(Protocol):
    """Observes a run, and may end it between two steps by raising an exception."""

    def check(self) -> None:
        """Act before each step; an exception ends the run.

        A run of one process then saves a checkpoint; a run of several keeps its last checkpoint.
        """

    def at(self, position: Position) -> None:
        """Act about every half second."""

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        """Act after each epoch, with the records of all finished epochs."""


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    validation: Prediction
    test: Prediction
    #: Whether the final training was interleaved.
    interleaved: bool
    best_epoch: int | None
    #: What the network has taken from the user's weights, if there are any.
    loaded_weights: LoadedWeights | None = None


def train(
    recipe: Recipe,
    splits: Splits,
    checkpoints: Checkpoints,
    watcher: Watcher,
    initial_weights: dict[str, Tensor] | None = None,
    fabric: Fabric | None = None,
    start_method: StartMethod = "fork",
) -> TrainingResult:
    """Train by the recipe, from the newest checkpoint where one exists.

    A run that is interrupted at any moment and resumed with the same number of processes and
    threads on the same kind of machine gives the same weights bit for bit.

    Parameters
    ----------
    initial_weights: the user's weights to start from; random by default.
    fabric: devices and processes; from the recipe by default.
    start_method: of the recipe's workers, see `BatchLoader`.

    Raises
    ------
    InputError: an invalid recipe, weights that do not fit, or a run that diverges.
    UnavailableError: no space for a checkpoint, or a worker that was killed; the previous
        checkpoint remains.
    """
    # 1. Set up the devices, and start or resume the run.
    if fabric is None:
        from training.engine.fabric import launch_fabric

        fabric = launch_fabric(recipe)
    splits = _on_device(splits, fabric.device)
    always = recipe.interleave.when == "always"
    run = begin(recipe, splits, fabric, initial_weights, interleaved=always)
    run.resume(read_shared(checkpoints.load() if fabric.is_global_zero else None, fabric))
    clock = _Clock(watcher)
    with _batch_loader(recipe, splits, fabric, start_method) as loader:
        # 2. Each epoch: steps, metrics, checkpoint.
        while run.counters.epoch < recipe.epochs and not _is_given_up(run):
            started = time.monotonic()
            _epoch(run, loader, checkpoints, watcher, clock)
            _agree_on_buffers(run)
            number = run.counters.epoch + 1
            if number % recipe.measure_every and number < recipe.epochs:
                run.start_next_epoch()
                run.save(checkpoints)
                continue
            with run.averaged():
                record = _measure_epoch(run, loader, time.monotonic() - started)
            # 3. A calibration loss learns nothing from memorised rows: restart with held-out rows.
            if _has_memorised(run, record):
                history = [*run.counters.history, record]
                run = begin(recipe, splits, fabric, initial_weights, interleaved=True)
                run.counters.history = history
            else:
                _count(run, record)
            run.save(checkpoints)
            watcher.epoch_over(run.counters.history)

        # 4. The selected weights, and their predictions for the validation and test rows.
        weights = run.weights()
        run.model.load_state_dict(weights)
        return TrainingResult(
            weights,
            run.counters.history,
            _predict(run, loader, "validation", with_logits=True),
            _predict(run, loader, "test", with_logits=True),
            run.counters.interleaved,
            run.counters.best_epoch,
            run.loaded_weights,
        )


def _batch_loader(
    recipe: Recipe, splits: Splits, fabric: Fabric, start_method: StartMethod
) -> BatchLoader:
    """Return the loader of all batches of a run."""
    by_name = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    augment = augmentation(recipe.augmentation, splits.ignore_index)
    return BatchLoader(
        fabric, by_name, augment,
        workers=recipe.workers, start_method=start_method, channels_last=recipe.channels_last,
    )  # fmt: skip


def _on_device(splits: Splits, device: torch.device) -> Splits:
    """Return the splits with inputs on a GPU, so far as they fit into a part of its memory."""
    if device.type != "cuda":
        return splits
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return splits.on_device(device, int(_DATA_SHARE * free_bytes))


def _epoch(
    run: Run, loader: BatchLoader, checkpoints: Checkpoints, watcher: Watcher, clock: _Clock
) -> None:
    """Run the remaining steps of an epoch."""
    recipe, counters = run.recipe, run.counters
    parts = recipe.accumulate * run.fabric.world_size
    rows = len(run.splits.train)
    interleaved = counters.interleaved
    steps = epoch_steps(recipe, rows, counters.epoch, interleaved=interleaved, parts=parts)
    if not steps:
        raise InputError("batch_size", found=f"{rows} training rows", accepted="enough for a step")
    run.begin_epoch()
    clock.begin(run, len(steps))
    batches = _training_batches(run, steps, loader)
    for number in range(counters.step, len(steps)):
        try:
            watcher.check()
        except BaseException:
            # With several processes, the others may be in the middle of this step.
            if run.fabric.world_size == 1:
                run.save(checkpoints)
            raise
        rate = run.schedule(counters.epoch + number / len(steps), 1 / len(steps))
        run.objective.set_progress((counters.epoch + number / len(steps)) / recipe.epochs)
        _step(run, steps[number], number, batches)
        counters.step = number + 1
        clock.tick(rate)
        # The last step has no checkpoint here: `train` saves after the metrics of the epoch.
        interval = recipe.checkpoint_steps
        if interval and counters.step % interval == 0 and counters.step < len(steps):
            run.save(checkpoints)


def _training_batches(run: Run, steps: list[Step], loader: BatchLoader) -> Iterator[LabelledBatch]:
    """Yield the rows of each part of the remaining steps, for this process."""
    first, rank = run.counters.step, run.fabric.global_rank
    batches = [
        Share(rows, seed_of(_AUGMENTATION, run.recipe.seed, run.counters.epoch, number, rank, part))
        for number, step in enumerate(steps[first:], first)
        for part, rows in enumerate(
            shares(step, run.recipe.accumulate, rank, run.fabric.world_size)
        )
    ]
    return loader.load("train", batches)


def _step(run: Run, step: Step, number: int, batches: Iterator[LabelledBatch]) -> None:
    """Run one optimiser step on the next batches."""
    fabric, at = run.fabric, (run.recipe.seed, run.counters.epoch, number, run.fabric.global_rank)
    torch.manual_seed(seed_of(_NETWORK, *at))
    mine = shares(step, run.recipe.accumulate, fabric.global_rank, fabric.world_size)
    batches, shares_of_parts = _weigh(run, step, mine, batches)
    # A loss of a whole batch has one part.
    ranks = range(fabric.world_size)
    run.objective.set_process_rows([len(shares(step, 1, r, len(ranks))[0]) for r in ranks])
    for part, (rows, factors) in enumerate(zip(mine, shares_of_parts, strict=True)):
        more_to_come = part + 1 < len(mine)
        with fabric.no_backward_sync(run.network, enabled=more_to_come and fabric.world_size > 1):  # type: ignore[arg-type]
            loss = _loss(run, rows, next(batches), step.terms, (*at, part), factors)
            run.backward(loss)
    run.step()


def _weigh(
    run: Run, step: Step, mine: list[NDArray[np.int64]], batches: Iterator[LabelledBatch]
) -> tuple[Iterator[LabelledBatch], list[list[float | Tensor]]]:
    """Return the batches of a step, and the factors of the losses for each of its parts."""
    fabric, objective = run.fabric, run.objective
    if objective.is_weighted and run.recipe.mixing is None:
        # Augmentation moves void pixels: labels are known when all parts are loaded.
        parts = list(islice(batches, len(mine)))
        batches = iter(parts)
        weights = torch.stack([objective.total_weights(labels) for _, labels in parts])
        sums = cast("Tensor", fabric.all_reduce(weights.sum(dim=0), reduce_op="sum"))
        pairs, totals = [part.unbind() for part in weights], sums.unbind()
    else:
        size = run.splits.train.labels[0].size
        pairs, totals = [(len(rows) * size,) * 2 for rows in mine], (len(step.rows) * size,) * 2
    return batches, [objective.shares(pair, totals, fabric.world_size) for pair in pairs]


def _loss(
    run: Run,
    rows: NDArray[np.int64],
    batch: LabelledBatch,
    terms: Terms,
    at: tuple[int, ...],
    shares: list[float | Tensor],
) -> Tensor:
    """Return the objective of a part of a step; `at` are the numbers that identify the part."""
    recipe, (inputs, labels) = run.recipe, batch
    indices = to_device(run.fabric, torch.from_numpy(rows))
    if recipe.mixing is not None:
        seed = seed_of(_MIXING, *at)
        inputs, labels = mix(recipe.mixing, inputs, labels, run.splits.classes, seed)
    if recipe.compile in ("reduce-overhead", "max-autotune"):
        # The graph of this step may write over the outputs of the step before.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
    return run.objective(forward(run.network, inputs), labels, indices, terms, shares)


def _measure_epoch(run: Run, loader: BatchLoader, seconds: float) -> dict[str, Any]:
    """Return the record of a finished epoch."""
    recipe, counters, splits = run.recipe, run.counters, run.splits
    rows = _measured_rows(recipe, len(splits.train))
    record = {
        "epoch": counters.epoch + 1,
        "interleaved": counters.interleaved,
        "loss": run.read_loss(),
        "seconds": round(seconds, 3),
        "train": _predict(run, loader, "train", rows=rows).measures,
        "validation": _predict(run, loader, "validation").measures,
        "test": _predict(run, loader, "test").measures,
    }
    return record | weight_norms(run.model)


def _predict(run: Run, loader: BatchLoader, name: str, **options: Any) -> Prediction:
    return predict_split(run.recipe, loader, run.network, run.splits, name, **options)


def _measured_rows(recipe: Recipe, rows: int) -> NDArray[np.int64] | None:
    """Return the training rows that are measured, the same in each epoch; None for all."""
    if recipe.measured_rows in range(1, rows):
        order = np.random.default_rng([recipe.seed, _MEASURED]).permutation(rows)
        return np.sort(order[: recipe.measured_rows])
    return None


def _count(run: Run, record: dict[str, Any]) -> None:
    """Record an epoch, and update the best epoch."""
    counters, stop = run.counters, run.recipe.stop
    score = record["validation"][stop.score] * (-1 if stop.score == "accuracy" else 1)
    if counters.epoch < stop.warmup_epochs:
        pass  # neither chosen nor counted
    elif counters.best_score is None or score < counters.best_score:
        counters.best_score, counters.best_epoch = score, counters.epoch + 1
        counters.without_better = 0
        if stop.keep == "best":
            run.best = run.weights_now()
    else:
        counters.without_better += 1
    counters.history.append(record)
    run.start_next_epoch()


def _is_given_up(run: Run) -> bool:
    patience = run.recipe.stop.patience
    return patience > 0 and run.counters.without_better >= patience


def _has_memorised(run: Run, record: dict[str, Any]) -> bool:
    """Return whether the network has memorised the training rows.

    Paper 000, table 3: near-perfect training accuracy, a very low training ECE, and a high ratio of
    validation ECE to training ECE. Early in a run, ECE may be low on all rows alike.
    """
    interleave, train = run.recipe.interleave, record["train"]
    if interleave.when != "auto" or run.counters.interleaved:
        return False
    has_memorised = train["accuracy"] >= 1 - interleave.below and train["ece"] < interleave.below
    return bool(has_memorised and record["validation"]["ece"] > _RATIO * train["ece"])


def _agree_on_buffers(run: Run) -> None:
    """Copy the first process's running statistics to all: each process has seen other rows."""
    if run.fabric.world_size > 1:
        modules = [run.model, *([run.average.module] if run.average is not None else [])]
        for buffer in chain.from_iterable(module.buffers() for module in modules):
            torch.distributed.broadcast(buffer, 0)


class _Clock:
    """Reports progress at most every half second, also where epochs are shorter than that."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._next = time.monotonic() + _EVERY_SECONDS
        self._run: Run | None = None

    def begin(self, run: Run, steps: int) -> None:
        """Start or resume an epoch of `steps` steps."""
        if run is not self._run:  # the first run, or a restarted run
            self._run = run
            self._started, self._first = time.monotonic(), _completed_steps(run, steps)
        self._steps = steps

    def tick(self, rate: float) -> None:
        """Count a finished step, and report progress where it is due."""
        now = time.monotonic()
        if now < self._next or self._run is None:
            return
        self._next = now + _EVERY_SECONDS
        run, total_steps = self._run, self._run.recipe.epochs * self._steps
        steps_done = _completed_steps(run, self._steps)
        # The mean since the start, because metrics between epochs take time too.
        pace = (now - self._started) / max(steps_done - self._first, 1)
        self._watcher.at(
            Position(
                epoch=run.counters.epoch + 1,
                epochs=run.recipe.epochs,
                fraction=steps_done / total_steps,
                loss=run.read_loss(),
                rate=rate,
                seconds_left=pace * (total_steps - steps_done),
            )
        )


def _completed_steps(run: Run, steps: int) -> int:
    """Return the number of finished steps of a run with `steps` steps in an epoch."""
    return run.counters.epoch * steps + run.counters.step
