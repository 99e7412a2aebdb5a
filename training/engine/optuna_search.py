"""Search by the tree-structured Parzen estimator of Optuna.

With the rule `nll`, a trial may end whose NLL after an epoch is above the median of the trials
before it (`MedianPruner` of Optuna, which prunes no study of two objectives).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from recalib.recipe import Range
from training.engine.batches import seed_of
from training.engine.search import Search
from training.engine.study import TrialStudy, journal_storage
from training.engine.trial_runs import Runner
from training.engine.trials import Candidate, Trial, best_of, tuned_options

#: Identifier of the random stream of the sampler; `loop` and `run_state` use smaller numbers.
_SAMPLER = 7


@dataclass(frozen=True)
class OptunaSearch(Search):
    """Values that Optuna proposes, in its study.

    The proposal of a trial depends on the seed, its number and the finished trials alone, so with
    one job a study that is killed and continued is the same as one that is not.
    """

    study: TrialStudy

    @property
    def total(self) -> int:
        assert self.part.trials is not None  # noqa: S101 - the recipe has checked it
        return self.part.trials

    def best(self, runner: Runner, keep: Callable[[str], None]) -> Trial:
        trials = sorted(runner.run(self._candidates()), key=lambda trial: trial.number)
        best = best_of(trials, self.part)
        keep(best.run)
        return best

    def _candidates(self) -> Iterator[Candidate]:
        """Yield the trials of the study, finished ones too, and then new ones."""
        study = self.study.optuna
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
            path = self.study.path
            pruner = _Pruner(path, study.study_name, number) if self.part.prune else None
            yield Candidate.of(self.recipe, number, values, pruner)

    def _propose(self, trial: optuna.trial.Trial) -> dict[str, float]:
        values: dict[str, float] = {}
        for option, choices in tuned_options(self.part).items():
            if isinstance(choices, Range):
                values[option] = trial.suggest_float(option, choices.low, choices.high, log=True)
            else:
                values[option] = trial.suggest_categorical(option, choices)
        return values


@dataclass(frozen=True)
class _Pruner:
    """Reports the epochs of a trial to its study, from any process, and asks whether it ends."""

    path: Path
    study: str
    number: int

    def __call__(self, history: list[dict[str, Any]]) -> bool:
        storage, pruner = journal_storage(self.path), optuna.pruners.MedianPruner()
        study = optuna.load_study(study_name=self.study, storage=storage, pruner=pruner)
        found = study.get_trials(deepcopy=False)[self.number]
        trial = optuna.trial.Trial(study, found._trial_id)
        # A run that resumes may have a last epoch that was not reported.
        for epoch in range(len(found.intermediate_values), len(history)):
            trial.report(history[epoch]["validation"]["nll"], epoch)
        return bool(trial.should_prune())
