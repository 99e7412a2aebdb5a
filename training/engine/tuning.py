"""Tune options one after the other; each option keeps its best value."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from recalib.decoding import decoder_of
from recalib.errors import InputError
from recalib.recipe import Recipe, Tune
from training.engine.artifacts import Loaded, run_recipe, write_lines
from training.engine.checkpoints import FolderCheckpoints
from training.engine.divergence import DivergedError
from training.engine.loop import Position, Watcher, train
from training.engine.objective import TrainingObjective

__all__ = ["Trial", "best_of", "tune"]

#: The order of paper 000, appendix G.
_ORDER: tuple[Literal["kappa", "temperature", "beta", "weight_decay"], ...] = (
    "kappa", "temperature", "beta", "weight_decay",
)  # fmt: skip


class Trial(msgspec.Struct, frozen=True):
    """A run with one value of one option, as stored in `trials.jsonl`."""

    option: str
    value: float
    #: Accuracy and error on the validation rows; None for a run that diverged.
    accuracy: float | None
    error: float | None
    #: Digest of recipe and data.
    run: str
    #: How the run diverged; empty if it did not.
    diverged: str = ""


def best_of(trials: Sequence[Trial], within: float) -> Trial:
    """Return the trial with the lowest error among trials of nearly the highest accuracy.

    Such a trial is less than `within` below the highest accuracy. Ties go to the first trial. Runs
    that diverged are left out.

    Raises
    ------
    DivergedError: all runs diverged.

    Source: paper 000, appendix G.
    """
    results = [
        (trial.accuracy, trial.error, trial)
        for trial in trials
        if trial.accuracy is not None and trial.error is not None
    ]
    if not results:
        values = ", ".join(f"{trial.value:g}" for trial in trials)
        raise DivergedError(f"{trials[0].diverged}, with each {trials[0].option} of {values}")
    highest = max(accuracy for accuracy, _, _ in results)
    fair = [
        (error, trial)
        for accuracy, error, trial in results
        if highest - accuracy < within or accuracy == highest
    ]
    return min(fair, key=lambda pair: pair[0])[1]


def tune(recipe: Recipe, loaded: Loaded, output: Path, watcher: Watcher) -> dict[str, Any]:
    """Try the values of the recipe's `tune`, and write the best run into `output`.

    `trials.jsonl` records each finished trial, also one that diverged. After an interruption,
    finished trials are not repeated and the interrupted trial resumes from its checkpoint.

    Raises
    ------
    InputError: an unknown option of a loss or an invalid value, before any trial; several
        processes, because they cannot share the record.
    DivergedError: every value of an option diverges.
    """
    part = recipe.tune
    if part is None:
        raise ValueError("a recipe without `tune`")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("tune", found="several processes", accepted="one")
    best = recipe.model_copy(update={"tune": None})
    for candidate in _every(best, part):
        TrainingObjective(candidate.loss, samples=len(loaded.splits.train))
    record = _Record(output)
    total, finished = sum(len(getattr(part, option)) for option in _ORDER), 0
    for option in _ORDER:
        trials = []
        for value in getattr(part, option):
            candidate, label = _with(best, option, value), f"trial {finished + 1} of {total}, "
            subwatcher = _SubWatcher(watcher, label, finished, total + 1)
            trials.append(_tried(candidate, option, value, loaded, record, subwatcher, part))
            finished += 1
        if trials:
            best_trial = best_of(trials, part.accuracy_within)
            best = _with(best, option, best_trial.value)
            record.keep_only(best_trial)
    summary = run_recipe(best, loaded, output, record.checkpoints(_run(best, loaded)), watcher)
    return {**summary, "trials": [msgspec.to_builtins(trial) for trial in record.trials]}


def _tried(
    recipe: Recipe,
    option: str,
    value: float,
    loaded: Loaded,
    record: _Record,
    watcher: Watcher,
    part: Tune,
) -> Trial:
    """Return a trial from the record, or train it."""
    run = _run(recipe, loaded)
    recorded = record.find(option, value, run)
    if recorded is not None:
        return recorded
    try:
        trained = train(recipe, loaded.splits, record.checkpoints(run), watcher, loaded.weights)
    except DivergedError as divergence:
        trial = Trial(option, value, None, None, run, str(divergence.found))
        record.add(trial)
        return trial
    measured = trained.validation.measures
    accuracy, error = measured["accuracy"], measured[part.error]
    if accuracy is None or error is None:
        raise ValueError("metrics of rows that there are")
    trial = Trial(option, value, accuracy, error, run)
    record.add(trial)
    return trial


def _every(recipe: Recipe, part: Tune) -> Iterator[Recipe]:
    for option in _ORDER:
        for value in getattr(part, option):
            yield _with(recipe, option, value)


def _with(recipe: Recipe, option: str, value: float) -> Recipe:
    """Return the recipe with another value of `option`."""
    document = recipe.model_dump(mode="json")
    if option == "weight_decay":
        document["optimiser"]["weight_decay"] = value
    elif option == "beta":
        document["loss"]["beta"] = value
    else:
        document["loss"]["secondary_options"][option] = value
    return Recipe.of(document)


def _run(recipe: Recipe, loaded: Loaded) -> str:
    text = recipe.model_dump_json(exclude={"name", "calibrate", "report", "checkpoint_steps"})
    return hashlib.sha256((text + loaded.splits.digest).encode()).hexdigest()


class _Record:
    """The trials in a folder: one line each, and the checkpoints that may still be needed."""

    def __init__(self, output: Path) -> None:
        self._path, self._folder = output / "trials.jsonl", output / "trials"
        self.trials: list[Trial] = []
        if self._path.exists():
            lines = self._path.read_text().splitlines()
            self.trials = [decoder_of(Trial).decode(line) for line in lines]

    def find(self, option: str, value: float, run: str) -> Trial | None:
        """Return the trial if it is finished."""
        key = (option, value, run)
        matches = [trial for trial in self.trials if (trial.option, trial.value, trial.run) == key]
        return matches[0] if matches else None

    def add(self, trial: Trial) -> None:
        """Record a finished trial."""
        self.trials.append(trial)
        write_lines(self._path, [msgspec.to_builtins(trial) for trial in self.trials])

    def checkpoints(self, run: str) -> FolderCheckpoints:
        """Return the checkpoint storage of a run."""
        folder = self._folder / run[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return FolderCheckpoints(folder)

    def keep_only(self, trial: Trial) -> None:
        """Remove the checkpoints of all other trials, to save disk space."""
        for folder in self._folder.iterdir():
            if folder.name != trial.run[:16]:
                shutil.rmtree(folder)


class _SubWatcher:
    """A watcher's view of one trial among several."""

    def __init__(self, watcher: Watcher, label: str, finished: int, total: int) -> None:
        self._watcher, self._label, self._done, self._total = watcher, label, finished, total

    def check(self) -> None:
        self._watcher.check()

    def at(self, position: Position) -> None:
        fraction = (self._done + position.fraction) / self._total
        self._watcher.at(replace(position, label=self._label, fraction=fraction))

    def epoch_over(self, history: list[dict[str, Any]]) -> None:
        self._watcher.epoch_over([{**history[-1], "label": self._label}])
