"""The trials of a tuning: a study of Optuna in a journal, which a killed search continues.

The study has two objectives, accuracy and error on the validation rows, or with the rule `nll` one.
What a run measured, and its digest, are attributes of its trial.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState, create_trial

from recalib.recipe import Recipe, Tune
from training.engine.artifacts import LoadedData
from training.engine.trials import Candidate, Trial, tuned_options

#: Seconds after which the lock of a killed process on the journal is released.
_GRACE_SECONDS = 3
#: Part of the name of a study; a change of what its trials hold begins other studies.
_VERSION = "2"


class TrialStudy:
    """The trials of a recipe, its data and a search space, in `study.journal`, and checkpoints.

    More trials continue a study. A run that is finished in another study of the journal counts.
    """

    def __init__(self, recipe: Recipe, part: Tune, loaded: LoadedData, output: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._part, self._folder = part, output / "trials"
        self.path = output.resolve() / "study.journal"
        _remove_partial_line(self.path)
        storage = journal_storage(self.path)
        space = part.model_dump_json(exclude={"trials", "accuracy_within"})
        run = Candidate.of(recipe, 0, {}).run(loaded)
        self.optuna = optuna.create_study(
            storage=storage,
            study_name=hashlib.sha256((_VERSION + space + run).encode()).hexdigest(),
            directions=["minimize"] if part.select == "nll" else ["maximize", "minimize"],
            load_if_exists=True,
        )
        self._trials: dict[int, Trial] = {}
        # Number and values are those of a candidate with this run.
        self._by_run = {
            trial.user_attrs["run"]: Trial(number=0, values={}, **trial.user_attrs)
            for study in storage.get_all_studies()
            for trial in storage.get_all_trials(study._study_id, deepcopy=False)
            if trial.state.is_finished() and trial.user_attrs
        }

    @property
    def trials(self) -> list[Trial]:
        """The trials of this search, in its order."""
        return [self._trials[number] for number in sorted(self._trials)]

    def start(self, candidate: Candidate, run: str) -> Trial | None:
        """Add a candidate unless the study has it; return its trial if its run is finished."""
        values = dict(candidate.values)
        if candidate.number == len(self.optuna.get_trials(deepcopy=False)):
            lists: dict[str, Any] = tuned_options(self._part)
            kinds: dict[str, Any] = {name: CategoricalDistribution(lists[name]) for name in values}
            running = create_trial(state=TrialState.RUNNING, params=values, distributions=kinds)
            self.optuna.add_trial(running)
        trial = self._by_run.get(run)
        return trial and msgspec.structs.replace(trial, number=candidate.number, values=values)

    def finish(self, trial: Trial) -> None:
        """Record a finished trial."""
        self._trials[trial.number] = self._by_run[trial.run] = trial
        stored = self.optuna.get_trials(deepcopy=False)[trial.number]
        if stored.state.is_finished():
            return
        for name in Trial.__struct_fields__[2:]:  # the first are Optuna's own
            self.optuna._storage.set_trial_user_attr(stored._trial_id, name, getattr(trial, name))
        if trial.pruned:
            self.optuna.tell(trial.number, state=TrialState.PRUNED)
        else:
            self.optuna.tell(trial.number, self._objectives(trial))

    def folder(self, run: str) -> Path:
        """Return the folder of a run's checkpoints; it exists."""
        folder = self._folder / run[:16]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep_only(self, run: str) -> None:
        """Remove the checkpoints of all other runs, to save disk space."""
        for folder in self._folder.glob("*"):
            if folder != self.folder(run):
                shutil.rmtree(folder)

    def _objectives(self, trial: Trial) -> float | list[float]:
        """Return what Optuna learns from a trial; a diverged one is as bad as possible."""
        if self._part.select == "nll":
            return float("inf") if trial.nll is None else trial.nll
        if trial.accuracy is None or trial.error is None:
            return [0.0, 1.0]
        return [trial.accuracy, trial.error]


def journal_storage(path: Path) -> JournalStorage:
    """Return the storage of a journal; several processes may write it."""
    lock = JournalFileOpenLock(str(path), grace_period=_GRACE_SECONDS)
    return JournalStorage(JournalFileBackend(str(path), lock))


def _remove_partial_line(path: Path) -> None:
    """Remove a last line that a power cut has left without its end: Optuna refuses the file."""
    if path.exists():
        with path.open("r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
