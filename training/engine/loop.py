"""The training loop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from recalib.errors import InputError
from recalib.recipe import Recipe
from training.data import Augmentation, Splits, augmentation
from training.engine.batches import Step, epoch_steps, seed_of, shares
from training.engine.checkpoints import Checkpoints
from training.engine.evaluate import forward, measure, predict, to_device, weight_norms
from training.engine.fabric import machine
from training.engine.objective import Terms
from training.engine.optimizer import learning_rate, set_rate
from training.engine.run_state import Run, begin

__all__ = ["Position", "Trained", "Unwatched", "Watcher", "train"]

#: What streams of random numbers are for; `rows` and `run` have the smaller ones.
_AUGMENTATION, _NETWORK, _MEASURED = 4, 5, 6
#: How often a run says where it is, in seconds: to read the loss makes an accelerator wait.
_EVERY_SECONDS = 0.5
#: How much larger the validation rows' ECE must be for low training ECE to be memorisation.
_RATIO = 2.0


@dataclass(frozen=True)
class Position:
    """Where a run is."""

    epoch: int
    epochs: int
    #: Share of the run that is done.
    fraction: float
    #: The objective's mean over this epoch so far.
    loss: float
    rate: float
    seconds_left: float
    #: Which of several runs this is.
    label: str = ""

    def describe(self) -> str:
        """Return it in words."""
        minutes, seconds = divmod(round(self.seconds_left), 60)
        left = f"{minutes} min" if minutes else f"{seconds} s"
        return f"{self.label}epoch {self.epoch} of {self.epochs}, loss {self.loss:.4f}, {left} left"


class Watcher(Protocol):
    """Looks on, and may end the run between two steps by raising."""

    def check(self) -> None:
        """Called before each step; what it raises ends the run.

        A run of one process leaves a checkpoint then; of several, the last one stands.
        """

    def at(self, position: Position) -> None:
        """Called every half second."""

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        """Called after each epoch with the records of all so far."""


class Unwatched:
    """A watcher that lets a run go on to its end."""

    def check(self) -> None:
        return None

    def at(self, position: Position) -> None:
        return None

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        return None


@dataclass(frozen=True)
class Trained:
    """What came of a run."""

    weights: dict[str, Tensor]
    history: list[dict[str, Any]]
    validation_logits: NDArray[np.float32]
    test_logits: NDArray[np.float32]
    #: Whether secondary losses had rows of their own in the end.
    interleaved: bool
    best_epoch: int | None


def train(
    recipe: Recipe,
    splits: Splits,
    checkpoints: Checkpoints,
    watcher: Watcher,
    given: dict[str, Tensor] | None = None,
    fabric: Fabric | None = None,
) -> Trained:
    """Train as the recipe says, from the newest checkpoint where there is one.

    A run that was ended at any moment, gone on with by the same number of processes and threads on
    the same kind of machine, gives the same weights bit for bit.

    Parameters
    ----------
    given: the user's weights to start from.
    fabric: what to compute on; by default as the recipe says.

    Raises
    ------
    InputError: a recipe or weights that cannot be trained, or that diverge.
    UnavailableError: no room for a checkpoint; the one before still stands.
    """
    # 1. The machine, and the run: at its beginning, or where its checkpoint left it.
    fabric = fabric or machine(recipe)
    always = recipe.interleave.when == "always"
    run = begin(recipe, splits, fabric, given, interleaved=always)
    # The first process's: others may have another disk.
    run.resume(fabric.broadcast(checkpoints.load() if fabric.is_global_zero else None))
    augment = augmentation(recipe.augmentation)
    clock = _Clock(watcher)

    # 2. Epochs: steps, measures, checkpoint.
    while run.counters.epoch < recipe.epochs and not _is_given_up(run):
        started = time.monotonic()
        _epoch(run, augment, checkpoints, watcher, clock)
        record = _measured(run, time.monotonic() - started)
        # 3. Rows known by heart teach a calibration loss nothing: once more, some kept from it.
        if _has_memorised(run, record):
            history = [*run.counters.history, record]
            run = begin(recipe, splits, fabric, given, interleaved=True)
            run.counters.history = history
        else:
            _count(run, record)
        run.save(checkpoints)
        watcher.epoch_over(run.counters.history)

    # 4. The weights that are wanted, and what they say of rows that they were not trained on.
    weights = run.weights()
    run.model.load_state_dict(weights)
    return Trained(
        weights,
        run.counters.history,
        predict(fabric, run.network, splits.validation),
        predict(fabric, run.network, splits.test),
        run.counters.interleaved,
        run.counters.best_epoch,
    )


def _epoch(
    run: Run, augment: Augmentation, checkpoints: Checkpoints, watcher: Watcher, clock: _Clock
) -> None:
    """Take the steps of an epoch that are not done yet."""
    recipe, counters = run.recipe, run.counters
    parts = recipe.accumulate * run.fabric.world_size
    rows = len(run.splits.train)
    interleaved = counters.interleaved
    steps = epoch_steps(recipe, rows, counters.epoch, interleaved=interleaved, parts=parts)
    if not steps:
        raise InputError("batch_size", found=f"{rows} training rows", accepted="enough for a step")
    run.begin_epoch()
    clock.begin(run, len(steps))
    for number in range(counters.step, len(steps)):
        try:
            watcher.check()
        except BaseException:
            # Of several processes, the others may be in the middle of this very step.
            if run.fabric.world_size == 1:
                run.save(checkpoints)
            raise
        rate = learning_rate(
            recipe.optimiser, counters.epoch + number / len(steps), recipe.epochs, 1 / len(steps)
        )
        set_rate(run.optimiser, rate)
        run.objective.set_progress((counters.epoch + number / len(steps)) / recipe.epochs)
        _step(run, steps[number], number, augment)
        counters.step = number + 1
        clock.tick(rate)
        # The epoch's own checkpoint comes with its measures.
        every = recipe.checkpoint_steps
        if every and counters.step % every == 0 and counters.step < len(steps):
            run.save(checkpoints)


def _step(run: Run, step: Step, number: int, augment: Augmentation) -> None:
    """Move the weights once."""
    fabric, at = run.fabric, (run.recipe.seed, run.counters.epoch, number, run.fabric.global_rank)
    torch.manual_seed(seed_of(_NETWORK, *at))
    mine = shares(step, run.recipe.accumulate, fabric.global_rank, fabric.world_size)
    for part, rows in enumerate(mine):
        generator = torch.Generator().manual_seed(seed_of(_AUGMENTATION, *at, part))
        more_to_come = part + 1 < len(mine)
        with fabric.no_backward_sync(run.network, enabled=more_to_come and fabric.world_size > 1):  # type: ignore[arg-type]
            loss = _loss(run, rows, step.terms, augment, generator)
            # Parts of unlike size count by their rows, and the group takes the mean.
            loss = loss * (len(rows) * fabric.world_size / len(step.rows))
            fabric.backward(loss)
        run.loss_sum += loss.detach()
    run.optimiser.step()
    run.optimiser.zero_grad()


def _loss(
    run: Run,
    rows: NDArray[np.int64],
    terms: Terms,
    augment: Augmentation,
    generator: torch.Generator,
) -> Tensor:
    split = run.splits.train
    inputs = to_device(run.fabric, augment(split.batch(rows), generator))
    labels = to_device(run.fabric, torch.from_numpy(split.labels[rows]))
    indices = to_device(run.fabric, torch.from_numpy(rows))
    loss: Tensor = run.objective(forward(run.network, inputs), labels, indices, terms)
    return loss


def _measured(run: Run, seconds: float) -> dict[str, Any]:
    """Return the record of an epoch that is over."""
    recipe, counters, splits = run.recipe, run.counters, run.splits
    _agree_on_buffers(run)
    rows = _measured_rows(recipe, len(splits.train))
    train = predict(run.fabric, run.network, splits.train, rows)
    found = {
        "epoch": counters.epoch + 1,
        "interleaved": counters.interleaved,
        "loss": run.read_loss(),
        "seconds": round(seconds, 3),
        "train": measure(train, splits.train.labels[rows]),
    }
    for name, split in (("validation", splits.validation), ("test", splits.test)):
        found[name] = measure(predict(run.fabric, run.network, split), split.labels)
    return found | weight_norms(run.model)


def _measured_rows(recipe: Recipe, rows: int) -> NDArray[np.int64]:
    """Return the training rows that are measured, the same ones in each epoch."""
    if recipe.measured_rows in range(1, rows):
        order = np.random.default_rng([recipe.seed, _MEASURED]).permutation(rows)
        return np.sort(order[: recipe.measured_rows])
    return np.arange(rows)


def _count(run: Run, record: dict[str, Any]) -> None:
    """Note an epoch, and whether it is the best one so far."""
    counters, stop = run.counters, run.recipe.stop
    score = record["validation"][stop.score]
    if counters.best_score is None or score < counters.best_score:
        counters.best_score, counters.best_epoch = score, counters.epoch + 1
        counters.without_better = 0
        if stop.keep == "best":
            run.best = run.weights_now()
    else:
        counters.without_better += 1
    counters.history.append(record)
    counters.epoch, counters.step = counters.epoch + 1, 0
    run.loss_sum.zero_()


def _is_given_up(run: Run) -> bool:
    patience = run.recipe.stop.patience
    return patience > 0 and run.counters.without_better >= patience


def _has_memorised(run: Run, record: dict[str, Any]) -> bool:
    """Whether training rows are predicted, and their ECE is low, because they are known by heart.

    Paper 000, table 3: near-perfect accuracy, a very low training ECE, and a high ratio of the
    others' ECE to it. Early on, calibration may be good on all rows alike.
    """
    interleave, train = run.recipe.interleave, record["train"]
    if interleave.when != "auto" or run.counters.interleaved:
        return False
    known = train["accuracy"] >= 1 - interleave.below and train["ece"] < interleave.below
    return bool(known and record["validation"]["ece"] > _RATIO * train["ece"])


def _agree_on_buffers(run: Run) -> None:
    """Give every process the first one's running statistics: each has seen other rows."""
    if run.fabric.world_size > 1:
        for one in run.model.buffers():
            torch.distributed.broadcast(one, 0)


