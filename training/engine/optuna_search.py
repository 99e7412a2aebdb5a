"""Tuning by Optuna: a study in a journal file, which a killed search continues.

The study has two objectives, accuracy and error on the validation rows; `best_of` selects among all
its trials. With the rule `nll` it has one, and may end a trial whose NLL after an epoch is above
the median of the trials before it (`MedianPruner` of Optuna, which prunes no study of two
objectives).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

from recalib.recipe import Range
from training.engine.batches import seed_of
from training.engine.search import Search, tuned_options
from training.engine.trial_runs import Runner
from training.engine.trials import Candidate, Trial, TrialRecord, best_of

#: Seconds after which the lock of a killed process on the journal is released.
_GRACE_SECONDS = 3
#: Identifier of the random stream of the sampler; `loop` and `run_state` use smaller numbers.
_SAMPLER = 7


class OptunaSearch(Search):
    """Values proposed by the tree-structured Parzen estimator of Optuna.

    The proposal of a trial depends on the seed, its number and the finished trials alone, so with
    one job a study that is killed and continued is the same as one that is not.
    """

    @property
    def total(self) -> int:
        assert self.part.trials is not None  # noqa: S101 - the recipe has checked it
        return self.part.trials

    def best(self, runner: Runner, record: TrialRecord) -> Trial:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = self._open_study()
        trials = []
        for trial in runner.run(self._candidates(study)):
            values = None if trial.pruned else self._objectives(trial)
            state = TrialState.PRUNED if trial.pruned else None
            study.tell(trial.number, values, state, skip_if_finished=True)
            trials.append(trial)
        best = best_of(sorted(trials, key=lambda trial: trial.number), self.part)
        record.keep_only(best.run)
        return best

    @property
    def _path(self) -> Path:
        return self.output.resolve() / "study.journal"

    def _open_study(self) -> optuna.Study:
        _remove_partial_line(self._path)
        # A study is one recipe, data and search space; more trials continue it. Fields of a later
        # version do not change the name of a study without them.
        later = {field for field in ("values", "prune") if not getattr(self.part, field)}
        space = self.part.model_dump_json(exclude={"trials", "accuracy_within", *later})
        run = Candidate.of(self.recipe, 0, {}).run(self.loaded)
        return optuna.create_study(
            storage=_storage(self._path),
            study_name=hashlib.sha256((space + run).encode()).hexdigest(),
            directions=["minimize"] if self.part.select == "nll" else ["maximize", "minimize"],
            load_if_exists=True,
        )

    def _candidates(self, study: optuna.Study) -> Iterator[Candidate]:
        """Yield the trials of the study, finished ones too, and then new ones."""
        for number in range(self.total):
            seed = seed_of(self.recipe.seed, _SAMPLER, number) % 2**32
            study.sampler = optuna.samplers.TPESampler(seed=seed)
            trials = study.get_trials(deepcopy=False)
            if number == len(trials):
                values = self._propose(study.ask())
            elif trials[number].state == TrialState.RUNNING:
                # A killed search has left it: it may lack values.
                values = self._propose(optuna.trial.Trial(study, trials[number]._trial_id))
            else:
                values = trials[number].params
            pruner = _Pruner(self._path, study.study_name, number) if self.part.prune else None
            yield Candidate.of(self.recipe, number, values, pruner)

    def _propose(self, trial: optuna.trial.Trial) -> dict[str, float]:
        values: dict[str, float] = {}
        for option, choices in tuned_options(self.part).items():
            if isinstance(choices, Range):
                values[option] = trial.suggest_float(option, choices.low, choices.high, log=True)
            else:
                values[option] = trial.suggest_categorical(option, choices)
        return values

    def _objectives(self, trial: Trial) -> float | list[float]:
        """Return what Optuna learns from a trial; a diverged one is as bad as possible."""
        if self.part.select == "nll":
            return float("inf") if trial.nll is None else trial.nll
        if trial.accuracy is None or trial.error is None:
            return [0.0, 1.0]
        return [trial.accuracy, trial.error]


@dataclass(frozen=True)
class _Pruner:
    """Reports the epochs of a trial to its study, from any process, and asks whether it ends."""

    path: Path
    study: str
    number: int

    def __call__(self, history: list[dict[str, Any]]) -> bool:
        storage, pruner = _storage(self.path), optuna.pruners.MedianPruner()
        study = optuna.load_study(study_name=self.study, storage=storage, pruner=pruner)
        found = study.get_trials(deepcopy=False)[self.number]
        trial = optuna.trial.Trial(study, found._trial_id)
        # A run that resumes may have a last epoch that was not reported.
        for epoch in range(len(found.intermediate_values), len(history)):
            trial.report(history[epoch]["validation"]["nll"], epoch)
        return bool(trial.should_prune())


def _storage(path: Path) -> JournalStorage:
    lock = JournalFileOpenLock(str(path), grace_period=_GRACE_SECONDS)
    return JournalStorage(JournalFileBackend(str(path), lock))


def _remove_partial_line(path: Path) -> None:
    """Remove a last line that a power cut has left without its end: Optuna refuses the file."""
    if path.exists():
        with path.open("r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
