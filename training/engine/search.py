"""Searches over lists of values: one option after the other, or all combinations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from recalib.recipe import Recipe, Tune
from training.engine.trial_runs import Runner
from training.engine.trials import Candidate, Trial, best_of, tuned_options


@dataclass(frozen=True)
class Search(ABC):
    """Decides which runs are tried.

    Parameters
    ----------
    recipe: the recipe without `tune`.
    part: its `tune`.
    """

    recipe: Recipe
    part: Tune

    @property
    @abstractmethod
    def total(self) -> int:
        """The number of trials."""

    @abstractmethod
    def best(self, runner: Runner, keep: Callable[[str], None]) -> Trial:
        """Run all trials, and return the best.

        Parameters
        ----------
        keep: removes the checkpoints of all runs but the one with this digest.

        Raises
        ------
        DivergedError: all trials diverge, or all of an option.
        """


class ListSearch(Search):
    """Lists of values: all combinations for `grid`; otherwise paper 000, appendix G.

    That is each option in turn, with the others at their best so far.
    """

    @property
    def total(self) -> int:
        return sum(len(list(stage)) for stage in self._stages())

    def best(self, runner: Runner, keep: Callable[[str], None]) -> Trial:
        number, values = 0, dict[str, float]()
        for stage in self._stages():
            candidates = [
                Candidate.of(self.recipe, place, {**values, **combination})
                for place, combination in enumerate(stage, number)
            ]
            trials = sorted(runner.run(candidates), key=lambda trial: trial.number)
            best = best_of(trials, self.part)
            keep(best.run)
            number, values = number + len(candidates), best.values
        return best

    def _stages(self) -> Iterator[Iterator[dict[str, float]]]:
        """Yield what is tried before the next choice; the recipe refuses ranges outside Optuna."""
        options = tuned_options(self.part)
        for names in (
            [list(options)] if self.part.search == "grid" else [[name] for name in options]
        ):
            lists: list[Any] = [options[name] for name in names]
            yield (dict(zip(names, values, strict=True)) for values in product(*lists))
