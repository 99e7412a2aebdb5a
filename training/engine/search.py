"""Searches over lists of values: one option after the other, or all combinations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from recalib.recipe import Range, Recipe, Tune
from training.engine.artifacts import LoadedData
from training.engine.trial_runs import Runner
from training.engine.trials import Candidate, Trial, TrialRecord, best_of

#: The order of paper 000, appendix G.
_ORDER = ("kappa", "temperature", "beta", "weight_decay")


def tuned_options(part: Tune) -> dict[str, list[float] | Range]:
    """Return the options with values to try, in the order in which they are tuned."""
    return {option: getattr(part, option) for option in _ORDER if getattr(part, option)}


@dataclass(frozen=True)
class Search(ABC):
    """Decides which runs are tried.

    Parameters
    ----------
    recipe: the recipe without `tune`.
    part: its `tune`.
    loaded: data and weights.
    output: folder of the results.
    """

    recipe: Recipe
    part: Tune
    loaded: LoadedData
    output: Path

    @property
    @abstractmethod
    def total(self) -> int:
        """The number of trials."""

    @abstractmethod
    def best(self, runner: Runner, record: TrialRecord) -> Trial:
        """Run all trials, return the best, and remove the checkpoints of the others.

        Raises
        ------
        DivergedError: all trials diverge, or all of an option.
        """

    def lists(self) -> dict[str, list[float]]:
        """Return the options with lists of values; the recipe refuses ranges outside Optuna."""
        options = tuned_options(self.part)
        return {name: values for name, values in options.items() if isinstance(values, list)}


class SequentialSearch(Search):
    """Each option in turn, with the others at their best so far: paper 000, appendix G."""

    @property
    def total(self) -> int:
        return sum(map(len, self.lists().values()))

    def best(self, runner: Runner, record: TrialRecord) -> Trial:
        number = 0
        values: Mapping[str, float] = {}
        for option, choices in self.lists().items():
            combinations = [{**values, option: choice} for choice in choices]
            best = _best_of(self, combinations, number, runner, record)
            number, values = number + len(choices), best.values
        return best


class GridSearch(Search):
    """All combinations of the values."""

    @property
    def total(self) -> int:
        return len(self._combinations())

    def best(self, runner: Runner, record: TrialRecord) -> Trial:
        return _best_of(self, self._combinations(), 0, runner, record)

    def _combinations(self) -> list[dict[str, float]]:
        lists = self.lists()
        return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def _best_of(
    search: Search,
    combinations: list[dict[str, float]],
    first: int,
    runner: Runner,
    record: TrialRecord,
) -> Trial:
    candidates = [
        Candidate.of(search.recipe, number, values)
        for number, values in enumerate(combinations, first)
    ]
    trials = sorted(runner.run(candidates), key=lambda trial: trial.number)
    best = best_of(trials, search.part)
    record.keep_only(best.run)
    return best
