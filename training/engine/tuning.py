"""Tune options of a recipe."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import msgspec

from recalib.core.packages import optional_packages
from recalib.errors import InputError
from recalib.recipe import Range, Recipe, Tune
from training.engine.artifacts import LoadedData, run_recipe
from training.engine.checkpoints import FolderCheckpoints
from training.engine.loop import Watcher
from training.engine.objective import TrainingObjective
from training.engine.search import ListSearch, Search
from training.engine.trial_runs import Load, open_runner
from training.engine.trials import Candidate, tuned_options


def tune(
    recipe: Recipe,
    load: Load,
    output: Path,
    watcher: Watcher,
    *,
    jobs: int = 1,
    loaded: LoadedData | None = None,
) -> dict[str, Any]:
    """Try values of the options in the recipe's `tune`, and write the best run into `output`.

    `study.journal`, a study of Optuna, records each trial, also one that diverged. After an
    interruption, finished trials are not repeated and interrupted trials resume from their
    checkpoints. A search over lists has the same results with any number of jobs, bit for bit if
    torch has the same number of threads in each trial.

    Parameters
    ----------
    load: returns data and initial weights; it is called here, and in each process of a trial.
    jobs: number of trials at a time, each in a process of its own if there are several.
    loaded: what `load` returned, so that it is not called here.

    Raises
    ------
    InputError: an unknown option of a loss or an invalid value, before any trial; several
        processes of torchrun, because they cannot share the study; Optuna is not installed.
    DivergedError: every value of an option diverges, or every trial.
    UnavailableError: the process of a trial ended.
    """
    part = recipe.tune
    if part is None:
        raise ValueError("a recipe without `tune`")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("tune", found="several processes", accepted="one, and --jobs")
    with optional_packages("tune"):
        from training.engine.optuna_search import OptunaSearch
        from training.engine.study import TrialStudy
    loaded = loaded or load()
    recipe = recipe.model_copy(update={"tune": None})
    _check_values(recipe, part, samples=len(loaded.splits.train))
    output.mkdir(parents=True, exist_ok=True)
    study = TrialStudy(recipe, part, loaded, output)
    search: Search = ListSearch(recipe, part)
    if part.search == "optuna":
        search = OptunaSearch(recipe, part, study)
    runner = open_runner(
        load, loaded, study, watcher, error=part.error, total=search.total, jobs=jobs
    )
    with runner as trial_runner:
        best = search.best(trial_runner, study.keep_only)
    candidate = Candidate.of(recipe, best.number, best.values)
    checkpoints = FolderCheckpoints(study.folder(best.run))
    summary = run_recipe(candidate.recipe, loaded, output, checkpoints, watcher)
    return {**summary, "trials": [msgspec.to_builtins(trial) for trial in study.trials]}


def _check_values(recipe: Recipe, part: Tune, samples: int) -> None:
    """Raise `InputError` where a field or a loss refuses an option or a value."""
    for option, values in tuned_options(part).items():
        if isinstance(values, Range):  # a value between refuses a range of integers
            low, high = values.low, values.high
            values = [low, high, low * (high / low) ** (1 / math.pi)]
        for value in values:
            candidate = Candidate.of(recipe, 0, {option: value})
            TrainingObjective(candidate.recipe.loss, samples=samples)
