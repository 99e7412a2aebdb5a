"""The trials of a tuning, and the rule that selects the best."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from recalib.errors import InputError
from recalib.recipe import Range, Recipe, Tune
from training.engine.artifacts import LoadedData
from training.engine.divergence import DivergedError

#: The fields with a name of their own in `tune`, in the order of paper 000, appendix G.
_FIELDS = {
    "kappa": "loss.secondary_options.kappa",
    "temperature": "loss.secondary_options.temperature",
    "beta": "loss.beta",
    "weight_decay": "optimiser.weight_decay",
}


def tuned_options(part: Tune) -> dict[str, list[float] | Range]:
    """Return the options with values to try, in the order in which they are tuned."""
    named = {option: getattr(part, option) for option in _FIELDS}
    return {name: choices for name, choices in (named | part.values).items() if choices}


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A run with some values of the tuned options."""

    #: Place in the search, from 0.
    number: int
    values: dict[str, float]
    #: Metrics on the validation rows; None for a run that diverged.
    accuracy: float | None = None
    error: float | None = None
    nll: float | None = None
    #: Digest of recipe and data.
    run: str
    #: How the run diverged; empty if it did not.
    diverged: str = ""
    #: The number of epochs after which Optuna ended the run; 0 for none.
    pruned: int = 0


@dataclass(frozen=True)
class Candidate:
    """A run to try."""

    number: int
    values: Mapping[str, float]
    recipe: Recipe
    #: Takes the records of the epochs of a run, and returns whether it ends; None: none ends.
    pruner: Callable[[list[dict[str, Any]]], bool] | None = None

    @classmethod
    def of(
        cls, recipe: Recipe, number: int, values: Mapping[str, float], pruner: Any = None
    ) -> Candidate:
        """Return the candidate of a recipe with other values of its fields.

        Raises
        ------
        InputError: no such field, or a value that it does not accept.
        """
        document = recipe.model_dump(mode="json")
        for option, value in values.items():
            *parents, field = _FIELDS.get(option, option).split(".")
            part: Any = document
            for parent in parents:
                part = part.get(parent) if isinstance(part, dict) else None
            if not isinstance(part, dict) or parents[:1] == ["data"]:
                accepted = "a number of the recipe, outside `data`, in a table that it has"
                raise InputError(f"tune.values.{option}", found="no such field", accepted=accepted)
            part[field] = value
        return cls(number, values, Recipe.of(document), pruner)

    def run(self, loaded: LoadedData) -> str:
        """Return the digest of recipe and data: equal runs have equal results."""
        exclude = {"name", "calibrate", "report", "checkpoint_steps"}
        if self.recipe.measure_every == 1:  # digests of earlier versions lack it
            exclude.add("measure_every")
        text = self.recipe.model_dump_json(exclude=exclude) + loaded.splits.digest
        text += "" if self.pruner is None else "pruned"
        return hashlib.sha256(text.encode()).hexdigest()

    def trial(self, run: str, **results: Any) -> Trial:
        """Return the trial of a run with these results."""
        return Trial(number=self.number, values=dict(self.values), run=run, **results)


def best_of(trials: Sequence[Trial], rule: Tune) -> Trial:
    """Return the best trial by the rule `select`, on the validation rows.

    - `error_within_accuracy`: the lowest `error` among trials whose accuracy is less than
      `accuracy_within` below the highest accuracy. With the defaults, the ℓ2 ECE of equal-mass bins
      and 0.01, this is how paper 000 chooses beta (appendix G; tables 1 and 2 have the metric). The
      paper does not name the rows, and its 1% is taken as one point of accuracy.
    - `nll`: the lowest negative log-likelihood.

    Ties go to the first trial. Runs that diverged or were pruned are left out.

    Raises
    ------
    DivergedError: all runs diverged.
    """
    results = [
        (trial.accuracy, trial.error, trial.nll, trial)
        for trial in trials
        if trial.accuracy is not None and trial.error is not None and trial.nll is not None
    ]
    if not results:
        values = "; ".join(format_values(trial.values) for trial in trials[:10])
        raise DivergedError(f"{trials[0].diverged}, with each of {values}")
    if rule.select == "nll":
        return min(results, key=lambda result: result[2])[3]
    highest = max(accuracy for accuracy, *_ in results)
    eligible = [
        (error, trial)
        for accuracy, error, _, trial in results
        if highest - accuracy < rule.accuracy_within or accuracy == highest
    ]
    return min(eligible, key=lambda pair: pair[0])[1]


def format_values(values: Mapping[str, float]) -> str:
    """Return the values of a trial as text."""
    return ", ".join(f"{option} = {value:g}" for option, value in values.items())