class _Clock:
    """Says where a run is, now and then: over epochs, of which many may fit into half a second."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._next = time.monotonic() + _EVERY_SECONDS
        self._run: Run | None = None

    def begin(self, run: Run, steps: int) -> None:
        """Note that an epoch of so many steps begins, or goes on."""
        if run is not self._run:  # the first, or a run begun anew
            self._run = run
            self._started, self._first = time.monotonic(), _done(run, steps)
        self._steps = steps

    def tick(self, rate: float) -> None:
        """Note that a step is done."""
        now = time.monotonic()
        if now < self._next or self._run is None:
            return
        self._next = now + _EVERY_SECONDS
        run, every = self._run, self._run.recipe.epochs * self._steps
        done = _done(run, self._steps)
        # Over all since the beginning: what is measured between epochs takes its time as well.
        pace = (now - self._started) / max(done - self._first, 1)
        self._watcher.at(
            Position(
                epoch=run.counters.epoch + 1,
                epochs=run.recipe.epochs,
                fraction=done / every,
                loss=run.read_loss(),
                rate=rate,
                seconds_left=pace * (every - done),
            )
        )


def _done(run: Run, steps: int) -> int:
    """Return the steps that a run has taken, of so many in an epoch."""
    return run.counters.epoch * steps + run.counters.step
